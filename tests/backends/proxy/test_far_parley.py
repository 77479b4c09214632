"""Where the far end is Parley as well: steps, tools, questions and files travel through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from parley.agent.hands import Asking
from parley.protocol import (
    REMOTE_AGENT,
    ApprovalAsked,
    Attachment,
    ChatMessage,
    Final,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from parley.storage.contract import LeaseLost
from tests.backends.proxy.builders import KEY, a_turn, all_of, ending, proxied, run, served
from tests.servers.raw_sse import Answer, RawServer, Seen, as_json, chunk_of, said, stream
from tests.waiting import until

CALL = ToolCall("c1", "delete", {"path": "x"})
ASKED = {"id": "a1", "question": "May I?", "call": CALL.to_dict()}


def happening(event: str, /, **fields: object) -> bytes:
    return chunk_of(fields, event=f"parley.{event}")


async def test_steps_and_tools_are_told_as_they_happen() -> None:
    started = happening(
        "tool", phase="started", call_id="c1", name="delete", arguments={"path": "x"}
    )
    finished = happening("tool", phase="finished", call_id="c1", name="delete", ok=False)
    answer = Answer(
        [
            said(content="I try."),
            happening("step"),
            started,
            finished,
            happening("step"),
            said(content="Oops"),
            happening("reset"),
            *stream("It failed.").pieces,
        ]
    )
    async with proxied(answer) as (backend, _):
        events = await run(backend)
        result = await backend.answer(a_turn("do it"))
    assert events == [
        TextDelta("I try."),
        StepTaken((ChatMessage("assistant", "I try.", outside=REMOTE_AGENT),)),
        ToolStarted(CALL),
        ToolFinished(CALL, ok=False),
        TextDelta("Oops"),
        TextReset(),
        TextDelta("It failed."),
        Final("It failed."),
    ]
    assert result.tools == ["delete"]
    assert [message["content"] for message in result.messages] == ["do it", "I try.", "It failed."]


# ── questions ──


class Question:
    """A question to a person, who answers when the test does."""

    def __init__(self, asking: Asking) -> None:
        self.event: ApprovalAsked | None = ApprovalAsked(asking.call, asking.what, id="here-1")
        self.answered = asyncio.Event()
        self.allowed = False
        self.error: Exception | None = None
        self.was_left = False

    async def decided(self) -> str:
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.was_left = True
            raise
        if self.error is not None:
            raise self.error
        return "" if self.allowed else "No."


class Person:
    """Is asked, and notes what was taken back."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.names: list[str] = []
        self.withdrawn = 0

    async def __call__(self, asking: Asking) -> Question:
        self.names.append(asking.name)
        self.asked.append(Question(asking))
        return self.asked[-1]

    async def is_open(self, name: str) -> bool:
        return False

    async def withdraw(self) -> None:
        self.withdrawn += 1


def asking(decided: asyncio.Event, *more: bytes) -> Callable[[Seen], Answer]:
    """A far end that goes on when it has its decision."""

    def script(seen: Seen) -> Answer:
        if seen.path.endswith("/approval"):
            decided.set()
            return as_json({})
        first = [said(role="assistant"), happening("approval", **ASKED), *more]
        return Answer([*first, decided, *stream("Done.").pieces])

    return script


def decisions(far: RawServer) -> list[tuple[str, dict[str, Any]]]:
    return [(seen.path, seen.json) for seen in far.seen if seen.path.endswith("/approval")]


