"""What can go wrong with a remote agent, and the sentence for each."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest

from parley.protocol import ChatMessage, Failed, Final, Request, TextDelta
from tests.backends.proxy.builders import (
    KEY,
    a_turn,
    all_of,
    backend_at,
    ending,
    proxied,
    run,
    sentence,
    served,
)
from tests.servers.ports import free_port
from tests.servers.raw_sse import Answer, as_json, chunk_of, said, stream
from tests.servers.scripted_model import ScriptedModel
from tests.waiting import until

LOST = "(The connection to the remote agent was lost here; this answer is incomplete.)"


async def failure(answer: Answer, *, key: str | None = KEY, **gateway: Any) -> Failed:
    events = await served(answer, key=key, **gateway)
    sentence(events)
    last = ending(events)
    assert isinstance(last, Failed)
    return last


# ── it refuses ──


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, "Unauthorized: invalid API key", "auth", ["invalid API key", "GATEWAY_PROXY_KEY"]),
        (403, '{"error": {"message": "not yours"}}', "auth", ["not yours"]),
        (400, '{"error": "just a text"}', "refused", ["just a text"]),
        (400, '{"detail": [{"msg": "wrong"}]}', "refused", ["wrong"]),
        (404, "<html>nothing here</html>", "not_found", ["gateway.proxy_url"]),
        (413, "", "too_long", ["too long"]),
        (418, "", "refused", ["no reason"]),
        (422, "[]", "refused", []),
        (500, "oops", "overloaded", ["oops", "in a moment"]),
        (502, "", "overloaded", ["cannot answer"]),
        (504, "", "overloaded", []),
    ],
)
async def test_a_status_is_one_sentence_with_the_far_ends_own_words(
    status: int, body: str, kind: str, words: list[str]
) -> None:
    last = await failure(Answer([body.encode()], status))
    assert last.sentence.startswith(f"Proxy error ({status}): ")
    assert last.kind == kind
    for word in words:
        assert word in last.sentence
    assert "<" not in last.sentence


async def test_a_missing_key_is_told_apart_from_a_wrong_one() -> None:
    assert "put the key into" in (await failure(Answer(status=401), key=None)).sentence
    assert "check the key in" in (await failure(Answer(status=401))).sentence


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_secrets_and_control_characters_are_taken_out(status: int) -> None:
    said_there = f"bad \x1b[31mkey {KEY}\x00 or Bearer abcdefghijkl or sk-other0123456789"
    last = await failure(as_json({"error": {"message": said_there}}, status=status))
    assert "bad [31mkey [redacted]" in last.sentence
    for secret in (KEY, "abcdefghijkl", "sk-other", "\x1b", "\x00"):
        assert secret not in last.sentence


async def test_a_key_of_any_form_is_taken_out() -> None:
    events = await served(Answer([b"no: xyz"], 400), key="xyz")
    assert "xyz" not in sentence(events)


async def test_a_long_message_is_cut() -> None:
    last = await failure(Answer([b"x y " * 100_000], 400))
    assert 300 < len(last.sentence) < 400


async def test_a_redirect_is_not_followed_because_the_key_would_go_along() -> None:
    async with proxied(stream("no")) as (_, other):
        target = {"Location": f"{other.url}/v1?token=hunter2"}
        last = await failure(Answer(status=307, headers=target))
        assert other.seen == []
    assert "redirects" in last.sentence
    assert "hunter2" not in last.sentence


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "busy", "type": "overloaded_error"}, "overloaded"),
        ({"message": "slow", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"message": "who", "type": "authentication_error"}, "auth"),
        ("just a text", "overloaded"),
    ],
)
@pytest.mark.parametrize("event", [None, "error"])
async def test_an_error_inside_the_stream_is_told(
    error: object, kind: str, event: str | None
) -> None:
    last = await failure(Answer([said(content="a"), chunk_of({"error": error}, event=event)]))
    assert last.sentence.startswith("Proxy error: ")
    assert last.kind == kind


async def test_an_error_in_a_whole_answer_is_told() -> None:
    assert "no room" in (await failure(as_json({"error": {"message": "no room"}}))).sentence


# ── it is no agent ──


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer([b"<html>hello</html>"]), "web page"),
        (Answer([b"{"]), "no JSON"),
        (Answer(), "no answer"),
        (Answer([b": nothing\n\n"]), "no answer"),
        (Answer([b"data: nonsense\n\n"]), "no answer"),
        (Answer(raw=b"SSH-2.0-hello\r\n\r\n"), "HTTP"),
    ],
)
async def test_what_is_no_answer_is_said(answer: Answer, words: str) -> None:
    last = await failure(answer)
    assert words in last.sentence
    assert last.kind == "broken"


async def test_an_empty_answer_is_said() -> None:
    assert "empty answer" in (await failure(stream())).sentence
    assert "content filter" in (await failure(stream(finish="content_filter"))).sentence


async def test_64_mb_of_garbage_end_in_a_sentence() -> None:
    garbage = Answer([b"x" * 1_048_576] * 64)
    assert "more than any answer" in (await failure(garbage)).sentence
    line = b": " + b"x" * 1021 + b"\n"
    async with proxied(Answer([line * 1024] * 64)) as (backend, far):
        assert "more than any answer" in sentence(await run(backend))
        await until(lambda: far.left == 1)


async def test_what_came_before_garbage_is_kept_and_marked() -> None:
    last = ending(await served(Answer([said(content="a"), b"x" * 5_000_000])))
    assert isinstance(last, Final)
    assert last.text.startswith("a\n\n(The remote agent sent more than any answer can be")


# ── it cannot be reached ──


async def test_a_refused_connection_names_the_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    backend = backend_at(url)
    events = await run(backend)
    assert sentence(events).startswith(f"Proxy connection error: nothing answers at {url}")
    last = ending(events)
    assert isinstance(last, Failed)
    assert last.kind == "unreachable"
    result = await backend.answer(a_turn())
    assert (result.api_calls, result.messages) == (0, [])
    assert "Proxy connection error" in result.final_response
    await backend.close()


async def test_an_unknown_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    backend = backend_at("http://no-such-host.invalid:8642")
    told = sentence(await run(backend))
    assert "no-such-host.invalid:8642 is not known" in told
    await backend.close()


async def test_a_failed_tls_handshake_is_said() -> None:
    async with ScriptedModel() as far:
        backend = backend_at(far.base_url.replace("http:", "https:"))
        assert "TLS" in sentence(await run(backend))
        await backend.close()


async def test_silence_before_the_first_byte_is_a_time_out() -> None:
    last = await failure(Answer([asyncio.Event()]), proxy_timeout_seconds=0.1)
    assert last.kind == "timeout"
    assert "no answer within 0.1 s" in last.sentence
    assert "gateway.proxy_timeout_seconds" in last.sentence


async def test_silence_in_the_middle_keeps_what_arrived() -> None:
    answer = Answer([said(content="half")], ending="hold")
    last = ending(await served(answer, proxy_timeout_seconds=0.1))
    assert last == Final(f"half\n\n{LOST}", complete=False)


@pytest.mark.parametrize("how", ["hold", "cut", "close"])
async def test_a_program_gets_the_error_and_not_half_an_answer(
    how: Literal["hold", "cut", "close"],
) -> None:
    turn = a_turn(request=Request("chatcmpl_1", (ChatMessage("user", "hi"),)))
    answer = Answer([said(content="half")], ending=how)
    last = ending(await served(answer, turn, proxy_timeout_seconds=0.3))
    assert isinstance(last, Failed)
    assert last.kind in {"broken", "timeout"}
    assert "half" not in last.sentence


async def test_a_comment_now_and_then_is_no_silence() -> None:
    pieces: list[bytes | asyncio.Event] = []
    gates = [asyncio.Event() for _ in range(6)]
    for gate in gates:
        pieces += [gate, b": still there\n\n"]
    answer = Answer([*pieces, *stream("ok").pieces])

    async def tick() -> None:
        for gate in gates:
            await asyncio.sleep(0.1)
            gate.set()

    ticking = asyncio.create_task(tick())
    assert ending(await served(answer, proxy_timeout_seconds=0.4)) == Final("ok")
    await ticking


# ── it breaks off ──


async def test_a_connection_cut_half_way_keeps_what_arrived_and_says_so() -> None:
    answer = Answer([said(content="Once upon"), said(content=" a")], ending="cut")
    events = await served(answer)
    assert all_of(events, TextDelta) == [TextDelta("Once upon"), TextDelta(" a")]
    assert ending(events) == Final(f"Once upon a\n\n{LOST}", complete=False)


async def test_half_an_event_is_not_taken_for_a_whole_one() -> None:
    answer = Answer([said(content="a"), b'data: {"choices":[{"delta":{"content":"b"}}]}'])
    cut = Answer(answer.pieces, ending="cut")
    assert ending(await served(cut)) == Final(f"a\n\n{LOST}", complete=False)
    assert ending(await served(answer)) == Final("ab")


async def test_a_connection_cut_before_any_text_is_an_error() -> None:
    last = await failure(Answer([b": hello\n\n"], ending="cut"))
    assert last.sentence.startswith("Proxy connection error: ")
    assert last.kind == "broken"


async def test_a_missing_done_does_no_harm() -> None:
    assert ending(await served(stream("a", done=False))) == Final("a")
    assert ending(await served(stream("a", finish=None, done=False))) == Final("a")


async def test_an_end_that_cannot_be_told_from_a_cut_is_marked() -> None:
    closed = Answer(stream("a", finish=None, done=False).pieces, ending="close")
    last = ending(await served(closed))
    assert isinstance(last, Final)
    assert last.text.startswith("a\n\n(The connection to the remote agent was lost here")
    said = Answer(stream("a", done=False).pieces, ending="close")
    assert ending(await served(said)) == Final("a")


async def test_a_cut_after_the_end_was_said_does_no_harm() -> None:
    answer = Answer(stream("a", done=False).pieces, ending="cut")
    assert ending(await served(answer)) == Final("a")


async def test_a_whole_answer_instead_of_a_stream_is_taken() -> None:
    choice = {"message": {"role": "assistant", "content": "all"}, "finish_reason": "stop"}
    assert ending(await served(as_json({"choices": [choice]}))) == Final("all")
    raw = json.dumps({"choices": [choice]}).encode()
    cut = Answer([raw[:-3]], ending="cut")
    assert "Proxy connection error" in sentence(await served(cut))


async def test_a_far_end_that_neither_goes_on_nor_ends_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parley.backends.proxy.client._AFTER_THE_END_SECONDS", 0.05)
    answer = Answer(stream("a", done=False).pieces, ending="hold")
    assert ending(await served(answer)) == Final("a")


async def test_a_web_page_is_called_one_however_it_ends() -> None:
    page = Answer([b"<html><body>Please log in.</body></html>"], ending="close")
    last = ending(await served(page))
    assert isinstance(last, Failed)
    assert "web page" in last.sentence


async def test_what_a_gateway_in_between_says_is_not_wrapped_again() -> None:
    said = {"error": {"message": "Proxy error (400): Proxy error (404): There is no such model."}}
    last = ending(await served(as_json(said, status=400)))
    assert isinstance(last, Failed)
    assert last.sentence.startswith("Proxy error (400): There is no such model")
