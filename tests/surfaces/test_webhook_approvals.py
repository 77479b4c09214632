"""A webhook asks by a notice, and takes the word of whoever it says has spoken."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from parley.agent.tools import Wanted
from tests.agent.shown_text import read_arguments
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.room import DENIED, NOTHING, a_call, a_deed
from tests.servers.callback_receiver import CallbackReceiver
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.webhook import Caller, WebhookHouse
from tests.waiting import until

DONE = Reply(text="Done.")
REFUSED = "That question is for whoever asked, and for owners."


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    return a_deed(monkeypatch)


@pytest.fixture
async def receiver() -> AsyncIterator[CallbackReceiver]:
    async with CallbackReceiver() as server:
        yield server


@pytest.fixture
async def caller(
    house: House, receiver: CallbackReceiver, deed: AskingTool
) -> AsyncIterator[Caller]:
    made = WebhookHouse(receiver, house.profile)
    house.more_surfaces = made.surfaces
    await house.open(agent={"tools": ["deed", "clarify"]}, access={"owners": ["webhook:olga"]})
    async with Caller(made.url) as opened:
        yield opened


def questions(receiver: CallbackReceiver) -> list[dict[str, object]]:
    return [p.answer for p in receiver.posted if str(p.answer["text"]).startswith("May I ")]


async def answer(receiver: CallbackReceiver, number: str) -> str:
    """What answers this message."""

    def found() -> list[str]:
        return [str(p.answer["text"]) for p in receiver.posted if number in p.answer["answers"]]

    await until(found)
    return found()[0]


@pytest.mark.parametrize(("word", "told"), [("!yes", "did a"), ("!no", DENIED)])
async def test_a_question_is_posted_as_a_notice_and_answered_by_a_message(
    caller: Caller,
    receiver: CallbackReceiver,
    house: House,
    stage: Stage,
    deed: AskingTool,
    word: str,
    told: str,
) -> None:
    stage.then(a_call(), DONE)
    await caller.say("please", "m1")
    await until(lambda: questions(receiver))
    [question] = questions(receiver)
    assert question["kind"] == "notice"
    assert str(question["text"]).startswith('May I use `deed` with `{"word": "a"}`?')
    assert deed.done == []
    assert await caller.say(word, "m2") == (202, {"state": "queued"})
    assert await answer(receiver, "m1") == "Done."
    assert house.words()[-1] == told
    assert len(deed.done) == (word == "!yes")
    assert len(questions(receiver)) == 1


async def test_the_same_word_posted_twice_counts_once(
    caller: Caller, receiver: CallbackReceiver, stage: Stage, deed: AskingTool
) -> None:
    stage.then(Reply(tool_calls=(("deed", {"word": "a"}), ("deed", {"word": "b"}))), DONE)
    await caller.say("please", "m1")
    await until(lambda: questions(receiver))
    assert await caller.say("!yes", "m2") == (202, {"state": "queued"})
    await until(lambda: len(questions(receiver)) == 2)
    assert (await caller.say("!yes", "m2"))[1] == {"state": "duplicate"}
    await caller.say("/status", "m3")
    await answer(receiver, "m3")
    assert [each["word"] for each in deed.done] == ["a"]


async def test_in_a_shared_room_the_word_is_that_of_who_asked_or_of_an_owner(
    caller: Caller, receiver: CallbackReceiver, stage: Stage, deed: AskingTool
) -> None:
    shared = {"chat": "room", "chat_type": "group", "thread": "t1"}
    stage.then(a_call(), DONE)
    await caller.say("please", "m1", **shared)
    await until(lambda: questions(receiver))
    name = re.search(r"appr_\w+", str(questions(receiver)[0]["text"]))
    assert name is not None
    await caller.say(f"!yes {name[0]}", "m2", **{**shared, "user": "bob"})
    assert await answer(receiver, "m2") == REFUSED
    await caller.say(f"!yes {name[0]}", "m3")
    assert await answer(receiver, "m3") == NOTHING
    assert deed.done == []
    await caller.say("!yes", "m4", **{**shared, "user": "olga"})
    assert await answer(receiver, "m4") == "Allowed: `deed`."
    assert await answer(receiver, "m1") == "Done."
    assert len(deed.done) == 1


async def test_what_is_owner_level_is_refused_to_others(
    house: House, receiver: CallbackReceiver, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = a_deed(monkeypatch, Wanted("move the house", owner=True))
    made = WebhookHouse(receiver, house.profile)
    house.more_surfaces = made.surfaces
    await house.open(agent={"tools": ["deed"]}, access={"owners": ["webhook:olga"]})
    async with Caller(made.url) as caller:
        stage.then(a_call(), DONE, a_call(), DONE)
        await caller.say("please", "m1")
        assert await answer(receiver, "m1") == "Done."
        assert (questions(receiver), deed.done) == ([], [])
        await caller.say("please", "m2", user="olga")
        await until(lambda: questions(receiver))
        await caller.say("!yes", "m3", user="olga")
        assert await answer(receiver, "m2") == "Done."
    assert len(deed.done) == 1


async def test_more_words_are_asked_for_by_a_notice_too(
    caller: Caller, receiver: CallbackReceiver, house: House, stage: Stage
) -> None:
    stage.then(Reply(tool_calls=(("clarify", {"question": "Which colour?"}),)), DONE)
    await caller.say("paint it", "m1")
    await until(lambda: receiver.posted)
    [asked] = [posted.answer for posted in receiver.posted]
    assert (asked["text"], asked["kind"]) == ("Which colour?", "notice")
    await caller.say("green", "m2")
    assert await answer(receiver, "m1") == "Done."
    assert house.words()[-1] == "green"


async def test_what_is_posted_reads_back_to_what_is_done(
    caller: Caller, receiver: CallbackReceiver, stage: Stage, deed: AskingTool
) -> None:
    word = "a\nb\\n\u202e\u200b  `c`⟨ é e\u0301 "
    stage.then(a_call(word), DONE)
    await caller.say("please", "m1")
    await until(lambda: questions(receiver))
    [question] = questions(receiver)
    assert read_arguments(str(question["text"])) == {"word": word}
    await caller.say("!yes", "m2")
    assert await answer(receiver, "m1") == "Done."
    assert [each["word"] for each in deed.done] == [word]
