"""A webhook as programs meet it: real HTTP both ways, and a real gateway between."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from parley.gateway.access import Refused
from parley.gateway.intake import Stopping
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.storage.contract import Receipt, StoreUnavailable
from parley.surfaces.webhook import hub as webhook_hub
from parley.surfaces.webhook.hub import WebhookHub
from parley.surfaces.webhook.surface import WebhookSurface
from tests.gateway.house import House
from tests.servers.api_server import an_api
from tests.servers.callback_receiver import CallbackReceiver, Posted
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.webhook import TOKEN, Caller, Door, WebhookHouse, a_surface
from tests.waiting import until

UNKNOWN = {"error": "Send `Authorization: Bearer TOKEN`, with a token that is known here."}


@pytest.fixture
async def receiver() -> AsyncIterator[CallbackReceiver]:
    async with CallbackReceiver() as server:
        yield server


@pytest.fixture
async def webhook(house: House, receiver: CallbackReceiver) -> WebhookHouse:
    """The house with its webhook open."""
    made = WebhookHouse(receiver, house.profile)
    house.more_surfaces = made.surfaces
    await house.open(gateway={"drain_seconds": 5})
    return made


@pytest.fixture
async def caller(webhook: WebhookHouse) -> AsyncIterator[Caller]:
    async with Caller(webhook.url) as opened:
        yield opened


async def delivered(house: House) -> None:
    """Wait until no reply is on its way."""
    assert house.store is not None
    async with asyncio.timeout(60):
        while (await house.store.health()).undelivered:
            await asyncio.sleep(0.005)


# ── there and back ──


async def test_a_message_is_taken_and_its_answer_posted_back(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    assert await caller.say("hello", "m1", user_name="Ann") == (202, {"state": "queued"})
    await until(lambda: receiver.posted)
    [posted] = receiver.posted
    assert posted.headers["Authorization"] == f"Bearer {TOKEN}"
    assert posted.headers["Content-Type"] == "application/json"
    assert posted.answer == {
        "id": posted.answer["id"],
        "text": "echo: hello",
        "kind": "reply",
        "answers": ["m1"],
        "chat": "ann",
        "chat_type": "dm",
        "thread": None,
        "user": "ann",
        "space": None,
        "profile": "default",
    }
    system = house.model.requests[0].json["messages"][0]["content"]
    assert system.endswith("with Ann.")
    await delivered(house)


async def test_a_repeat_is_known_and_answered_once(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    assert await caller.say("hello", "m1") == (202, {"state": "queued"})
    assert await caller.say("hello", "m1") == (200, {"state": "duplicate"})
    await until(lambda: receiver.posted)
    assert await caller.say("hello", "m1") == (200, {"state": "duplicate"})
    await caller.say("bye", "m2")
    await until(lambda: len(receiver.posted) == 2)
    assert receiver.texts == ["echo: hello", "echo: bye"]
    assert house.model.total == 2


async def test_a_command_is_answered_like_anything_else(
    caller: Caller, receiver: CallbackReceiver
) -> None:
    await caller.say("/help", "m1")
    await until(lambda: receiver.posted)
    assert "/new" in receiver.posted[0].text


async def test_people_threads_and_groups_are_conversations_of_their_own(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    places: list[dict[str, Any]] = [
        {},
        {"user": "bob"},
        {"thread": "t1"},
        {"chat": "ann", "chat_type": "group"},
        {"chat": "ann", "chat_type": "group", "user": "bob"},
        {"chat": "ann", "chat_type": "group", "thread": "bob"},
        {"chat": "ann", "chat_type": "channel"},
    ]
    for number, place in enumerate(places):
        await caller.say(f"hello {number}", str(number), **place)
    await until(lambda: len(receiver.posted) == len(places))
    assert all(len(house.asked(number)) == 1 for number in range(len(places)))
    assert house.store is not None
    assert len(await house.store.sessions()) == len(places)
    for posted in receiver.posted:
        [number] = posted.answer["answers"]
        expected = {"user": "ann", "chat_type": "dm", "thread": None, **places[int(number)]}
        expected.setdefault("chat", expected["user"])
        assert {name: posted.answer[name] for name in expected} == expected


async def test_what_one_conversation_waits_for_holds_no_other_up(
    caller: Caller, receiver: CallbackReceiver
) -> None:
    """The program is slow to take Ann's answer; Bob gets his in the meantime, one by one."""
    free = asyncio.Event()

    async def slow_for_ann(posted: Posted) -> web.StreamResponse:
        if posted.answer["user"] == "ann":
            await free.wait()
        return web.json_response({})

    receiver.behaviour = slow_for_ann
    await caller.say("first", "a1")
    await until(lambda: receiver.texts == ["echo: first"])
    await caller.say("second", "a2")
    for number in range(5):
        await caller.say(f"bob {number}", f"b{number}", user="bob")
        await until(lambda n=number: receiver.texts[-1] == f"echo: bob {n}")  # type: ignore[misc]
    assert "echo: second" not in receiver.texts, "Ann's answers go in order"
    free.set()
    await until(lambda: receiver.texts[-1] == "echo: second")


