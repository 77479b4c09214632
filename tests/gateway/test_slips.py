"""Mistyped commands, and a plain yes or no below a question."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from parley.gateway.commands import looks_like_command
from parley.gateway.commands.near_miss import near_miss
from parley.gateway.commands.registry import COMMANDS
from parley.gateway.commands.switches import read_switch
from parley.protocol import Attachment, InboundMessage
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.room import Room, a_call, a_deed, direct, in_thread
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

DONE = Reply(text="Done.")


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    return a_deed(monkeypatch)


@pytest.fixture
async def room(house: House, deed: AskingTool) -> Room:
    house.desk_type = Room
    desk = await house.open(agent={"tools": ["deed"]})
    assert isinstance(desk, Room)
    return desk


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("hlep", "help"),
        ("hepl", "help"),
        ("stpo", "stop"),
        ("nwe", "new"),
        ("unarchiv", "unarchive"),
    ],
)
def test_a_slip_is_near(typed: str, meant: str) -> None:
    assert near_miss(typed, COMMANDS) == meant


@pytest.mark.parametrize("word", ["important", "note", "now", "wow", "todo", "x", "the", "hello"])
def test_other_words_are_not(word: str) -> None:
    assert near_miss(word, COMMANDS) is None


@pytest.mark.parametrize(
    "text",
    ["!important note", "!!!", "!wow", "! hlep", "!chart me a course to the sea", "/etc/hosts x"],
)
def test_other_text_is_no_command(text: str) -> None:
    assert not looks_like_command(text)


@pytest.mark.parametrize("typed", ["!hlep", "/hlep", "!stpo all", "!yse"])
async def test_a_mistyped_command_is_answered_with_the_nearest(
    room: Room, model: ScriptedModel, typed: str
) -> None:
    told = await room.hear("ann", typed)
    meant = {"h": "help", "s": "stop", "y": "yes"}[typed[1]]
    assert f"Did you mean `/{meant}`?" in told
    assert model.total == 0


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("of files", "Did you mean `!skills off files`?"),
        ("files off", "Did you mean `!skills off files`?"),
        ("off flies", "Did you mean `!skills off files`?"),
        ("files", "`!skills on files` or `!skills off files`?"),
        ("on nosuch", "`!skills on NAME` or `!skills off NAME`; names: `files`, `email`."),
    ],
)
def test_a_switch_that_is_not_understood_is_helped(argument: str, told: str) -> None:
    assert read_switch("!skills", argument, ("files", "email")) == told


def test_a_switch_is_read() -> None:
    assert read_switch("!skills", "OFF Files", ("files", "email")) == ("files", False)


async def test_the_skills_command_helps(room: Room) -> None:
    assert await room.hear("ann", "/skills of files") == "Did you mean `/skills off files`?"
    assert "Did you mean `/safety off file-delete`?" in await room.hear(
        "ann", "/safety of file-delete"
    )


async def test_a_word_that_is_not_understood_is_named_while_the_question_waits(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    number = await room.tell("ann", "please")
    id = await room.question()
    told = await room.hear("ann", "!yes alwas")
    assert told.startswith("`alwas` is not understood, and the question still waits. ")
    assert "Did you mean `/yes always`?" in told
    assert f"`/yes {id}` answers this one" in await room.hear("ann", "!yes appr_other")
    assert deed.done == []
    assert "Allowed" in await room.hear("ann", "!yes always")
    assert await room.reply_to(number) == "Done."


@pytest.mark.parametrize(
    ("word", "told"), [("yes", "Allowed: `deed`."), ("No.", "Refused: `deed`.")]
)
async def test_a_plain_word_of_whoever_is_asked_is_the_answer(
    room: Room, stage: Stage, word: str, told: str
) -> None:
    stage.then(a_call(), DONE)
    number = await room.tell("ann", "please")
    await room.question()
    assert await room.hear("ann", word) == told
    assert await room.reply_to(number) == "Done."


async def test_a_plain_word_answers_the_question_that_waits_and_none_that_comes_later(
    house: House, room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call("a"), a_call("b"), DONE)
    number = await room.tell("ann", "please")
    first = await room.question()
    await room.tell("ann", "yes")
    with closing(sqlite3.connect(house.profile.database_file)) as db:
        kept = " ".join(str(row) for row in db.execute("SELECT * FROM inbox"))
    assert f'"!yes {first}"' in kept  # however late it is read
    await room.question(2)
    assert len(deed.done) == 1
    assert await room.hear("ann", "no") == "Refused: `deed`."
    assert await room.reply_to(number) == "Done."
    assert len(deed.done) == 1


async def test_a_plain_word_with_a_file_is_a_message(
    house: House, room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    number = await room.tell("ann", "please")
    await room.question()
    file = house.profile.workspace / "a.txt"
    file.write_text("the plan")
    sent = Attachment("a.txt", "text/plain", str(file), file.stat().st_size)
    await room.admit(InboundMessage(direct("ann"), "yes", "file", attachments=(sent,)))
    assert deed.done == []
    assert await room.hear("ann", "yes") == "Allowed: `deed`."
    assert await room.reply_to(number) == "Done."
    await until(lambda: "the plan" in "".join(house.words()))


async def test_a_plain_word_is_only_talk_where_nothing_is_asked_or_another_is(
    room: Room, stage: Stage
) -> None:
    stage.then(Reply(text="Fine."))
    assert await room.hear("ann", "yes") == "Fine."
    stage.then(a_call(), DONE)
    number = await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    await room.tell("bob", "yes", at=in_thread)
    assert "Allowed" in await room.hear("ann", f"!yes {id}", at=in_thread)
    await until(lambda: room.answer_to(number) is not None)
