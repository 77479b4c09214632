"""Safety triggers: what a person is asked about first, as the settings and they themselves want."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from parley.agent.sandbox import find_sandbox
from parley.agent.tools import Wanted
from parley.gateway.approvals import SAFETY_TRIGGERS
from parley.protocol import ApprovalAsked
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.room import DENIED, Room, a_call, a_deed, in_thread
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

DONE = Reply(text="Done.")


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    return a_deed(monkeypatch, Wanted("delete it", trigger="file-delete"))


async def opened(house: House, safety: Mapping[str, bool] | None = None) -> Room:
    house.desk_type = Room
    room = await house.open(agent={"tools": ["deed"], "safety": dict(safety or {})})
    assert isinstance(room, Room)
    return room


async def is_asked(room: Room, stage: Stage, who: str = "ann") -> bool:
    before = len(room.questions)
    stage.then(a_call(), DONE)
    first = await room.tell(who, "please")
    await until(lambda: room.answer_to(first) or len(room.questions) > before)
    if room.answer_to(first) is not None:
        return False
    await room.hear(who, "!no")
    await room.reply_to(first)
    return True


async def test_at_first_everyone_is_asked(house: House, stage: Stage, deed: AskingTool) -> None:
    room = await opened(house)
    assert await is_asked(room, stage)
    assert deed.done == []


@pytest.mark.parametrize(
    ("setting", "own", "asked"),
    [
        ({}, "", True),
        ({"file-delete": True}, "", True),
        ({"file-delete": False}, "", False),
        ({"email-send": False}, "", True),
        ({}, "/safety off file-delete", False),
        ({"file-delete": True}, "/safety off file-delete", False),
        ({"file-delete": False}, "/safety on file-delete", True),
        ({"file-delete": False}, "/SAFETY On File-Delete", True),
        ({}, "/safety off email-send", True),
        ({}, "/safety off", True),
        ({}, "/safety off everything", True),
    ],
)
async def test_a_persons_own_setting_goes_before_the_profiles(
    house: House,
    stage: Stage,
    deed: AskingTool,
    setting: Mapping[str, bool],
    own: str,
    asked: bool,
) -> None:
    room = await opened(house, setting)
    if own:
        await room.hear("ann", own)
    assert await is_asked(room, stage) is asked
    assert len(deed.done) == (not asked)


async def test_a_persons_setting_is_their_own_and_stays(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    room = await opened(house)
    assert await room.hear("ann", "/safety off file-delete") == (
        "You are not asked any more before `file-delete`."
    )
    assert "- file-delete: off" in await room.hear("ann", "/safety")
    assert "- file-delete: on" in await room.hear("bob", "/safety")
    assert await is_asked(room, stage, "bob")
    await house.crash()
    after = await opened(house)
    await after.hear("ann", "/new")
    assert not await is_asked(after, stage)
    assert await is_asked(after, stage, "bob")
    assert await after.hear("ann", "/safety on file-delete") == (
        "You are asked before `file-delete`."
    )
    assert await is_asked(after, stage)


async def test_who_speaks_beside_a_turn_is_still_asked(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    """Ann goes without questions; what Bob says while her turn runs does not."""
    room = await opened(house)
    await room.hear("ann", "/safety off file-delete", at=in_thread)
    await room.hear("bob", "hello", at=in_thread)

    def slow(asked: Mapping[str, Any]) -> Reply:
        return Reply(tool_calls=(("deed", {"word": "a"}),), delay=0.2)

    stage.then(a_call("first"), slow, a_call("last"), DONE, a_call("bobs"), DONE)
    await room.tell("ann", "please", at=in_thread)
    await until(lambda: len(deed.done) == 1)
    await room.tell("bob", "and all the rest", at=in_thread)
    await room.question()
    assert [each["word"] for each in deed.done] == ["first", "a", "last"]
    refused = await room.hear("ann", "!yes", at=in_thread)
    assert refused == "That question is for whoever asked, and for owners."


async def test_what_always_needs_a_word_has_no_switch(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = a_deed(monkeypatch, Wanted("do something else"))
    room = await opened(house, dict.fromkeys(SAFETY_TRIGGERS, False))
    for trigger in SAFETY_TRIGGERS:
        await room.hear("ann", f"/safety off {trigger}")
    assert await is_asked(room, stage)
    assert deed.done == []


async def test_what_is_owner_level_is_not_switched_off_by_others(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = a_deed(monkeypatch, Wanted("wipe it", trigger="file-delete", owner=True))
    room = await opened(house)
    await room.hear("ann", "/safety off file-delete")
    stage.then(a_call(), DONE)
    await room.hear("ann", "please")
    assert deed.done == []
    assert house.words()[-1].startswith("Only an owner")


# ── a real command ──


def a_command(command: str) -> Reply:
    return Reply(tool_calls=(("terminal", {"command": command}),))


async def at_a_terminal(house: House, **sections: Mapping[str, Any]) -> Room:
    house.desk_type = Room
    room = await house.open(agent={"tools": ["terminal"]}, **sections)
    assert isinstance(room, Room)
    return room


def _sandboxed() -> bool:
    return find_sandbox("auto").contains


needs_sandbox = pytest.mark.skipif(not _sandboxed(), reason="bubblewrap does not work here")


@needs_sandbox
async def test_a_command_that_deletes_asks_and_runs_after_a_yes(house: House, stage: Stage) -> None:
    room = await at_a_terminal(house)
    doomed, kept = house.profile.workspace / "x", house.profile.workspace / "y"
    doomed.write_text("")
    kept.write_text("")
    stage.then(a_command("rm x"), a_command("rm y"), DONE)
    first = await room.tell("ann", "tidy up")
    await room.question()
    assert room.questions[0].startswith("May I run `rm x`?")
    assert doomed.exists()
    assert await room.hear("ann", "!yes") == "Allowed: `terminal`."
    await room.question(2)
    assert not doomed.exists()
    assert json.loads(house.words()[-1])["exit_code"] == 0
    assert room.questions[1].startswith("May I run `rm y`?")
    assert await room.hear("ann", "!no") == "Refused: `terminal`."
    assert await room.reply_to(first) == "Done."
    assert kept.exists()
    assert house.words()[-1] == DENIED


@needs_sandbox
async def test_a_command_that_deletes_is_not_asked_about_where_that_is_off(
    house: House, stage: Stage
) -> None:
    room = await at_a_terminal(house)
    doomed = house.profile.workspace / "x"
    doomed.write_text("")
    await room.hear("ann", "/safety off file-delete")
    stage.then(a_command("rm x"), DONE)
    assert await room.hear("ann", "tidy up") == "Done."
    assert room.questions == []
    assert not doomed.exists()


@needs_sandbox
async def test_a_harmless_command_in_the_sandbox_asks_nobody(house: House, stage: Stage) -> None:
    room = await at_a_terminal(house)
    stage.then(a_command("echo hello"), DONE)
    assert await room.hear("ann", "say it") == "Done."
    assert json.loads(house.words()[-1])["output"].strip() == "hello"
    assert room.questions == []


@needs_sandbox
async def test_of_two_risks_one_that_is_off_does_not_carry_the_other(
    house: House, stage: Stage
) -> None:
    room = await at_a_terminal(house)
    await room.hear("ann", "/safety off file-delete")
    stage.then(a_command("rm x; mail bob"), DONE)
    await room.tell("ann", "please")
    await room.question()
    assert "`rm x; mail bob`" in room.questions[0]


async def test_without_a_sandbox_every_command_is_an_owners(house: House, stage: Stage) -> None:
    room = await at_a_terminal(house, terminal={"sandbox": "off"}, access={"owners": ["desk:olga"]})
    await room.hear("ann", "/safety off file-delete")
    mark = house.profile.workspace / "mark"
    stage.then(a_command("touch mark"), DONE)
    assert await room.hear("ann", "please") == "Done."
    assert house.words()[-1].startswith("Only an owner of this agent may allow this")
    assert not mark.exists()
    stage.then(a_command("touch mark"), DONE)
    first = await room.tell("olga", "please")
    await room.question()
    [live] = room.shown(ApprovalAsked)
    assert live.question == (
        "May I run `touch mark` (without a sandbox, with network)?\n\nIt is asked each time: "
        "without a sandbox, a script that it runs can change after your yes."
    )
    assert not live.lasting
    assert not mark.exists()
    assert await room.hear("olga", "!yes") == "Allowed: `terminal`."
    assert await room.reply_to(first) == "Done."
    assert mark.exists()


async def test_where_nobody_can_be_asked_a_trigger_that_is_off_needs_no_word(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    desk = await house.open(agent={"tools": ["deed", "delegate_task"]})
    stage.then(a_call(), Reply(text="I may not."))
    assert await desk.ask("please") == "I may not."
    assert deed.done == []
    await desk.ask("/safety off file-delete")
    stage.then(a_call(), DONE)
    assert await desk.ask("please") == "Done."
    assert len(deed.done) == 1
    task = Reply(tool_calls=(("delegate_task", {"goal": "delete it"}),))
    stage.then(task, a_call(), Reply(text="Deleted."), DONE)
    assert await desk.ask("let someone do it") == "Done."
    assert len(deed.done) == 2


async def test_a_task_may_do_what_its_person_allowed_for_good(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    house.desk_type = Room
    room = await house.open(agent={"tools": ["deed", "delegate_task"], "taint": "off"})
    assert isinstance(room, Room)
    task = Reply(tool_calls=(("delegate_task", {"goal": "delete it"}),))
    stage.then(task, a_call(), Reply(text="I may not."), DONE)
    await room.reply_to(await room.tell("ann", "let someone do it"))
    assert deed.done == []
    stage.then(a_call(), DONE)
    asked = await room.tell("ann", "please")
    await until(lambda: room.questions)
    await room.hear("ann", "!yes session")
    await room.reply_to(asked)
    stage.then(task, a_call(), Reply(text="Deleted."), DONE)
    await room.reply_to(await room.tell("ann", "let someone do it"))
    assert len(deed.done) == 2


async def owned(house: House) -> Room:
    """Where no sandbox works, with an owner."""
    return await at_a_terminal(house, terminal={"sandbox": "off"}, access={"owners": ["desk:olga"]})


@pytest.mark.parametrize("word", ["!yes session {id}", "!yes always {id}"])
async def test_without_a_sandbox_a_yes_covers_no_script_that_changed_since(
    house: House, stage: Stage, word: str
) -> None:
    room = await owned(house)
    work = house.profile.workspace
    work.mkdir(parents=True, exist_ok=True)
    (work / "build.sh").write_text("touch first\n")
    stage.then(a_command("sh build.sh"), DONE)
    first = await room.tell("olga", "build")
    id = await room.question()
    assert f"An owner answers `!yes {id}` or `!no {id}`." in room.questions[0]
    said = await room.hear("olga", word.format(id=id))
    assert said.startswith("Allowed: `terminal`. This once, and it is asked each time: without")
    assert await room.reply_to(first) == "Done."
    assert (work / "first").exists()
    (work / "build.sh").write_text("touch second\n")
    stage.then(a_command("sh build.sh"), DONE)
    again = await room.tell("olga", "again")
    await until(lambda: room.answer_to(again) or len(room.questions) == 2)
    assert room.answer_to(again) is None
    assert await room.hear("olga", f"!no {await room.question(2)}") == "Refused: `terminal`."
    await room.reply_to(again)
    assert not (work / "second").exists()


@needs_sandbox
async def test_in_the_sandbox_a_yes_covers_the_text_and_a_script_needs_none_anyway(
    house: House, stage: Stage
) -> None:
    room = await at_a_terminal(house)
    work = house.profile.workspace
    work.mkdir(parents=True, exist_ok=True)
    (work / "build.sh").write_text("touch first\n")
    both = a_command("rm -f old; sh build.sh")
    stage.then(both, DONE)
    first = await room.tell("ann", "build")
    await room.question()
    await room.hear("ann", "!yes always")
    await room.reply_to(first)
    (work / "build.sh").write_text("touch second\n")
    stage.then(both, a_command("sh build.sh"), DONE)
    assert await room.hear("ann", "again") == "Done."
    assert len(room.questions) == 1
    assert (work / "second").exists()


@needs_sandbox
async def test_what_is_typed_in_pieces_by_one_reply_is_asked_about(
    house: House, stage: Stage
) -> None:
    house.desk_type = Room
    room = await house.open(agent={"tools": ["terminal", "process"]})
    assert isinstance(room, Room)
    doomed = house.profile.workspace / "x"
    stage.then(Reply(tool_calls=(("terminal", {"command": "bash", "background": True}),)), DONE)
    assert await room.hear("ann", "open a shell") == "Done."
    doomed.write_text("")
    id = json.loads(house.words()[-1])["process_id"]

    def typed(text: str) -> tuple[str, dict[str, Any]]:
        return "process", {"action": "write", "process_id": id, "text": text}

    stage.then(Reply(tool_calls=(typed("r"), typed("m x; touch done\n"))), DONE)
    first = await room.tell("ann", "type it")
    await until(lambda: room.answer_to(first) or room.questions)
    [question] = room.questions
    assert question.startswith("May I enter `m x; touch done`?\n\nAfter this, which stands on the")
    assert doomed.exists()
    assert await room.hear("ann", "!yes always") == (
        "Allowed: `process`. This once, and it is asked each time: what it does depends on what "
        "the process is doing."
    )
    assert await room.reply_to(first) == "Done."
    await until((house.profile.workspace / "done").exists)
    assert not doomed.exists()
    stage.then(Reply(tool_calls=(("process", {"action": "kill", "process_id": id}),)), DONE)
    assert await room.hear("ann", "enough") == "Done."
