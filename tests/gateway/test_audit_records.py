"""What turns and people do, in the audit log: approvals, grants and tool calls; no secret."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from parley import audit
from parley.agent.question_text import describe_text
from parley.agent.tools import TOOLS, Wanted
from parley.audit.chain import AuditRecord
from parley.audit.verify import verify_log
from parley.config.settings import AuditSettings
from parley.protocol import ApprovalAsked
from tests.audit.logs import records_of
from tests.gateway.asking_tool import AskingTool
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.gateway.room import a_deed
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

_CANARY = "canary-52d81"
_DONE = Reply(text="Done.")


class AskingDesk(Desk):
    """A person sits there and can be asked."""

    can_ask = True
    shows_questions = True


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    tool = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", tool.tool)
    return tool


@pytest.fixture
async def desk(house: House, deed: AskingTool) -> Desk:
    house.desk_type = AskingDesk
    return await house.open(agent={"tools": ["deed"]})


async def records(house: House, *, prefix: str = "") -> list[AuditRecord]:
    await asyncio.to_thread(audit.flush)
    folder = audit.audit_folder(house.profile)
    assert verify_log(folder).ok
    return [record for record in records_of(folder) if record.kind.startswith(prefix)]


async def answered(desk: Desk, stage: Stage, answer: str, **arguments: object) -> None:
    """One call that is asked about, and the person's word on it."""
    stage.then(Reply(tool_calls=(("deed", arguments),)), _DONE)
    before = len(desk.shown(ApprovalAsked))
    await desk.say("please")
    await until(lambda: len(desk.shown(ApprovalAsked)) > before)
    sent = len(desk.sent)
    await desk.say(answer)
    await until(lambda: len(desk.sent) >= sent + 2)