# ── the callback fails ──


async def test_an_answer_waits_for_a_callback_that_is_down(
    caller: Caller, receiver: CallbackReceiver, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "parley.webhook")
    await receiver.stop()
    await caller.say("hello", "m1")
    await caller.say("and?", "m2", user="bob")
    await until(lambda: "callback_fails" in caplog.messages)
    await receiver.start()
    await until(lambda: len(receiver.posted) == 2)
    assert sorted(receiver.texts) == ["echo: and?", "echo: hello"]
    await delivered(house)
    assert caplog.messages.count("callback_fails") == 1
    assert caplog.messages.count("callback_works") == 1


async def test_an_answer_that_comes_again_has_the_same_id(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    receiver.says(500)
    await caller.say("hello", "m1")
    await until(lambda: len(receiver.posted) == 2)
    receiver.is_fine()
    await delivered(house)
    assert len({posted.answer["id"] for posted in receiver.posted}) == 1
    assert len({json.dumps(posted.answer) for posted in receiver.posted}) == 1


async def test_an_answer_comes_again_after_a_crash_under_the_same_id(
    house: House, receiver: CallbackReceiver
) -> None:
    async def never(posted: Posted) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    receiver.behaviour = never
    first = WebhookHouse(receiver, house.profile)
    house.more_surfaces = first.surfaces
    await house.open()
    async with Caller(first.url) as caller:
        await caller.say("hello", "m1")
    await until(lambda: receiver.posted)
    await house.crash()
    await first.webhook.stop()
    await first.api.stop()
    receiver.is_fine()
    second = WebhookHouse(receiver, house.profile)
    house.more_surfaces = second.surfaces
    await house.open()
    await until(lambda: len(receiver.posted) == 2)
    assert receiver.posted[0].answer == receiver.posted[1].answer
    assert house.model.total == 1
    async with Caller(second.url) as caller:
        assert await caller.say("hello", "m1") == (200, {"state": "duplicate"})


async def test_what_the_program_refuses_is_given_up_and_the_next_goes(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    receiver.says(410)
    await caller.say("hello", "m1")
    assert house.store is not None
    async with asyncio.timeout(60):
        while not (dead := (await house.store.health()).dead):
            await asyncio.sleep(0.005)
    assert [found.text for found in dead] == ["echo: hello"]
    receiver.is_fine()
    await caller.say("bye", "m2")
    await until(lambda: receiver.texts[-1] == "echo: bye")


# ── who may ──


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN} {TOKEN}",
        "Bearer ü",
        "Bearer " + "x" * 4000,
    ],
)
async def test_without_the_token_nobody_is_heard(
    caller: Caller, house: House, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    message = {"id": "m1", "text": "hello", "user": "ann"}
    assert await caller.post(message, headers=headers) == (401, UNKNOWN)
    assert await caller.post(b"no message either", headers=headers) == (401, UNKNOWN)
    assert house.model.total == 0


async def test_the_word_bearer_may_be_written_as_one_likes(caller: Caller) -> None:
    message = {"id": "m1", "text": "hello", "user": "ann"}
    headers = {"Authorization": f"bearer {TOKEN}"}
    assert (await caller.post(message, headers=headers))[0] == 202


async def test_a_known_token_is_not_called_unknown_while_its_surface_is_not_open(
    receiver: CallbackReceiver,
    tmp_path: Path,
) -> None:
    """At a start and at a stop: a program that got 401 would give up."""
    door = Door()
    house = WebhookHouse(receiver, Profile("default", tmp_path))
    await house.api.start(door)
    try:
        async with Caller(house.url) as caller:
            later = {"error": "This webhook is not served now; please try again in a moment."}
            assert await caller.say("hello", "1") == (503, later)
            await house.webhook.start(door)
            assert await caller.say("hello", "1") == (202, {"state": "queued"})
            await house.webhook.stop()
            assert await caller.say("hello", "2") == (503, later)
            assert (await caller.post({}, headers={}))[0] == 401
    finally:
        await house.api.stop()
    assert [message.event_id for message in door.admitted] == ["1"]


# ── what the gateway says ──


@pytest.mark.parametrize(
    ("answer", "status", "words", "wait"),
    [
        (Stopping("The gateway is stopping."), 503, "The gateway is stopping.", "1"),
        (
            StoreUnavailable("The disk is full."),
            503,
            "Nothing can be stored right now; please try again in a moment.",
            "1",
        ),
        (Refused("Not you."), 403, "Not you.", None),
        (Receipt("rate_limited", retry_after=2.4), 429, "Too many messages at once.", "3"),
        (Receipt("rate_limited", retry_after=0.0), 429, "Too many messages at once.", "1"),
    ],
    ids=["stopping", "full disk", "refused", "limited", "hardly limited"],
)
async def test_what_the_gateway_says_becomes_a_status(
    receiver: CallbackReceiver,
    answer: Receipt | Exception,
    status: int,
    words: str,
    wait: str | None,
    tmp_path: Path,
) -> None:
    house, door = WebhookHouse(receiver, Profile("default", tmp_path)), Door(answer)
    await house.api.start(door)
    await house.webhook.start(door)
    try:
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
            session.post(house.url, json={"id": "1", "text": "x", "user": "ann"}) as response,
        ):
            assert response.status == status
            assert await response.json() == {"error": words}
            assert response.headers.get("Retry-After") == wait
    finally:
        await house.webhook.stop()
        await house.api.stop()


