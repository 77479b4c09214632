"""Floods of connections without a key: everybody else keeps being served while they last."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from parley.surfaces.agent_ws.surface import AgentWsSurface
from parley.surfaces.api import connection_limits
from parley.surfaces.api.connection_limits import LOCAL, address_group, mark_authenticated
from parley.surfaces.api.site import Site, SiteLimits
from parley.surfaces.webhook.hub import WebhookHub
from tests.gateway.house import House
from tests.servers.api_server import an_api, bearer
from tests.surfaces.api.raw import Raw, a_site, both_loops
from tests.surfaces.api.served import Served
from tests.waiting import until

event_loop_policy = both_loops
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy"')

HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-A: "


async def say_ok(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def with_a_key(request: web.Request) -> web.StreamResponse:
    mark_authenticated(request)
    return web.Response(text="ok")


async def connect(port: int, wire: bytes = b"") -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(sock, ("127.0.0.1", port))
        if wire:
            await loop.sock_sendall(sock, wire)
    except OSError:
        sock.close()
        raise
    return sock


@asynccontextmanager
async def flood(port: int, count: int, wire: bytes = HALF) -> AsyncIterator[list[socket.socket]]:
    """So many connections that send this and then nothing; a new one for each that is closed."""
    held: list[socket.socket] = []
    going = True

    async def keep_up() -> None:
        while going:
            for number, sock in enumerate(held):
                try:
                    gone = sock.recv(1) == b""
                except BlockingIOError:
                    gone = False
                except OSError:
                    gone = True
                if gone:
                    sock.close()
                    held[number] = await connect(port, wire)
            await asyncio.sleep(0.05)

    task = None
    try:
        for _ in range(count):
            held.append(await connect(port, wire))
        task = asyncio.create_task(keep_up())
        yield held
    finally:
        going = False
        if task is not None:
            await task
        for sock in held:
            sock.close()


def port_of(served: Served) -> int:
    return urlsplit(served.api.where).port or 0


# ── the whole server ──


@pytest.mark.timeout(300)
async def test_two_thousand_half_open_connections_keep_nobody_out(house: House) -> None:
    hub, direct = WebhookHub(), AgentWsSurface()
    hub.enrol("default", "t" * 32)
    api = an_api(house.profile, mounted=[hub, direct])
    house.more_surfaces = [direct, api]
    await house.open()
    key = "".join(f"{name}: {value}\r\n" for name, value in bearer(house.profile).items())
    asked = {
        "GET /readyz": ("", 200),
        "GET /v1/models": (key, 200),
        "POST /webhook": ("", 401),
        "GET /agent_ws/": (key, 426),
    }
    port = urlsplit(api.where).port or 0
    async with flood(port, 2100):
        deadline = time.monotonic() + 4
        rounds = 0
        while time.monotonic() < deadline or rounds < 3:
            rounds += 1
            for line, (more, status) in asked.items():
                head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{more}Connection: close\r\n\r\n"
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode())
                async with asyncio.timeout(30):
                    wire = await reader.read()
                writer.close()
                assert int(wire.split()[1]) == status, line
    await house.close()


# ── the rules ──


async def test_one_address_keeps_only_its_share_of_connections_without_a_key() -> None:
    limits = SiteLimits(connections=200, anonymous_per_address=10, header_seconds=60)
    async with a_site(("GET", "/", with_a_key), limits=limits) as site, Raw(site) as known:
        assert (await known.get()).status == 200
        opened = [await connect(site.port, HALF) for _ in range(100)]
        await until(lambda: site.connections == 11)
        assert (await known.get()).status == 200
        for sock in opened:
            sock.close()


async def test_a_burst_is_not_cut_before_it_could_send_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_limits, "_SETTLED_AFTER", 60.0)
    limits = SiteLimits(connections=200, anonymous_per_address=5, stalled_seconds=0.5)
    async with a_site(("GET", "/", say_ok), limits=limits) as site:
        many = [Raw(site) for _ in range(40)]
        for raw in many:
            await raw.__aenter__()
        answers = await asyncio.gather(*(raw.get() for raw in many))
        assert [answer.status for answer in answers] == [200] * 40
        for raw in many:
            await raw.__aexit__()


async def test_who_showed_a_key_is_not_let_go_and_fills_the_room_in_the_end() -> None:
    limits = SiteLimits(connections=4, local_reserve=0)
    routes = (("GET", "/", say_ok), ("GET", "/key", with_a_key))
    async with (
        a_site(*routes, limits=limits) as site,
        Raw(site) as one,
        Raw(site) as two,
        Raw(site) as three,
        Raw(site) as four,
    ):
        for raw in (one, two, three):
            assert (await raw.get("/key")).status == 200
        assert (await four.get()).status == 200
        async with Raw(site) as five:
            assert (await five.get("/key")).status == 200
            assert await four.rest() == b""  # it had no key
            async with Raw(site) as six:
                assert (await six.answer()).status == 503
            for raw in (one, two, three, five):
                assert (await raw.get("/key")).status == 200


async def addresses(monkeypatch: pytest.MonkeyPatch, site: Site) -> list[str]:
    """Whose each next connection is taken to be; `""` is this machine's."""
    given: list[str] = []
    plain = address_group

    def group(address: object) -> str:
        return plain(given.pop(0) if given else address)

    monkeypatch.setattr("parley.surfaces.api.site.address_group", group)
    assert site.connections == 0
    return given


async def test_the_reserve_is_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = SiteLimits(connections=6, local_reserve=2)
    async with a_site(("GET", "/", with_a_key), limits=limits) as site:
        given = await addresses(monkeypatch, site)
        many = [Raw(site) for _ in range(7)]
        statuses = []
        for number, raw in enumerate(many):
            given.append(f"198.51.100.{number}" if number < 5 else "127.0.0.1")
            await raw.__aenter__()
            statuses.append((await raw.get()).status)
        assert statuses == [200, 200, 200, 200, 503, 200, 200]
        for raw in many:
            await raw.__aexit__()


async def test_the_address_with_the_most_connections_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = SiteLimits(connections=8, local_reserve=2, header_seconds=60)
    async with a_site(("GET", "/", say_ok), limits=limits) as site:
        given = await addresses(monkeypatch, site)
        crowd = [Raw(site) for _ in range(5)]
        for raw in crowd:
            given.append("198.51.100.1")
            await raw.__aenter__()
        given.append("198.51.100.2")
        async with Raw(site) as quiet:
            assert (await quiet.get()).status == 200
            for _ in range(4):
                given.append("198.51.100.3")
                async with Raw(site) as new:
                    assert (await new.get()).status == 200
            assert await crowd[0].rest() == b""
            assert (await quiet.get()).status == 200
        for raw in crowd:
            await raw.__aexit__()


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("127.0.0.1", LOCAL),
        ("127.9.9.9", LOCAL),
        ("::1", LOCAL),
        ("::ffff:127.0.0.1", LOCAL),
        ("", LOCAL),
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2::9%eth0", "2001:0db8:0001:0002"),
    ],
)
def test_addresses_that_one_customer_can_choose_from_are_one(address: str, group: str) -> None:
    assert address_group(address) == group
