"""`parley chat` when the agent asks before it acts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.shown_text import read_arguments
from tests.cli.household import Household
from tests.cli.test_chat_screen import ENTER, PROMPT, leave, see
from tests.servers.gateway_process import GatewayProcess
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage

A_CALL = Reply(tool_calls=(("deed", {"word": "sink"}),))


@pytest.fixture
def deeds(household: Household) -> Iterator[Path]:
    """What the tool did; a gateway that has it serves the household."""
    household.configure("agent:\n  tools: [deed]\n")
    command = ("-m", "tests.servers.asking_gateway", "gateway", "run")
    with GatewayProcess(household.home, command=command) as gateway:
        gateway.start()
        asyncio.run(gateway.until_ready())
        yield gateway.profile.workspace / "deeds.txt"


def test_a_person_is_asked_and_allows_it(household: Household, deeds: Path, stage: Stage) -> None:
    stage.then(A_CALL, Reply(text="It is done."))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("please" + ENTER)
        see(screen, "May I use `deed` with")
        screen.expect("(appr_[0-9a-f]{12})")
        assert isinstance(screen.match, re.Match)
        assert not deeds.exists()
        screen.send(f"!yes {screen.match[1]}" + ENTER)
        see(screen, "It is done.")
        leave(screen)
    assert deeds.read_text() == "sink\n"


def test_a_person_is_asked_and_refuses(household: Household, deeds: Path, stage: Stage) -> None:
    stage.then(A_CALL, Reply(text="Then not."))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("please" + ENTER)
        see(screen, "May I use `deed` with")
        screen.send("/deny" + ENTER)
        see(screen, "Then not.")
        leave(screen)
    assert not deeds.exists()


@pytest.mark.parametrize("as_json", [False, True])
def test_one_question_from_a_script_is_not_allowed_anything(
    household: Household, deeds: Path, stage: Stage, as_json: bool
) -> None:
    stage.then(A_CALL, Reply(text="I may not."))
    done = household.run("chat", "-m", "please", *(["--json"] if as_json else []))
    assert done.returncode == 0
    said = json.loads(done.stdout)["reply"] if as_json else done.stdout.strip()
    assert said == "I may not."
    assert done.stderr.startswith("parley: refused: May I use `deed`")
    assert done.stderr.count("\n") == 1
    assert not deeds.exists()
    assert household.asked()[-1] == "The person did not allow this."


@pytest.mark.parametrize("as_json", [False, True])
def test_a_script_is_shown_exactly_what_was_refused(
    household: Household, deeds: Path, stage: Stage, as_json: bool
) -> None:
    word = "a\nb\\n\u202e\u200b\x1b[2K  `c`⟨"
    stage.then(Reply(tool_calls=(("deed", {"word": word}),)), Reply(text="I may not."))
    done = household.run("chat", "-m", "please", *(["--json"] if as_json else []))
    assert done.returncode == 0
    assert "1 | a\n2 | b\\n⟨U+202E⟩⟨U+200B⟩⟨ESC⟩[2K  `c`⟨U+27E8⟩\n" in done.stderr
    assert read_arguments(done.stderr) == {"word": word}
    assert not deeds.exists()


def test_a_person_is_shown_exactly_what_they_allow(
    household: Household, deeds: Path, stage: Stage
) -> None:
    word = "a\n\u202eb"
    stage.then(Reply(tool_calls=(("deed", {"word": word}),)), Reply(text="It is done."))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("please" + ENTER)
        see(screen, "May I use `deed` with these arguments?")
        see(screen, "1 | a")
        see(screen, "2 | ⟨U+202E⟩b")
        screen.expect("(appr_[0-9a-f]{12})")
        screen.send("yes" + ENTER)
        see(screen, "It is done.")
        leave(screen)
    assert deeds.read_text() == f"{word}\n"