async def test_an_approval_is_recorded_from_the_question_to_the_call(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    await answered(desk, stage, "/approve", word="a", times=3)
    found = await records(house)
    assert [record.kind for record in found] == [
        "approval.asked",
        "approval.allowed",
        "approval.used",
        "tool.called",
    ]
    asked, allowed, used, called = found
    assert "`deed`" in asked.data["what"]
    assert '"times": 3' in asked.data["what"]
    assert {record.fields["who"] for record in found} == {"desk:ann"}
    assert {record.fields["from"] for record in found} == {"desk"}
    assert len({record.data["call"] for record in found}) == 1
    assert len({record.data["digest"] for record in (asked, allowed, used)}) == 1
    assert called.data["arguments"] == {"word": "a", "times": 3}
    assert allowed.data["scope"] == "once"


async def test_a_refusal_is_recorded_and_no_call(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    await answered(desk, stage, "/deny", word="a")
    assert [record.kind for record in await records(house)] == ["approval.asked", "approval.denied"]


async def test_grants_are_recorded_when_given_and_when_taken_back(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    await answered(desk, stage, "/approve always", word="a")
    assert await desk.ask("/grants revoke 1") == "Taken back."
    assert await desk.ask("/grants revoke 1") == "There is none of that number."
    given, revoked = await records(house, prefix="grant.")
    assert (given.kind, given.data["scope"]) == ("grant.given", "always")
    assert (revoked.kind, revoked.fields["who"]) == ("grant.revoked", "desk:ann")


async def test_a_question_that_nobody_answers_is_recorded_as_expired(
    house: House, stage: Stage, deed: AskingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.gateway.serving._MINUTE", 0.01)
    house.desk_type = AskingDesk
    desk = await house.open(agent={"tools": ["deed"], "answer_minutes": 1})
    stage.then(Reply(tool_calls=(("deed", {"word": "a"}),)), _DONE)
    await desk.ask("please")
    kinds = [record.kind for record in await records(house)]
    assert kinds == ["approval.asked", "approval.expired"]


async def test_the_record_is_on_the_disk_before_the_call_is_run(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    seen: list[str] = []
    folder = audit.audit_folder(house.profile)

    class Looking(list[dict[str, object]]):
        def append(self, item: dict[str, object]) -> None:
            seen.extend(record.kind for record in records_of(folder))

    deed.done = Looking()
    await answered(desk, stage, "/approve", word="a")
    assert seen[:3] == ["approval.asked", "approval.allowed", "approval.used"]


async def test_where_the_settings_say_so_a_call_that_cannot_be_recorded_is_not_run(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    audit.audit_folder(house.profile).write_text("in the way")
    audit.configure(house.profile.home, AuditSettings(on_failure="refuse"))
    await answered(desk, stage, "/approve", word="a")
    assert deed.done == []
    assert "cannot be recorded in the audit log" in str(house.words())


async def test_without_a_log_a_turn_goes_on(
    house: House, desk: Desk, stage: Stage, deed: AskingTool
) -> None:
    audit.audit_folder(house.profile).write_text("in the way")
    await answered(desk, stage, "/approve", word="a")
    assert deed.done == [{"word": "a", "times": 1}]
    assert audit.fault_of(house.profile) is not None


async def test_calls_that_change_something_are_recorded_and_those_that_read_are_not(
    house: House, stage: Stage
) -> None:
    tools = ["read_file", "write_file", "schedule", "memory", "now", "todo", "session_search"]
    desk = await house.open(agent={"tools": tools, "taint": "off"})
    secret_text = f"private words {_CANARY}"
    stage.then(
        Reply(tool_calls=(("write_file", {"path": "a.txt", "content": secret_text}),)),
        Reply(tool_calls=(("read_file", {"path": "a.txt"}),)),
        Reply(tool_calls=(("now", {}), ("session_search", {"query": "hello"}))),
        Reply(tool_calls=(("schedule", {"action": "list"}),)),
        Reply(tool_calls=(("schedule", {"action": "add", "text": secret_text, "at": "+2h"}),)),
        Reply(tool_calls=(("memory", {"action": "add", "text": secret_text}),)),
        Reply(tool_calls=(("memory", {"action": "search", "text": "hello"}),)),
        _DONE,
    )
    await desk.ask("please")
    called = await records(house, prefix="tool.")
    assert [record.data["tool"] for record in called] == ["write_file", "schedule", "memory"]
    assert called[0].data["arguments"]["path"] == "a.txt"
    assert called[0].data["arguments"]["content"]["characters"] == len(secret_text)
    assert _CANARY not in log_text(audit.audit_folder(house.profile))


async def test_no_secret_is_in_the_log_wherever_it_was_planted(
    house: House, stage: Stage, deed: AskingTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_SERVICE_API_KEY", f"{_CANARY}-environment")
    house.profile.env_file.write_text(f"MAIL_PASSWORD={_CANARY}-dotenv\n")
    house.desk_type = AskingDesk
    desk = await house.open(agent={"tools": ["deed", "memory", "send_message"]})
    planted = (
        f"use {_CANARY}-environment now",
        f"log in with {_CANARY}-dotenv",
        f"curl -H 'Authorization: Bearer {_CANARY}-bearer' http://a/",
        f"curl https://user:{_CANARY}-url@example.org/?token={_CANARY}-query",
        f"export API_KEY={_CANARY}-named; sk-{_CANARY}shape",
        json.dumps({"password": f"{_CANARY}-json"}),
    )
    for text in planted:
        await answered(desk, stage, "/approve session", word=text)
    stage.then(Reply(tool_calls=(("send_message", {"text": f"key={_CANARY}-sent"}),)), _DONE)
    await desk.ask("send it")
    assert len(await records(house, prefix="tool.")) == len(planted) + 1
    assert len(await records(house, prefix="grant.")) == len(planted)
    text = log_text(audit.audit_folder(house.profile))
    assert _CANARY not in text
    assert text.count("[redacted]") >= 3 * len(planted)


async def test_a_secret_is_found_where_a_question_breaks_its_line(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"{_CANARY}-{'k' * 40}"
    house.profile.env_file.write_text(f"MAIL_PASSWORD={secret}\n")
    long = describe_text("run", f"curl https://example.org/{'x' * 20} -d {secret} && rm old\n")
    assert secret not in long, "the line is broken within it"
    a_deed(monkeypatch, Wanted(long))
    house.desk_type = AskingDesk
    desk = await house.open(agent={"tools": ["deed"]})
    await answered(desk, stage, "/approve", word="a")
    text = log_text(audit.audit_folder(house.profile))
    assert _CANARY not in text
    assert "[redacted]" in text


async def test_what_is_sent_after_a_question_is_in_the_log_as_a_digest(
    house: House, stage: Stage
) -> None:
    house.desk_type = AskingDesk
    desk = await house.open(agent={"tools": ["terminal", "send_message"]})
    send = ("send_message", {"text": f"Ann has {_CANARY}."})
    stage.then(Reply(tool_calls=(("terminal", {"command": "echo x"}),)))
    stage.then(Reply(tool_calls=(send,)), _DONE)
    await desk.say("please")
    await until(lambda: desk.shown(ApprovalAsked))
    await desk.say("/approve")
    await until(lambda: "Done." in desk.texts() or desk.sent)
    await records(house)
    text = log_text(audit.audit_folder(house.profile))
    assert _CANARY not in text
    assert '"sha256"' in text


def log_text(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir())
