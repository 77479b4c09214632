"""Answers on their way to a program: what counts as taken, what comes again, what is given up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path

import pytest
from aiohttp import web

from parley.protocol import SessionSource
from parley.storage.contract import Delivery
from parley.surfaces.base import NotSent, Rejected
from parley.surfaces.webhook import callback
from parley.surfaces.webhook.hub import WebhookHub
from parley.surfaces.webhook.surface import WebhookSurface
from tests.docs.pages import REPOSITORY, fences
from tests.servers.callback_receiver import CallbackReceiver, Posted
from tests.servers.ports import free_port
from tests.surfaces.webhook import TOKEN, Door, a_surface
from tests.waiting import until


@pytest.fixture
async def receiver() -> AsyncIterator[CallbackReceiver]:
    async with CallbackReceiver() as server:
        yield server


@pytest.fixture
async def surface(receiver: CallbackReceiver) -> AsyncIterator[WebhookSurface]:
    made = a_surface(receiver)
    await made.start(Door())
    yield made
    await made.stop()


def an_answer(text: str = "hello", number: int = 1) -> Delivery:
    source = SessionSource("webhook", "ann", user_id="ann")
    return Delivery(
        id=number,
        lane="agent:main:webhook:dm:ann",
        turn=number,
        dedupe=f"turn:{number}",
        source=source,
        text=text,
        kind="reply",
        answers=("m1",),
        state="sending",
        attempts=1,
        at=1700000000.0,
    )


# ── taken ──


@pytest.mark.parametrize(
    ("status", "body", "given"),
    [
        (200, '{"id": "abc"}', "abc"),
        (201, '{"id": 12}', "12"),
        (204, "", None),
        (202, "thank you", None),
        (200, "[]", None),
        (200, '{"id": null}', None),
        (200, '{"id": true}', None),
        (200, '{"id": ""}', None),
        (200, '{"id": {"a": 1}}', None),
        (200, '{"id": "a\\nb"}', None),
        (200, '{"id": "%s"}' % ("x" * 201), None),
        (200, "[" * 50_000, None),
        (200, '{"id": "%s"' % ("x" * 200_000), None),
    ],
)
async def test_any_2xx_is_taken_and_an_id_in_it_is_kept(
    surface: WebhookSurface, receiver: CallbackReceiver, status: int, body: str, given: str | None
) -> None:
    receiver.says(status, body)
    assert await surface.send(an_answer()) == given


async def test_a_reply_that_never_ends_is_not_read_to_its_end(
    surface: WebhookSurface, receiver: CallbackReceiver
) -> None:
    written = 0

    async def endless(posted: Posted) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(posted.request)
        while True:
            await response.write(b"x" * 10_000)
            written += 10_000

    receiver.behaviour = endless
    async with asyncio.timeout(60):
        assert await surface.send(an_answer()) is None
    assert written < 10_000_000


async def test_a_kept_connection_is_used_again(
    surface: WebhookSurface, receiver: CallbackReceiver
) -> None:
    for number in range(3):
        await surface.send(an_answer(number=number))
    assert len({posted.peer for posted in receiver.posted}) == 1


# ── comes again ──


@pytest.mark.parametrize("status", [301, 302, 307, 408, 429, 500, 502, 503, 504, 599])
async def test_what_may_pass_is_not_given_up(
    surface: WebhookSurface, receiver: CallbackReceiver, status: int
) -> None:
    receiver.says(status, Location="http://127.0.0.1:1/elsewhere")
    with pytest.raises(NotSent, match=f"127.0.0.1:{receiver.port} answered {status}") as refused:
        await surface.send(an_answer())
    assert refused.value.after is None
    assert len(receiver.posted) == 1, "a redirect is not followed"


async def test_a_redirect_takes_the_token_nowhere(
    surface: WebhookSurface, receiver: CallbackReceiver
) -> None:
    async with CallbackReceiver() as elsewhere:
        receiver.says(307, Location=elsewhere.url)
        with pytest.raises(NotSent, match=r"set `surfaces\.webhook\.callback_url`"):
            await surface.send(an_answer())
        assert elsewhere.posted == []


@pytest.mark.parametrize(
    ("header", "after"),
    [
        ("7", 7.0),
        ("0", 1.0),
        ("-3", 1.0),
        ("1e9", 3600.0),
        ("inf", 3600.0),
        ("nan", None),
        ("soon", None),
        ("", None),
    ],
)
async def test_a_program_may_say_when_to_come_again_within_reason(
    surface: WebhookSurface, receiver: CallbackReceiver, header: str, after: float | None
) -> None:
    receiver.says(503, Retry_After=header)
    with pytest.raises(NotSent) as refused:
        await surface.send(an_answer())
    assert refused.value.after == after


async def test_it_may_say_so_with_a_date(
    surface: WebhookSurface, receiver: CallbackReceiver
) -> None:
    receiver.says(429, Retry_After=formatdate(time.time() + 100, usegmt=True))
    with pytest.raises(NotSent) as refused:
        await surface.send(an_answer())
    assert refused.value.after is not None
    assert 90 < refused.value.after <= 100


async def test_nobody_there(surface: WebhookSurface, receiver: CallbackReceiver) -> None:
    await receiver.stop()
    with pytest.raises(NotSent, match="cannot be reached"):
        await surface.send(an_answer())


async def test_a_program_that_hangs_up(surface: WebhookSurface, receiver: CallbackReceiver) -> None:
    async def hang_up(posted: Posted) -> web.StreamResponse:
        assert posted.request.transport is not None
        posted.request.transport.abort()
        return web.Response()

    receiver.behaviour = hang_up
    with pytest.raises(NotSent, match="cannot be reached"):
        await surface.send(an_answer())


async def test_a_program_that_says_nothing_is_not_waited_for(
    receiver: CallbackReceiver, surface: WebhookSurface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "_TOTAL_SECONDS", 0.1)

    async def silent(posted: Posted) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    receiver.behaviour = silent
    with pytest.raises(NotSent, match="did not answer in time"):
        await surface.send(an_answer())


async def test_a_server_that_speaks_no_http() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ready\r\n")
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    surface = WebhookSurface(WebhookHub(), profile="default", token=TOKEN, callback_url=url)
    await surface.start(Door())
    with pytest.raises(NotSent, match="cannot be reached"):
        await surface.send(an_answer())
    await surface.stop()
    server.close()


# ── given up ──


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
async def test_what_the_program_will_never_take_is_given_up(
    surface: WebhookSurface, receiver: CallbackReceiver, status: int
) -> None:
    receiver.says(status, Retry_After="5")
    with pytest.raises(Rejected, match=f"answered {status}"):
        await surface.send(an_answer())


# ── start, stop, secrets ──


async def test_it_sends_nothing_before_its_start_or_after_its_stop(
    receiver: CallbackReceiver,
) -> None:
    surface = a_surface(receiver)
    with pytest.raises(NotSent, match="not served now"):
        await surface.send(an_answer())
    await surface.start(Door())
    await surface.send(an_answer())
    await surface.stop()
    with pytest.raises(NotSent, match="not served now"):
        await surface.send(an_answer())
    await surface.start(Door())
    await surface.send(an_answer("again"))
    await surface.stop()
    assert receiver.texts == ["hello", "again"]


async def test_a_send_under_way_ends_with_the_surface(
    surface: WebhookSurface, receiver: CallbackReceiver
) -> None:
    async def silent(posted: Posted) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    receiver.behaviour = silent
    sending = asyncio.create_task(surface.send(an_answer()))
    await until(lambda: receiver.posted)
    await surface.stop()
    async with asyncio.timeout(60):
        with pytest.raises(NotSent):
            await sending


@pytest.mark.parametrize("status", [302, 404, 500, 0])
async def test_no_secret_is_in_what_is_said_of_a_fault(
    receiver: CallbackReceiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the token nor what the address holds beyond its host."""
    url = f"{receiver.url}/sesame-path?key=sesame-key"
    surface = WebhookSurface(WebhookHub(), profile="default", token=TOKEN, callback_url=url)
    await surface.start(Door())
    receiver.says(status, "sesame-body")
    if not status:
        await receiver.stop()
    with pytest.raises((NotSent, Rejected)) as refused:
        await surface.send(an_answer())
    await surface.stop()
    said = f"{refused.value!r} {surface!r} {surface.where} {caplog.text}"
    assert "sesame" not in said
    assert TOKEN not in said
    assert surface.credential == TOKEN


# ── the page ──


async def test_the_program_on_the_page_takes_answers_once(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "webhook.md").read_text()
    [program] = fences(page, "python")
    port = free_port()
    assert "9000" in program.body
    script = tmp_path / "receiver.py"
    script.write_text(program.body.replace("9000", str(port)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-u",
        str(script),
        env={**os.environ, "WEBHOOK_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
    )
    url = f"http://127.0.0.1:{port}/answers"
    ours = WebhookSurface(WebhookHub(), profile="default", token=TOKEN, callback_url=url)
    other = WebhookSurface(
        WebhookHub(), profile="default", token="some-other-token-xxxx", callback_url=url
    )
    try:
        await ours.start(Door())
        await other.start(Door())
        async with asyncio.timeout(60):
            while True:
                try:
                    await ours.send(an_answer("hello"))
                    break
                except NotSent:
                    await asyncio.sleep(0.05)
        await ours.send(an_answer("hello"))
        with pytest.raises(Rejected):
            await other.send(an_answer("from someone else"))
        await ours.send(an_answer("bye", 2))
    finally:
        await ours.stop()
        await other.stop()
        process.terminate()
        printed, _ = await process.communicate()
    assert printed.decode() == "ann: hello\nann: bye\n"
