"""The plain client against an agent on loopback: answers, addresses, and all that can go wrong."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from parley.backends.direct import (
    AgentSessionClient,
    AgentSessionConfig,
    MessageChunk,
    MessageResponse,
    PlatformError,
)
from parley.backends.direct.dial import thread_url
from parley.config.errors import ConfigError
from tests.backends.direct.builders import ALICE, KEY
from tests.servers.direct_agent import DirectAgent, Peer
from tests.servers.ports import free_port
from tests.waiting import until


def client_of(agent: DirectAgent, **config: Any) -> AgentSessionClient:
    return AgentSessionClient(AgentSessionConfig(agent.url, **{"timeout_seconds": 5.0, **config}))


async def answer(script: Callable[[Peer], Awaitable[None]], **config: Any) -> MessageResponse:
    async with DirectAgent(script) as agent:
        response = await client_of(agent, **config).send_message(thread_key=ALICE, text="hi")
        await until(lambda: not agent.open)
        return response


async def fault(script: Callable[[Peer], Awaitable[None]], **config: Any) -> PlatformError:
    """That it failed with one clear sentence, and left no connection open."""
    async with DirectAgent(script) as agent:
        error = await fault_at(client_of(agent, **config))
        await until(lambda: not agent.open)
        return error


async def fault_at(client: AgentSessionClient) -> PlatformError:
    with pytest.raises(PlatformError) as caught:
        await client.send_message(thread_key=ALICE, text="hi")
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith((".", "…"))
    assert KEY not in repr(caught.value) + str(caught.value.details)
    return caught.value


# ── answers ──


async def test_an_answer_comes_in_pieces_and_says_what_it_took() -> None:
    async with DirectAgent() as agent:
        stream = client_of(agent).stream_message(thread_key=ALICE, text="hello")
        chunks = [chunk async for chunk in stream]
        assert chunks == [
            MessageChunk(message_id=ALICE, delta="he", finished=False, tokens_used=0),
            MessageChunk(message_id=ALICE, delta="llo", finished=False, tokens_used=0),
            MessageChunk(message_id=ALICE, delta="", finished=True, tokens_used=7),
        ]
        assert agent.peers[0].thread == ALICE
        assert agent.messages == [{"type": "USER_MESSAGE", "text": "hello"}]


async def test_a_whole_answer_is_collected_and_nothing_is_left_open() -> None:
    left: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: left.append(said["message"]))
    async with DirectAgent() as agent:
        client = client_of(agent)
        answers = [await client.send_message(thread_key=ALICE, text="hi") for _ in "12"]
        assert answers == [MessageResponse(ALICE, "hi", tokens_used=7, finished=True)] * 2
        assert len(agent.peers) == 2
        await until(lambda: not agent.open)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del client
            gc.collect()
        assert left == []


async def test_messages_side_by_side_share_one_session() -> None:
    everyone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        message = await peer.hear()
        if len(agent.peers) == 20:
            everyone.set()
        await everyone.wait()
        await peer.answer(message["text"])

    async with DirectAgent(script) as agent:
        client = client_of(agent)
        asked = (client.send_message(thread_key=ALICE, text=str(n)) for n in range(20))
        answers = await asyncio.gather(*asked)
    assert [each.response for each in answers] == [str(n) for n in range(20)]


async def test_a_peer_that_knows_more_is_spoken_to_plainly() -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS", capabilities=["ids", "callbacks", "what-comes-later"], more=1)
        assert await peer.hear() == {"type": "USER_MESSAGE", "text": "hi"}
        await peer.say("AGENT_EVENT_WORKING")
        await peer.answer("fine")

    assert (await answer(script)).response == "fine"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((), ""),
        (("", ""), ""),
        (("x" * 1_000_000, "é" * 100_000), "x" * 1_000_000 + "é" * 100_000),
        (("a\ud83d", "\ude00b"), "a😀b"),
        (("a\ud83d",), "a\ufffd"),
        (("a\udc00b",), "a\ufffdb"),
    ],
    ids=["nothing", "blank", "a megabyte", "half a letter each", "half a letter", "stray half"],
)
async def test_pieces_make_the_text_however_they_are_cut(
    pieces: tuple[str, ...], text: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.answer(*pieces)

    assert await answer(script) == MessageResponse(ALICE, text, 0, finished=True)


async def test_a_key_goes_along_and_a_wrong_one_is_named() -> None:
    async with DirectAgent(key=KEY) as agent:
        response = await client_of(agent, key=KEY).send_message(thread_key=ALICE, text="hi")
        assert response.response == "hi"
        missing, wrong = await fault_at(client_of(agent)), await fault_at(client_of(agent, key="x"))
    assert (missing.code, wrong.code) == ("AGENT_REFUSED", "AGENT_REFUSED")
    assert "put its key into AGENT_WS_KEY" in str(missing)
    assert "check the key in AGENT_WS_KEY" in str(wrong)
    assert KEY not in repr(AgentSessionConfig("ws://h/", key=KEY))


async def test_a_key_that_is_none_never_leaves() -> None:
    async with DirectAgent(key=KEY) as agent:
        error = await fault_at(client_of(agent, key=f"{KEY}\r\nX-Evil: 1"))
        assert error.code == "AGENT_REFUSED"
        assert not agent.peers


# ── addresses ──


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("ws://h:1/agent_ws/", "http://h:1/agent_ws/?thread_id=2%3Aa%26"),
        ("wss://h", "https://h/?thread_id=2%3Aa%26"),
        ("https://h/a", "https://h/a?thread_id=2%3Aa%26"),
        ("ws://h/?a=1&a=2&b=&c", "http://h/?a=1&a=2&b=&c&thread_id=2%3Aa%26"),
        ("ws://h/?thread_id=old&x=%2F+&thread%5Fid=o", "http://h/?x=%2F+&thread_id=2%3Aa%26"),
    ],
)
def test_the_thread_joins_what_the_address_has(base: str, url: str) -> None:
    assert thread_url(base, "2:a&") == url


async def test_a_thread_arrives_as_it_is_named() -> None:
    name = "1:/2:& 3:%😀 +?#"
    async with DirectAgent() as agent:
        config = AgentSessionConfig(f"{agent.url}?a=1&a=&thread_id=x".replace("ws:", "http:"))
        await AgentSessionClient(config).send_message(thread_key=name, text="hi")
        assert agent.peers[0].query == [("a", "1"), ("a", ""), ("thread_id", name)]


@pytest.mark.parametrize("url", ["", "host:1", "ftp://h/", "ws://u:p@h/", "ws://h/#x", "ws:///x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"direct\.url"):
        AgentSessionClient(AgentSessionConfig(url))


# ── what goes wrong ──


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ('{"type": "AGENT_EVENT_END"}', "did not begin with STATUS"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "no object"),
        ("{}", "type that is not known"),
        ('{"type": "SECRET-PLAN"}', "type that is not known"),
        ('{"type": ["STATUS"]}', "type that is not known"),
        ('{"type": "STATUS", "capabilities": "ids"}', "`capabilities`"),
        ('{"type": "STATUS", "capabilities": [1]}', "`capabilities`"),
        ('{"type": "STATUS", "pending": -1}', "`pending`"),
    ],
)
async def test_what_is_no_status_ends_it_before_anything_is_said(frame: str, what: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.socket.send_str(frame)
        await peer.until_gone()
        assert not peer.heard

    error = await fault(script)
    assert error.code == "AGENT_PROTOCOL_ERROR"
    assert what in str(error)
    assert "SECRET-PLAN" not in str(error)


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "null",
        '{"type": "STATUS"}',
        '{"type": "AGENT_EVENT_NEW"}',
        '{"type": "AGENT_EVENT_TEXT_CHUNK"}',
        '{"type": "AGENT_EVENT_TEXT_CHUNK", "text": 1}',
        '{"type": "AGENT_EVENT_TEXT_CHUNK", "text": null}',
        '{"type": "AGENT_EVENT_END", "tokens_used": "7"}',
        '{"type": "AGENT_EVENT_END", "tokens_used": 1.5}',
        '{"type": "AGENT_EVENT_END", "tokens_used": true}',
        '{"type": "AGENT_EVENT_END", "tokens_used": -1}',
        '{"type": "AGENT_EVENT_END", "tokens_used": 1' + "0" * 30 + "}",
        '{"type": "CALLBACK", "id": "1", "text": "x"}',
        '{"type": "APPROVAL_ASKED", "id": "1", "question": "x", "tool": "y"}',
    ],
)
async def test_what_belongs_to_no_answer_ends_it(frame: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.socket.send_str(frame)
        await peer.until_gone()

    assert (await fault(script)).code == "AGENT_PROTOCOL_ERROR"


async def test_binary_and_endless_answers_end_it() -> None:
    async def binary(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.socket.send_bytes(b'{"type": "AGENT_EVENT_END"}')
        await peer.until_gone()

    async def endless(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        while True:
            await peer.say("AGENT_EVENT_TEXT_CHUNK", text="x" * 500_000)

    async def huge(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="x" * (33 * 1024 * 1024))
        await peer.until_gone()

    for script, what in ((binary, "binary"), (endless, "more than"), (huge, "too large")):
        error = await fault(script)
        assert error.code == "AGENT_PROTOCOL_ERROR"
        assert what in str(error)


@pytest.mark.parametrize(
    ("code", "named", "what"),
    [
        (4400, "AGENT_REFUSED", "does not take this conversation's name"),
        (4401, "AGENT_REFUSED", "AGENT_WS_KEY"),
        (1008, "AGENT_REFUSED", "AGENT_WS_KEY"),
        (4429, "AGENT_BUSY", "no more messages just now"),
        (1013, "AGENT_BUSY", "no more messages just now"),
        (4002, "AGENT_PROTOCOL_ERROR", "did not understand"),
        (1001, "AGENT_CLOSED", "is going down"),
        (1009, "AGENT_CLOSED", "as large as this"),
        (1011, "AGENT_CLOSED", "broke down"),
        (4999, "AGENT_CLOSED", "(4999)"),
        (1000, "AGENT_CLOSED", "before its answer was complete"),
        (None, "AGENT_CLOSED", "was lost"),
    ],
)
@pytest.mark.parametrize("when", ["at first", "in the midst"])
async def test_an_early_close_says_what_its_code_means(
    code: int | None, named: str, what: str, when: str
) -> None:
    async def script(peer: Peer) -> None:
        if when == "in the midst":
            await peer.say("STATUS")
            await peer.hear()
            await peer.say("AGENT_EVENT_TEXT_CHUNK", text="ha")
        if code is None:
            peer.abort()
        else:
            await peer.socket.close(code=code, message=b"secret reason")

    error = await fault(script)
    assert (error.code, what in str(error)) == (named, True), str(error)
    assert "secret" not in str(error)


async def test_an_error_keeps_its_code_and_its_details_are_cleaned() -> None:
    def said(**fields: Any) -> Callable[[Peer], Awaitable[None]]:
        async def script(peer: Peer) -> None:
            await peer.say("STATUS")
            await peer.hear()
            await peer.say("ERROR", **fields)
            await peer.until_gone()

        return script

    error = await fault(said(code="QUOTA", details="No more today."), key=KEY)
    assert (error.code, error.details) == ("QUOTA", "No more today")
    assert str(error).endswith("could not answer: No more today.")

    error = await fault(
        said(code="X", details=f"line\nbreak \u202e \x1b[31m {KEY} {'y' * 9000}"), key=KEY
    )
    assert error.details is not None
    assert len(error.details) <= 300
    assert "\u202e" not in error.details
    assert "\x1b" not in error.details

    error = await fault(said(code={"no": "code"}, details={"password": "hunter2 or so"}))
    assert error.code == "AGENT_ERROR"
    assert "hunter2" not in str(error)

    error = await fault(said())
    assert (error.code, error.details) == ("AGENT_ERROR", None)
    assert "gave no reason" in str(error)


async def test_a_graceful_end_is_told_as_one() -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.say("GRACEFUL_DISCONNECT")

    assert (await fault(script)).code == "GRACEFUL_DISCONNECT"


@pytest.mark.parametrize(
    ("status", "what"),
    [(401, "AGENT_WS_KEY"), (403, "AGENT_WS_KEY"), (404, "direct.url"), (503, "try again")],
)
async def test_a_refused_handshake_says_what_to_do(status: int, what: str) -> None:
    async with DirectAgent() as agent:
        agent.refuse = status
        error = await fault_at(client_of(agent))
    assert error.code == "AGENT_REFUSED"
    assert what in str(error)


async def test_where_nobody_is_says_so() -> None:
    for url in (f"ws://127.0.0.1:{free_port()}/", "ws://nowhere.invalid/agent_ws/"):
        error = await fault_at(AgentSessionClient(AgentSessionConfig(url)))
        assert error.code == "AGENT_UNREACHABLE"
        assert "direct.url" in str(error)


async def test_what_speaks_no_http_is_no_agent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await fault_at(AgentSessionClient(AgentSessionConfig(f"ws://127.0.0.1:{port}/")))
    assert error.code == "AGENT_PROTOCOL_ERROR"


# ── time ──


@pytest.mark.parametrize("stage", ["handshake", "status", "first piece", "next piece"])
async def test_silence_ends_it_at_every_stage(stage: str) -> None:
    async def script(peer: Peer) -> None:
        if stage != "status":
            await peer.say("STATUS")
        if stage == "next piece":
            await peer.hear()
            await peer.say("AGENT_EVENT_TEXT_CHUNK", text="ha")
        await peer.until_gone()

    if stage != "handshake":
        error = await fault(script, timeout_seconds=0.1)
    else:
        released = asyncio.Event()

        async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await released.wait()
            writer.close()

        async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            config = AgentSessionConfig(f"ws://127.0.0.1:{port}/", timeout_seconds=0.1)
            error = await fault_at(AgentSessionClient(config))
            released.set()
    assert error.code == "AGENT_TIMEOUT"
    assert "said nothing for 0.1 s" in str(error)


async def test_each_piece_begins_the_silence_anew_and_pings_do_not() -> None:
    async def steady(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        for _ in range(6):
            await asyncio.sleep(0.1)
            await peer.say("AGENT_EVENT_TEXT_CHUNK", text="x")
        await peer.answer()

    async def pinging(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        while not peer.socket.closed:
            await peer.socket.ping()
            await asyncio.sleep(0.02)

    assert (await answer(steady, timeout_seconds=0.4)).response == "xxxxxx"
    assert (await fault(pinging, timeout_seconds=0.3)).code == "AGENT_TIMEOUT"


async def test_a_dead_peer_is_noticed_by_the_heartbeat_where_any_silence_is_fine() -> None:
    over = asyncio.Event()

    async def deaf(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await over.wait()  # it reads no more, and so answers no ping

    async def alive(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        waiting = asyncio.ensure_future(peer.until_gone())  # answers pings
        await asyncio.sleep(0.5)
        await peer.answer("late")
        await waiting

    config = {"timeout_seconds": 0, "heartbeat_seconds": 0.1}
    async with DirectAgent(deaf) as agent:
        error = await fault_at(client_of(agent, **config))
        over.set()
        await until(lambda: not agent.open)
    assert error.code == "AGENT_CLOSED"
    assert "no longer answers" in str(error)
    assert (await answer(alive, **config)).response == "late"


# ── cancelling ──


async def test_closing_the_stream_closes_the_socket_at_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.say("STATUS")
        await peer.hear()
        await peer.say("AGENT_EVENT_TEXT_CHUNK", text="ha")
        await peer.until_gone()

    async with DirectAgent(script) as agent:
        client = client_of(agent)
        async with aclosing(client.stream_message(thread_key=ALICE, text="hi")) as stream:
            assert (await anext(stream)).delta == "ha"
            assert agent.open == 1
        await until(lambda: not agent.open)
        assert agent.peers[0].close_code == 1000


@pytest.mark.parametrize("stage", ["status", "answer"])
async def test_cancelling_closes_the_socket_wherever_it_waits(stage: str) -> None:
    async def script(peer: Peer) -> None:
        if stage == "answer":
            await peer.say("STATUS")
        await peer.until_gone()

    async with DirectAgent(script) as agent:
        client = client_of(agent)
        asked = asyncio.create_task(client.send_message(thread_key=ALICE, text="hi"))
        await until(lambda: agent.open == 1 and (stage == "status" or agent.messages))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: not agent.open)
