"""Turns by a direct agent: what it is told, what it may send, and how a turn ends."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from parley.agent.budget import BudgetRefusal
from parley.agent.hands import Asked, Asking, Hands
from parley.agent.person import Soul, UserSettings
from parley.backends.direct import build_thread_key
from parley.protocol import (
    REMOTE_AGENT,
    ApprovalAsked,
    Attachment,
    ChatMessage,
    Failed,
    Final,
    HistoryEntry,
    Request,
    SessionSource,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    Usage,
    Wishes,
)
from parley.storage.contract import LeaseLost
from tests.backends.direct.builders import ALICE, KEY, a_direct_turn, backend_at, direct, run
from tests.backends.proxy.builders import ending
from tests.servers.direct_agent import Capable, DirectAgent, Peer
from tests.servers.ports import free_port
from tests.waiting import until


def replying(*says: tuple[str, dict[str, Any]]) -> Capable:
    """A capable agent that answers every message with these frames, and then ends."""
    script = Capable()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        for type, fields in says:
            await peer.say(type, **fields)
        await peer.answer()

    script.reply = reply
    return script


def text(piece: str) -> tuple[str, dict[str, Any]]:
    return "AGENT_EVENT_TEXT_CHUNK", {"text": piece}


# ── what it is told ──


async def test_a_plain_agent_is_told_the_text_and_nothing_else(tmp_path: Path) -> None:
    person = UserSettings(soul=Soul("Лямбда", "Be concise."))
    async with DirectAgent() as agent, direct(agent, tmp_path, key=KEY) as backend:
        events = await run(backend, a_direct_turn("hello", person=person))
        assert events == [
            TextDelta("he"),
            TextDelta("llo"),
            Final("hello", Usage("direct", "agent", output_tokens=7)),
        ]
        peer = agent.peers[0]
        assert peer.heard == [{"type": "USER_MESSAGE", "text": "hello"}]
        assert peer.thread == ALICE
        assert peer.headers["Authorization"] == f"Bearer {KEY}"
        assert peer.headers["X-Parley-Hops"] == "1"
        await until(lambda: not agent.open)
        assert backend.open_lines == 0
        assert backend.about() == f"the agent at ws://127.0.0.1:{agent.port}"
        assert await backend.health() is None


async def test_waiting_messages_are_one_message_and_steering_is_left_for_later(
    tmp_path: Path,
) -> None:
    async def steer() -> tuple[ChatMessage, ...]:
        raise AssertionError("nothing is taken in")

    progress = [ChatMessage("user", "one"), ChatMessage("user", "two")]
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn(progress=progress, steer=steer))
        assert [each["text"] for each in agent.messages] == ["one\n\ntwo"]


async def test_a_peer_with_instructions_is_told_the_place_and_the_persons_wishes(
    tmp_path: Path,
) -> None:
    source = SessionSource("matrix", "!r", user_id="@alice:example.org", user_name="Alice")
    person = UserSettings(soul=Soul("Лямбда", "Be concise."))
    async with DirectAgent(Capable()) as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn("hi", source=source, person=person))
        await run(backend, a_direct_turn("hi", number=2))
        first, second = agent.messages
    assert first["instructions"] == (
        "You are talking in Matrix with Alice.\n\nThis person calls you Лямбда.\n"
        "They wish, within what you may do:\nBe concise."
    )
    assert first["id"] == "sess-123.1"
    assert "instructions" not in second


async def test_each_chat_is_its_own_thread_and_a_turn_without_one_has_its_session(
    tmp_path: Path,
) -> None:
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn(chat="C1"))
        await run(backend, a_direct_turn(chat="C2"))
        await run(backend, replace(a_direct_turn(), thread=None))
        assert [peer.thread for peer in agent.peers] == [
            ALICE,
            build_thread_key("matrix", "@alice:example.org", "C2"),
            build_thread_key("matrix", "@alice:example.org", "sess-123"),
        ]


def a_request(*messages: ChatMessage, **more: Any) -> Request:
    return Request("req_1", messages, **more)


async def test_what_a_program_tells_goes_along_as_far_as_it_can(tmp_path: Path) -> None:
    told = (ChatMessage("user", "my name is Ada"), ChatMessage("assistant", "Hello Ada"))
    request = a_request(*told, ChatMessage("user", "who am I?"), instructions="Rhyme.", hops=2)
    turn = a_direct_turn("who am I?", request=request)
    known = replace(turn, history=tuple(HistoryEntry(7, message) for message in told))
    turn = replace(known, told=told)
    said = (
        "Rhyme.\n\nWhat was said before in this conversation:\n\nPerson: my name is Ada\n\n"
        "Agent: Hello Ada"
    )
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        await run(backend, turn)
        await run(backend, known)
        texts = [each["text"] for each in agent.messages]
        assert texts == [f"{said}\n\nwho am I?", "Rhyme.\n\nwho am I?"]
        assert agent.peers[0].headers["X-Parley-Hops"] == "3"
    async with DirectAgent(Capable()) as agent, direct(agent, tmp_path) as backend:
        await run(backend, turn)
        assert agent.messages[0]["instructions"] == said
        assert agent.messages[0]["text"] == "who am I?"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"tools": (ToolSpec("look", "", {}),)}, "`tools`"),
        ({"wishes": Wishes(tool_choice="required")}, "`tools`"),
        ({"wishes": Wishes(response_format={"type": "json_object"})}, "`response_format`"),
    ],
)
async def test_what_a_program_wants_and_no_agent_can_be_told_is_refused(
    more: dict[str, Any], what: str, tmp_path: Path
) -> None:
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        request = a_request(ChatMessage("user", "hi"), **more)
        last = ending(await run(backend, a_direct_turn(request=request)))
        assert isinstance(last, Failed)
        assert (last.kind, what in last.sentence) == ("unsupported", True)
        assert not agent.peers


# ── files ──


def files_in(folder: Path) -> tuple[Attachment, ...]:
    photo, voice = folder / "p", folder / "v"
    photo.write_bytes(b"\x89PNG" + bytes(12_000))
    voice.write_bytes(b"OggS")
    return (
        Attachment("photo.png", "image/png", str(photo), 12_004),
        Attachment("voice.ogg", "audio/ogg", str(voice), 4),
        Attachment("gone.txt", "text/plain", str(folder / "gone"), 2_500_000),
        Attachment("far.jpg", "image/jpeg", "https://example.org/far.jpg", 0),
    )


async def test_files_go_to_a_peer_that_takes_them_and_what_cannot_is_named(tmp_path: Path) -> None:
    progress = [ChatMessage("user", "look", attachments=files_in(tmp_path))]
    async with DirectAgent(Capable()) as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn(progress=progress))
        message = agent.messages[0]
    assert message["text"] == (
        "look\n[attached: gone.txt (text/plain, 2.5 MB); it can no longer be read]\n"
        "[attached: far.jpg (image/jpeg), at https://example.org/far.jpg]"
    )
    photo, voice = message["attachments"]
    assert (photo["name"], photo["media_type"], photo["size"]) == ("photo.png", "image/png", 12_004)
    assert base64.b64decode(photo["data"]).startswith(b"\x89PNG")
    assert base64.b64decode(voice["data"]) == b"OggS"


async def test_a_peer_without_files_gets_an_honest_note(tmp_path: Path) -> None:
    progress = [ChatMessage("user", "", attachments=files_in(tmp_path)[:1])]
    for script, size in ((None, 1), (Capable("ids", "instructions"), 2)):
        async with (
            DirectAgent(*filter(None, [script])) as agent,
            direct(agent, tmp_path) as backend,
        ):
            await run(backend, a_direct_turn(progress=progress))
            assert len(agent.peers[0].heard) == size
            assert agent.messages[0]["text"] == (
                "[attached: photo.png (image/png, 12 KB); this agent cannot receive files]"
            )


async def test_files_of_the_agent_are_kept_and_go_out_with_the_reply(tmp_path: Path) -> None:
    sent = base64.b64encode(b"%PDF-1.7 hello").decode()
    named = {"name": "../../etc/passwd", "media_type": "text/plain", "size": 3, "data": sent}
    script = replying(("AGENT_EVENT_FILE", named), text("here"))
    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend))
    assert isinstance(last, Final)
    [file] = last.attachments
    assert (file.name, file.media_type, file.size) == ("passwd", "application/pdf", 14)
    assert Path(file.path).parent == tmp_path / "attachments"
    assert Path(file.path).read_bytes() == b"%PDF-1.7 hello"


async def test_a_file_alone_is_an_answer_and_a_broken_one_is_none(tmp_path: Path) -> None:
    whole = replying(("AGENT_EVENT_FILE", {"name": "a", "data": "aGk="}))
    broken = replying(("AGENT_EVENT_FILE", {"name": "a", "data": "no base64"}))
    async with DirectAgent(whole) as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend))
        assert isinstance(last, Final)
        assert (last.text, len(last.attachments)) == ("", 1)
        agent.script = broken
        last = ending(await run(backend, a_direct_turn(chat="C2")))
        assert isinstance(last, Failed)
        assert "base64" in last.sentence


# ── what happens meanwhile ──


async def test_tools_divide_an_answer_and_what_is_withdrawn_is_gone(tmp_path: Path) -> None:
    tool = {"name": "web_search", "id": "c1"}
    script = replying(
        text("Let me see."),
        ("AGENT_EVENT_TOOL", {**tool, "state": "started"}),
        ("AGENT_EVENT_TOOL", {**tool, "state": "finished", "ok": False}),
        text("It is wr"),
        ("AGENT_EVENT_RESET", {}),
        ("AGENT_EVENT_WORKING", {}),
        text("It is right."),
    )
    call = ToolCall("c1", "web_search")
    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        assert await run(backend) == [
            TextDelta("Let me see."),
            StepTaken((ChatMessage("assistant", "Let me see.", outside=REMOTE_AGENT),)),
            ToolStarted(call),
            ToolFinished(call, ok=False),
            TextDelta("It is wr"),
            TextReset(),
            TextDelta("It is right."),
            Final("It is right."),
        ]


class Asks:
    """A person who says the same to every question, once they may."""

    def __init__(self, refusal: str) -> None:
        self.asked: list[Asking] = []
        self.withdrawn = 0
        self.may_answer = asyncio.Event()
        self._refusal = refusal

    async def __call__(self, asking: Asking) -> Asked:
        self.asked.append(asking)
        outer = self

        class One:
            event = ApprovalAsked(asking.call, f"May I {asking.what}?", id="appr_1")

            async def decided(self) -> str:
                await outer.may_answer.wait()
                return outer._refusal

        return One()

    async def is_open(self, name: str) -> bool:
        return False

    async def withdraw(self) -> None:
        self.withdrawn += 1


def asking_agent(answers: list[Any]) -> Capable:
    script = Capable()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.say("APPROVAL_ASKED", id="q1", question="May I delete all?", tool="rm")
        answers.append(await peer.hear("APPROVAL_ANSWER"))
        await peer.answer("done")

    script.reply = reply
    return script


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_question_of_the_agent_is_the_persons_and_their_word_goes_back(
    allowed: bool, tmp_path: Path
) -> None:
    answers: list[Any] = []
    ask = Asks("" if allowed else "no")
    # The person takes longer than the agent may be silent.
    async with (
        DirectAgent(asking_agent(answers)) as agent,
        direct(agent, tmp_path, timeout_seconds=1.0) as backend,
    ):
        running = asyncio.create_task(run(backend, a_direct_turn(ask=ask, attempt=2)))
        await until(lambda: ask.asked)
        await asyncio.sleep(1.3)
        assert not running.done()
        ask.may_answer.set()
        events = await running
    call = ToolCall("q1", "rm")
    once = "the remote agent wants a word for each call"  # it does not say otherwise
    assert ask.asked == [Asking(call, "1.far.q1", "delete all", once=once)]
    assert events[0] == ApprovalAsked(call, "May I delete all?", id="appr_1")
    assert events[-1] == Final("done")
    assert answers == [{"type": "APPROVAL_ANSWER", "id": "q1", "allowed": allowed}]
    assert ask.withdrawn == 0  # the agent asks again under the same name


async def test_once_the_person_has_spoken_the_agents_silence_counts_again(tmp_path: Path) -> None:
    script, ask = Capable(), Asks("")
    ask.may_answer.set()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.say("APPROVAL_ASKED", id="q1", question="May I?", tool="rm")
        await peer.until_gone()

    script.reply = reply
    async with (
        DirectAgent(script) as agent,
        direct(agent, tmp_path, timeout_seconds=0.1) as backend,
        asyncio.timeout(60),
    ):
        last = ending(await run(backend, a_direct_turn(ask=ask)))
        assert isinstance(last, Failed)
        assert last.cause == "direct: AGENT_TIMEOUT"


async def test_where_nobody_can_be_asked_the_answer_is_no(tmp_path: Path) -> None:
    answers: list[Any] = []
    async with DirectAgent(asking_agent(answers)) as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn(ask=None))
    assert answers[0]["allowed"] is False


async def test_a_plain_agent_begins_anew_so_old_questions_are_withdrawn(tmp_path: Path) -> None:
    ask = Asks("")
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        await run(backend, a_direct_turn(ask=ask, attempt=2))
    assert ask.withdrawn == 1


# ── how it ends ──


Script = Callable[[Peer], Awaitable[None]]


async def test_an_empty_answer_says_what_to_do(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.answer(" \n", tokens_used=3)

    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend))
        assert isinstance(last, Failed)
        assert "`/retry`" in last.sentence
        assert last.usage == Usage("direct", "agent", output_tokens=3)


async def test_an_answer_of_a_megabyte_is_whole(tmp_path: Path) -> None:
    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend, a_direct_turn("é" * 1_000_000)))
        assert isinstance(last, Final)
        assert last.text == "é" * 1_000_000


async def test_a_torn_answer_is_kept_and_marked(tmp_path: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="The half")
        await asyncio.sleep(0.05)
        peer.abort()

    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend))
        assert isinstance(last, Final)
        assert last.text.startswith("The half\n\n(The connection to the agent was lost here")
        assert not last.complete
        assert "was lost" in (await backend.health() or "")
        assert len(agent.messages) == 1  # nobody can say that it was not taken


async def test_an_error_of_the_agent_is_the_turns_and_says_nothing_of_the_connection(
    tmp_path: Path,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="So ")
        await peer.say("ERROR", code="QUOTA", details="No more today.")

    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend))
        assert isinstance(last, Failed)
        assert last.sentence.endswith("No more today.")
        assert last.cause == "direct: QUOTA"
        assert await backend.health() is None


async def test_health_remembers_a_failure_until_an_answer(tmp_path: Path) -> None:
    port = free_port()
    backend = backend_at(f"ws://127.0.0.1:{port}/agent_ws/", tmp_path, key=KEY)
    try:
        last = ending(await run(backend))
        assert isinstance(last, Failed)
        assert last.kind == "unreachable"
        assert await backend.health() == last.sentence
        async with DirectAgent(port=port):
            assert isinstance(ending(await run(backend)), Final)  # at once, without a pause
        assert await backend.health() is None
    finally:
        await backend.close()


async def test_stopping_a_turn_closes_its_connection(tmp_path: Path) -> None:
    script = Capable()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="ha")
        await peer.until_gone()

    script.reply = reply
    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        for number in range(3):
            async with aclosing(backend.run(a_direct_turn(number=number))) as events:
                assert await anext(events) == TextDelta("ha")
                assert agent.open == 1
            await until(lambda: not agent.open)
        assert [peer.close_code for peer in agent.peers] == [1000] * 3
        assert backend.open_lines == 0


async def test_a_gateway_that_ends_stops_nothing_at_the_agent(tmp_path: Path) -> None:
    class Leaving:
        def is_leaving(self) -> bool:
            return True

    script = Capable()

    async def reply(peer: Peer, _: dict[str, Any]) -> None:
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="ha")
        await peer.until_gone()

    script.reply = reply
    async with DirectAgent(script) as agent, direct(agent, tmp_path) as backend:
        turn = replace(a_direct_turn(), hands=cast("Hands", Leaving()))
        async with aclosing(backend.run(turn)) as events:
            await anext(events)
        await until(lambda: not agent.open)
        assert agent.peers[0].close_code == 1001


async def test_a_turn_that_is_no_longer_wanted_says_nothing(tmp_path: Path) -> None:
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 1:
            raise LeaseLost

    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        with pytest.raises(LeaseLost):
            await run(backend, a_direct_turn(check=check))


async def test_a_budget_that_does_not_reach_is_asked_first(tmp_path: Path) -> None:
    class Empty:
        async def reserve(self, provider: str, model: str, **_: Any) -> BudgetRefusal | None:
            return BudgetRefusal(f"Nothing is left for {provider} {model}.")

    async with DirectAgent() as agent, direct(agent, tmp_path) as backend:
        last = ending(await run(backend, a_direct_turn(purse=Empty())))
        assert last == Failed("Nothing is left for direct agent.", cause="budget", kind="budget")
        assert not agent.peers
