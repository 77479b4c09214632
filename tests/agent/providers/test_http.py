"""What can go wrong between us and a model server, and the sentence for each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from email.utils import formatdate

import pytest

from parley.agent.providers.base import ErrorKind, ProviderError
from parley.agent.providers.faults import Peer
from parley.agent.providers.openai import OpenAIProvider
from tests.agent.providers.builders import (
    KEY,
    ask,
    collect,
    delta,
    failure,
    final,
    openai,
    sse,
    text_of,
)
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel


def at(address: str, *, key: str | None = None) -> OpenAIProvider:
    return OpenAIProvider(
        "there", base_url=address, api_key=key, model="m", context_window=8192, timeout_seconds=5
    )


def error_body(message: str, **fields: str) -> str:
    return json.dumps({"error": {"message": message, **fields}})


async def status(reply: Reply) -> ProviderError:
    async with ScriptedModel(lambda _: reply) as server:
        return await failure(openai(server))


@pytest.mark.parametrize(
    ("code", "body", "kind", "words"),
    [
        (401, error_body(f"Incorrect key {KEY}"), "auth", ["HERE_API_KEY", "parley setup"]),
        (403, error_body("not in your country"), "auth", ["HERE_API_KEY", "not in your country"]),
        (402, "", "auth", ["no credit"]),
        (429, error_body("pay", type="insufficient_quota"), "auth", ["no credit"]),
        (404, error_body("The model `x` does not exist"), "not_found", ["scripted", "model.name"]),
        (404, "<html>nothing</html>", "not_found", ["base_url", "/v1"]),
        (413, "", "too_long", ["/new"]),
        (400, error_body("maximum context length is 9"), "too_long", ["length is 9"]),
        (400, error_body("x", code="context_length_exceeded"), "too_long", ["/new"]),
        (400, error_body("bad schema"), "refused", ["bad schema", "400"]),
        (400, error_body("m does not support tools"), "refused", ["providers.here.tools false"]),
        (422, '{"detail": [{"loc": ["body", "x"], "msg": "wrong"}]}', "refused", ["wrong"]),
        (429, error_body("slow down"), "rate_limited", ["slow down"]),
        (408, "", "timeout", ["too long"]),
        (500, "oops", "overloaded", ["oops", "500"]),
        (529, error_body("Overloaded"), "overloaded", ["Overloaded"]),
        (418, "", "refused", ["418", "no reason"]),
    ],
)
async def test_a_status_becomes_a_kind_and_one_sentence(
    code: int, body: str, kind: ErrorKind, words: list[str]
) -> None:
    error = await status(Reply(status=code, body=body))
    assert (error.kind, error.status) == (kind, code)
    for word in [*words, "here"]:
        assert word in str(error)
    assert "\n" not in str(error)
    assert str(error).endswith(".")
    assert KEY not in str(error)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 429, 500])
async def test_a_key_that_the_server_repeats_is_taken_out(code: int) -> None:
    words = f"key {KEY} or sk-te*******6789 or Bearer abcdefghijkl is bad"
    sentence = str(await status(Reply(status=code, body=error_body(words))))
    for secret in (KEY, "sk-te", "abcdefghijkl"):
        assert secret not in sentence


async def test_a_key_of_any_form_is_taken_out() -> None:
    key = "plain0123456789"
    reply = Reply(status=400, body=error_body(f"bad key: {key}"))
    async with ScriptedModel(lambda _: reply) as server:
        sentence = str(await failure(openai(server, key=key)))
    assert "bad key: [key]" in sentence


def test_a_key_is_not_in_what_a_debugger_prints() -> None:
    peer = Peer("here", "http://x/v1", "m", key_variable="HERE_API_KEY", key=KEY)
    assert KEY not in repr(peer)


async def test_a_server_that_wants_a_key_we_do_not_have_says_so() -> None:
    async with ScriptedModel(lambda _: Reply(status=401)) as server:
        error = await failure(openai(server, key=None))
    assert str(error) == "here wants a key: put one into HERE_API_KEY with `parley setup`."


async def test_a_long_error_body_is_cut() -> None:
    error = await status(Reply(status=400, body="x" * 1_000_000))
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "0.5"}, 0.5, 0.5),
        ({"retry-after-ms": "250"}, 0.25, 0.25),
        ({"Retry-After": formatdate(time.time() + 36_000, usegmt=True)}, 30_000, 36_000),
        ({"Retry-After": formatdate(time.time() - 60, usegmt=True)}, 0, 0),
    ],
)
async def test_retry_after_is_read(headers: dict[str, str], least: float, most: float) -> None:
    error = await status(Reply(status=429, headers=headers))
    assert error.retry_after is not None
    assert least <= error.retry_after <= most


@pytest.mark.parametrize("text", ["soon", "-3", "nan", "inf", ""])
async def test_a_retry_after_that_makes_no_sense_is_none(text: str) -> None:
    assert (await status(Reply(status=503, headers={"Retry-After": text}))).retry_after is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "busy", "type": "overloaded_error"}, "overloaded"),
        ({"message": "slow", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"message": "slow", "code": 429}, "rate_limited"),
        ({"message": "the context size is exceeded"}, "too_long"),
        ({"message": "who", "type": "authentication_error"}, "auth"),
        ({"message": "no", "type": "invalid_request_error"}, "refused"),
        ("just a text", "overloaded"),
    ],
)
async def test_an_error_inside_a_stream_is_understood(error: object, kind: ErrorKind) -> None:
    async with ScriptedModel(lambda _: sse(delta(content="a"), {"error": error})) as server:
        assert (await failure(openai(server))).kind == kind


async def test_a_redirect_is_not_followed_because_the_key_would_go_along() -> None:
    async with ScriptedModel() as other:
        target = {"Location": f"{other.base_url}/chat/completions?x=1"}
        async with ScriptedModel(lambda _: Reply(status=307, headers=target)) as server:
            error = await failure(openai(server))
    assert error.kind == "refused"
    assert other.base_url in str(error)
    assert other.total == 0


async def test_a_refused_connection_names_the_address() -> None:
    address = f"http://127.0.0.1:{free_port()}/v1"
    error = await failure(at(address))
    assert error.kind == "unreachable"
    assert address in str(error)


async def test_an_unknown_host_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    error = await failure(at("http://no-such-host.invalid/v1"))
    assert error.kind == "unreachable"
    assert "no-such-host.invalid" in str(error)
    assert "name" in str(error)


async def test_a_failed_tls_handshake_is_said() -> None:
    async with ScriptedModel() as server:
        error = await failure(at(server.base_url.replace("http:", "https:")))
    assert error.kind == "unreachable"
    assert "TLS" in str(error)


async def test_silence_before_the_first_byte_is_a_time_out() -> None:
    async with ScriptedModel(delay=30) as server:
        error = await failure(openai(server, timeout_seconds=0.1))
    assert error.kind == "timeout"
    assert "0.1 s" in str(error)
    assert "timeout_seconds" in str(error)


async def test_silence_in_the_middle_is_a_time_out() -> None:
    async with ScriptedModel(lambda _: Reply("a b", chunks=3, chunk_delay=30)) as server:
        assert (await failure(openai(server, timeout_seconds=0.1))).kind == "timeout"


async def test_a_slow_stream_may_take_longer_than_the_time_out() -> None:
    reply = Reply("abcdefgh", chunks=8, chunk_delay=0.1)
    async with ScriptedModel(lambda _: reply) as server:
        assert (await final(openai(server, timeout_seconds=0.6))).text == "abcdefgh"


async def test_what_is_not_http_is_broken() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-hello\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await failure(at(f"http://127.0.0.1:{port}/v1"))).kind == "broken"


async def test_a_kept_connection_that_the_server_dropped_is_made_anew() -> None:
    connections = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        body = b"".join(sse(delta(content="a", finish="stop"), "[DONE]").raw or ())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await reader.readuntil(b"\r\n\r\n")  # the next request on it gets no answer
        writer.close()

    async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
        provider = at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        for _ in range(2):
            assert text_of([event async for event in provider.stream(ask())]) == ["a"]
        await provider.close()
    assert connections == 2


async def test_a_connection_is_kept_when_its_last_bytes_come_after_done() -> None:
    connections = 0

    async def slow_to_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        body = b"".join(sse(delta(content="a", finish="stop"), "[DONE]").raw or ())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0])
                await reader.readexactly(length)
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                writer.write(b"%x\r\n%s\r\n" % (len(body), body))
                await asyncio.sleep(0.01)
                writer.write(b"0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(slow_to_end, "127.0.0.1", 0) as server:
        provider = at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        for _ in range(3):
            assert text_of([event async for event in provider.stream(ask())]) == ["a"]
        await provider.close()
    assert connections == 1


async def test_an_answer_without_an_end_gets_a_limit() -> None:
    async with ScriptedModel(lambda _: Reply(raw=(b"data: " + b"x" * 5_000_000,))) as server:
        error = await failure(openai(server))
    assert error.kind == "broken"
    assert "too large" in str(error)


async def test_a_proxy_of_the_environment_is_used_for_far_servers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with ScriptedModel() as proxy, ScriptedModel() as near:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        assert text_of(await collect(at("http://models.example/v1"))) == ["echo: hi"]
        assert text_of(await collect(openai(near))) == ["echo: hi"]
    assert (proxy.total, near.total) == (1, 1)


@pytest.mark.parametrize("address", ["", "api.example.com/v1", "ftp://x/v1", "http://[::1", "/v1"])
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(ProviderError, match="base_url"):
        at(address)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ProviderError) as caught:
        at("https://me:hunter2@api.example.com/v1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ"])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ProviderError) as caught:
        at("https://api.example.com/v1", key=key)
    assert caught.value.kind == "auth"
    assert key not in str(caught.value)