async def test_a_stopping_gateway_takes_nothing_and_finishes_what_it_took(
    caller: Caller, receiver: CallbackReceiver, house: House, stage: Stage
) -> None:
    stage.then(Reply(text="late", delay=0.2))
    await caller.say("slow", "m1")
    await until(lambda: house.model.open_streams == 1)
    stopping = asyncio.create_task(house.close())
    await asyncio.sleep(0)
    status, reply = await caller.say("more", "m2")
    assert (status, list(reply)) == (503, ["error"])
    await stopping
    assert receiver.texts == ["late"]


# ── what is posted ──


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{}", 400),
        (b"[" * 500_000, 400),
        (b'{"id":' * 100_000, 400),
        (b'{"id":"1","user":"ann","text":"\xff"}', 400),
        (b'{"id":"1","user":"ann","text":"a\\u0000b"}', 400),
        (b'{"id":"1","user":"ann","text":7}', 400),
        (b'{"id":"1","user":"ann","text":"' + b"x" * 1024 * 1024 + b'"}', 413),
    ],
    ids=lambda found: str(found)[:24],
)
async def test_a_hostile_body_is_refused_and_harms_nobody(
    caller: Caller, receiver: CallbackReceiver, body: bytes, status: int
) -> None:
    found, reply = await caller.post(body)
    assert (found, list(reply)) == (status, ["error"])
    assert "\n" not in reply["error"]
    assert (await caller.say("hello", "m1"))[0] == 202
    await until(lambda: receiver.posted)


async def test_a_missing_field_is_named(caller: Caller) -> None:
    assert await caller.post({"id": "1", "user": "ann"}) == (400, {"error": "`text` is missing."})


async def test_a_large_message_is_taken_whole(
    caller: Caller, receiver: CallbackReceiver, house: House
) -> None:
    assert (await caller.say("y" * 1_000_000, "m1"))[0] == 202
    await until(lambda: receiver.texts)
    assert "send less of it" in receiver.texts[0]  # to the model, which is not asked
    assert not house.model.requests
    assert house.store is not None
    [session] = await house.store.sessions()
    [said, _] = await house.store.transcript(session.id, whole=True)
    assert len(said.message.text) == 1_000_000