@pytest.mark.parametrize(("allowed", "word"), [(True, "approve"), (False, "deny")])
async def test_a_question_is_put_here_and_the_decision_sent_back(allowed: bool, word: str) -> None:
    person = Person()
    async with proxied(asking(asyncio.Event()), key=KEY) as (backend, far):
        events: list[TurnEvent] = []
        async with aclosing(backend.run(a_turn(ask=person))) as turn:
            async for event in turn:
                events.append(event)
                if isinstance(event, ApprovalAsked):
                    person.asked[0].allowed = allowed
                    person.asked[0].answered.set()
    assert events == [
        ApprovalAsked(CALL, "let the remote agent use `delete`\n\nIt asks: `May I?`", id="here-1"),
        TextDelta("Done."),
        Final("Done."),
    ]
    path = "/v1/runs/chatcmpl-1/approval"
    assert decisions(far) == [(path, {"approval_id": "a1", "decision": word})]
    assert far.seen[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_turn_that_begins_again_takes_back_what_it_had_asked(attempt: int) -> None:
    person = Person()
    async with proxied(stream("Done.")) as (backend, _):
        await run(backend, a_turn(ask=person, attempt=attempt))
    assert person.withdrawn == attempt - 1


async def test_where_nobody_can_be_asked_the_call_is_refused_at_once() -> None:
    async with proxied(asking(asyncio.Event())) as (backend, far):
        events = await run(backend, a_turn())
    assert all_of(events, ApprovalAsked) == []
    assert ending(events) == Final("Done.")
    assert [body["decision"] for _, body in decisions(far)] == ["deny"]


async def test_a_question_that_lost_its_turn_is_refused() -> None:
    person = Person()
    async with proxied(asking(asyncio.Event())) as (backend, far):
        running = asyncio.create_task(run(backend, a_turn(ask=person)))
        await until(lambda: person.asked)
        person.asked[0].error = LeaseLost("gone")
        person.asked[0].answered.set()
        assert ending(await running) == Final("Done.")
    assert [body["decision"] for _, body in decisions(far)] == ["deny"]


async def test_the_answer_is_read_on_while_a_question_is_open() -> None:
    person, never = Person(), asyncio.Event()
    script = asking(never, said(content="Meanwhile."))
    async with proxied(script) as (backend, far):
        turn = backend.run(a_turn(ask=person))
        assert isinstance(await anext(turn), ApprovalAsked)
        assert await anext(turn) == TextDelta("Meanwhile.")
        await turn.aclose()
        await until(lambda: far.left == 1)
    assert person.asked[0].was_left
    assert decisions(far) == []


async def test_a_far_end_that_goes_on_by_itself_leaves_no_question_open() -> None:
    person = Person()
    end = b"data: [DONE]\n\n"  # in one piece: the question has hardly been put when it comes
    whole = said(content="Too late.") + happening("approval", **ASKED) + end
    async with proxied(Answer([whole])) as (backend, _):
        assert ending(await run(backend, a_turn(ask=person))) == Final("Too late.")
    assert person.asked[0].was_left


async def test_a_decision_that_the_far_end_does_not_take_harms_nothing() -> None:
    gate = asyncio.Event()

    def script(seen: Seen) -> Answer:
        if seen.path.endswith("/approval"):
            gate.set()
            return Answer(status=404)
        return Answer(
            [said(role="a"), happening("approval", **ASKED), gate, *stream("On I go.").pieces]
        )

    assert ending(await served(script)) == Final("On I go.")


@pytest.mark.parametrize("name", [None, "", "..", "../../admin?x=", "a/b", "a b", 7, "x" * 300])
async def test_a_question_of_a_run_without_a_proper_name_is_answered_nowhere(name: object) -> None:
    def script(seen: Seen) -> Answer:
        gate = asyncio.Event()  # time enough for a decision to come
        asyncio.get_running_loop().call_later(0.05, gate.set)
        named = chunk_of({"id": name, "choices": [{"delta": {"content": "ok"}}]})
        return Answer([named, happening("approval", **ASKED), gate, b"data: [DONE]\n\n"])

    async with proxied(script) as (backend, far):
        assert ending(await run(backend)) == Final("ok")
    assert len(far.seen) == 1


async def test_a_flood_of_questions_is_refused_not_put() -> None:
    person = Person()
    flood = [happening("approval", **{**ASKED, "id": f"a{n}"}) for n in range(50)]
    answer = Answer([said(role="a"), *flood], ending="hold")

    def script(seen: Seen) -> Answer:
        return as_json({}) if seen.path.endswith("/approval") else answer

    async with proxied(script) as (backend, far):
        running = asyncio.create_task(run(backend, a_turn(ask=person)))
        await until(lambda: len(decisions(far)) == 18)
        assert len(person.asked) == len(set(person.names)) == 32
        running.cancel()
        await asyncio.wait([running])


# ── files ──


def capable(*features: str, server: str = "parley") -> Callable[[Seen], Answer]:
    def script(seen: Seen) -> Answer:
        if seen.path.endswith("/capabilities"):
            return as_json(
                {"object": "parley.capabilities", "server": server, "features": features}
            )
        return stream("ok")

    return script


@pytest.fixture
def letter(tmp_path: Path) -> ChatMessage:
    file = tmp_path / "b.txt"
    file.write_bytes(b"dear")
    return ChatMessage(
        "user", "read", attachments=(Attachment("b.txt", "text/plain", str(file), 4),)
    )


async def test_files_go_along_to_parley_which_is_asked_once(letter: ChatMessage) -> None:
    async with proxied(capable("events", "attachments"), key=KEY) as (backend, far):
        for _ in range(2):
            await run(backend, a_turn(progress=[letter]))
    assert [seen.path for seen in far.seen] == [
        "/v1/capabilities",
        "/v1/chat/completions",
        "/v1/chat/completions",
    ]
    assert far.seen[0].headers["authorization"] == f"Bearer {KEY}"
    [message] = far.asked[1].json["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "file"]


@pytest.mark.parametrize(
    "script",
    [
        capable("events"),
        capable("attachments", server="other"),
        lambda seen: Answer(status=404) if "cap" in seen.path else stream("ok"),
        lambda seen: Answer([b"<html>"]) if "cap" in seen.path else stream("ok"),
        lambda seen: None if "cap" in seen.path else stream("ok"),
    ],
)
async def test_any_other_far_end_gets_the_names_of_files(
    letter: ChatMessage, script: Callable[[Seen], Answer | None]
) -> None:
    async with proxied(script) as (backend, far):
        assert ending(await run(backend, a_turn(progress=[letter]))) == Final("ok")
    [message] = far.asked[0].json["messages"]
    assert message["content"].startswith("read\n[file: b.txt, text/plain, 4 bytes; it was not sent")


async def test_a_far_end_that_cannot_say_yet_is_asked_again(letter: ChatMessage) -> None:
    busy = [Answer(status=503)]
    able = capable("attachments")

    def script(seen: Seen) -> Answer:
        return busy.pop() if busy and "cap" in seen.path else able(seen)

    async with proxied(script) as (backend, far):
        for _ in range(2):
            await run(backend, a_turn(progress=[letter]))
    kinds = [type(seen.json["messages"][0]["content"]) for seen in far.asked]
    assert kinds == [str, list]


async def test_files_of_earlier_messages_are_named_unless_the_far_end_keeps_them(
    letter: ChatMessage,
) -> None:
    for script, text in (
        (capable("attachments"), "read"),
        (capable("events"), "read\n[file: b.txt, text/plain, 4 bytes]"),
    ):
        async with proxied(script) as (backend, far):
            await run(backend, a_turn(history=[letter, ChatMessage("assistant", "done")]))
        assert far.asked[-1].json["messages"][0] == {"role": "user", "content": text}


async def test_nobody_is_asked_what_they_can_do_for_a_message_without_files() -> None:
    async with proxied(capable("attachments")) as (backend, far):
        await run(backend)
    assert len(far.seen) == 1
