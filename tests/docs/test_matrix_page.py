"""The page on Matrix: its examples, with a real homeserver, and a person who does as it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from parley.surfaces.matrix.undecrypted import notice_of
from tests.docs.answers import answer_examples
from tests.docs.pages import MATRIX_PAGE, REPOSITORY, steps
from tests.docs.reader import Reader, home_of
from tests.servers.scripted_model import ScriptedModel
from tests.servers.scripted_reply import Reply
from tests.servers.synapse import Account, Synapse, running_synapse
from tests.surfaces.matrix.person import Person

_TEXT = MATRIX_PAGE.read_text()
_BOT = "@bot:localhost"


@pytest.fixture
def stage() -> Callable[[Mapping[str, Any]], Reply | None]:
    return answer_examples


@pytest.fixture
def synapse() -> Iterator[Synapse]:
    with running_synapse() as server:
        yield server


@pytest.mark.timeout(400)
async def test_the_examples_lead_to_a_first_answer_in_an_encrypted_room(
    tmp_path: Path, far_model: ScriptedModel, synapse: Synapse
) -> None:
    (tmp_path / "bot.password").write_text(synapse.register("bot").password + "\n")
    ann = synapse.register("ann")
    names = {"https://matrix.example.org": synapse.url, "example.org": "localhost"}
    home = home_of(tmp_path, "", far_model)
    with Reader(home, tmp_path / "models", folder=tmp_path, others=names) as reader:
        for step in steps(_TEXT):
            reader.follow(step)
            if step.command == "parley gateway run":
                await _say_hello(synapse, ann)


async def _say_hello(synapse: Synapse, account: Account) -> None:
    """As the page tells it: a direct message, two invitations, a question."""
    async with Person.on(synapse, account) as ann:
        first = await ann.create_dm(_BOT, encrypted=True)
        space = await ann.wait_for_invite()
        chat = await ann.wait_for_invite(apart_from=(space,))
        for room in (space, chat):
            await ann.join(room)
        greeting = await ann.wait_for_text(_BOT, "!help", room_id=chat)
        assert greeting.text.partition("\n")[0] in _quotes()
        assert greeting.encrypted
        for room in (chat, first):
            await ann.send(room, "What is the capital of France?")
            answer = await ann.wait_for_text(_BOT, "is Paris.", room_id=room)
            assert answer.encrypted


def test_what_is_said_of_a_message_that_cannot_be_read_is_on_the_page() -> None:
    assert notice_of("$e", "@ann:example.org", None)["body"] in _quotes()


def test_the_sentences_of_the_page_are_those_that_people_see() -> None:
    table = _TEXT.partition("## When something is wrong")[2].partition("\n## ")[0]
    seen = re.findall(r"^\| `([A-Z][^`]+)` \|", table, re.M)
    source = "".join(file.read_text() for file in (REPOSITORY / "src").rglob("*.py"))
    source = source.replace("{limit.plan}", "Beta")
    assert len(seen) > 5
    assert [sentence for sentence in seen if sentence not in source] == []


def _quotes() -> list[str]:
    """What the page quotes, each as one line."""
    blocks = re.findall(r"(?:^> .*\n)+", _TEXT, re.M)
    return [" ".join(line.removeprefix("> ") for line in block.splitlines()) for block in blocks]