async def test_a_packed_body_is_not_unpacked(caller: Caller, house: House) -> None:
    bomb = gzip.compress(b'{"id":"1","user":"ann","text":"' + b"x" * 50_000_000 + b'"}')
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Encoding": "gzip"}
    status, reply = await caller.post(bomb, headers=headers)
    assert (status, reply) == (400, {"error": "The body must be one JSON object in UTF-8."})
    assert house.model.total == 0


async def raw(webhook: WebhookHouse, request: bytes) -> tuple[asyncio.StreamReader, Any]:
    host, _, port = webhook.url.removeprefix("http://").removesuffix("/webhook").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    return reader, writer


HEAD = f"POST /webhook HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /webhook HT",
        HEAD,
        HEAD + b'Content-Length: 100\r\n\r\n{"id": "1", "te',
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"id"\r\n',
    ],
    ids=["half a line", "half a head", "half a body", "half a chunk"],
)
async def test_a_program_that_hangs_up_in_the_midst_harms_nobody(
    webhook: WebhookHouse, caller: Caller, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        _, writer = await raw(webhook, request_bytes)
        await writer.drain()
        writer.transport.abort()
    assert (await caller.say("hello", "m1"))[0] == 202
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_body_that_does_not_come_is_not_waited_for(
    webhook: WebhookHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_hub, "_BODY_WITHIN", 0.1)
    reader, writer = await raw(webhook, HEAD + b'Content-Length: 100\r\n\r\n{"id": "1", "te')
    async with asyncio.timeout(60):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_a_body_that_is_not_as_its_headers_say_is_refused(webhook: WebhookHouse) -> None:
    body = b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"
    reader, writer = await raw(webhook, HEAD + body)
    async with asyncio.timeout(60):
        assert b" 400 " in await reader.readline()
    writer.close()


async def test_other_ways_of_asking_are_not_there(webhook: WebhookHouse) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(webhook.url) as response:
            assert response.status == 405
        async with session.post(f"{webhook.url}/more") as response:
            assert response.status == 404
        async with session.get(f"{webhook.api.where}/healthz") as response:
            assert await response.json() == {"status": "ok"}


# ── several accounts ──


async def test_each_token_leads_to_its_own_profile(
    receiver: CallbackReceiver, tmp_path: Path
) -> None:
    hub = WebhookHub()
    tokens = {name: f"the-token-of-{name}-xxxxxxxx" for name in ("default", "coder", "writer")}
    surfaces = {
        name: a_surface(receiver, hub=hub, profile=name, token=token)
        for name, token in tokens.items()
    }
    doors = {name: Door() for name in tokens}
    api = an_api(Profile("default", tmp_path), mounted=[hub])
    await api.start(doors["default"])
    for name, surface in surfaces.items():
        await surface.start(doors[name])
    try:
        for name, token in tokens.items():
            async with Caller(f"{api.where}/webhook", token) as caller:
                assert (await caller.say(name, "1", thread="t"))[0] == 202
        await surfaces["coder"].stop()
        async with Caller(f"{api.where}/webhook", tokens["coder"]) as caller:
            assert (await caller.say("late", "2"))[0] == 503
        async with Caller(f"{api.where}/webhook", tokens["writer"]) as caller:
            assert (await caller.say("writer", "2"))[0] == 202
    finally:
        await api.stop()
        for surface in surfaces.values():
            await surface.stop()
    assert {
        name: [(m.text, m.source.chat_id) for m in door.admitted] for name, door in doors.items()
    } == {
        "default": [("default", "ann")],
        "coder": [("coder", "~/ann")],
        "writer": [("writer", "~/ann"), ("writer", "~/ann")],
    }


async def test_two_profiles_with_one_token_are_refused_with_both_names(
    receiver: CallbackReceiver, tmp_path: Path
) -> None:
    """And neither is served: nobody knows whose messages these are."""
    hub, door = WebhookHub(), Door()
    surfaces = [a_surface(receiver, hub=hub), a_surface(receiver, hub=hub, profile="coder")]
    for surface in surfaces:
        with pytest.raises(ParleyError, match="have the same WEBHOOK_TOKEN") as refused:
            await surface.start(door)
        assert {"`default`", "`coder`"} <= set(str(refused.value).split())
        assert TOKEN not in str(refused.value)
    api = an_api(Profile("default", tmp_path), mounted=[hub])
    await api.start(door)
    async with Caller(f"{api.where}/webhook") as caller:
        assert (await caller.say("hello", "1"))[0] == 503
    await api.stop()
    assert door.admitted == []


async def test_a_token_that_is_copied_later_does_not_shut_its_owner_out(
    receiver: CallbackReceiver, tmp_path: Path
) -> None:
    hub, door = WebhookHub(), Door()
    owner = a_surface(receiver, hub=hub)
    await owner.start(door)
    copied = a_surface(receiver, hub=hub, profile="coder")
    with pytest.raises(ParleyError, match="have the same WEBHOOK_TOKEN"):
        await copied.start(Door())
    api = an_api(Profile("default", tmp_path), mounted=[hub])
    await api.start(door)
    async with Caller(f"{api.where}/webhook") as caller:
        assert (await caller.say("hello", "1"))[0] == 202
    await api.stop()
    await owner.stop()
    assert [message.source.chat_id for message in door.admitted] == ["ann"]


# ── a surface that cannot start ──


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (None, "The webhook's token is missing: parley config set WEBHOOK_TOKEN"),
        ("", "The webhook's token is missing: parley config set WEBHOOK_TOKEN"),
        (
            "fifteen-letters",
            "The webhook's token is too short, 16 characters are the least: "
            "parley config set WEBHOOK_TOKEN",
        ),
        (
            "one two three four five",
            "The webhook's token holds a space or a character that no header can: "
            "parley config set WEBHOOK_TOKEN",
        ),
        (
            "a-token-with-an-ümlaut",
            "The webhook's token holds a space or a character that no header can: "
            "parley config set WEBHOOK_TOKEN",
        ),
    ],
)
async def test_a_token_that_will_not_do_is_told_and_opens_nothing(
    receiver: CallbackReceiver, token: str | None, sentence: str, tmp_path: Path
) -> None:
    hub, door = WebhookHub(), Door()
    surface = WebhookSurface(hub, profile="default", token=token, callback_url=receiver.url)
    with pytest.raises(ParleyError) as refused:
        await surface.start(door)
    assert str(refused.value) == sentence
    api = an_api(Profile("default", tmp_path), mounted=[hub])
    await api.start(door)
    try:
        async with Caller(f"{api.where}/webhook") as caller:
            headers = {"Authorization": f"Bearer {token or ''}"}
            message = {"id": "1", "text": "x", "user": "ann"}
            assert await caller.post(message, headers=headers) == (401, UNKNOWN)
    finally:
        await api.stop()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (None, "parley config set surfaces.webhook.callback_url http.* --profile coder"),
        ("", "parley config set surfaces.webhook.callback_url http.* --profile coder"),
        ("ftp://example.org", "begins with http:// or https://"),
        ("example.org/answers", "begins with http:// or https://"),
        ("http://", "begins with http:// or https://"),
        ("http://example.org:port/", "begins with http:// or https://"),
        ("http://example.org/a\nb", "begins with http:// or https://"),
        ("http://ann:sesame@example.org/", "holds a name or password"),
    ],
)
async def test_a_callback_that_will_not_do_is_told(url: str | None, words: str) -> None:
    surface = WebhookSurface(WebhookHub(), profile="coder", token=TOKEN, callback_url=url)
    with pytest.raises(ParleyError, match=words) as refused:
        await surface.start(Door())
    assert "sesame" not in str(refused.value)
    assert TOKEN not in str(refused.value)


async def test_a_webhook_that_cannot_start_leaves_the_other_surfaces_alone(
    house: House, receiver: CallbackReceiver, tmp_path: Path
) -> None:
    hub = WebhookHub()
    api = an_api(Profile("default", tmp_path), mounted=[hub])
    broken = WebhookSurface(hub, profile="default", token=None, callback_url=receiver.url)
    house.more_surfaces = [api, broken]
    await house.open()
    assert house.gateway is not None
    status = await house.gateway.status()
    assert {surface.platform: bool(surface.fault) for surface in status.profiles[0].surfaces} == {
        "desk": False,
        "api": False,
        "webhook": True,
    }
