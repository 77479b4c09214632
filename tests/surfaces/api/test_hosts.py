"""Under which names the server answers: a page whose own name points here is refused everywhere."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

import pytest

from parley.config.settings import GatewayConfig
from parley.surfaces.agent_ws.surface import PATH, AgentWsSurface
from parley.surfaces.api.routes import ROUTES
from parley.surfaces.api.surface import ApiSurface
from parley.surfaces.webhook.hub import WebhookHub
from tests.gateway.house import House
from tests.servers.api_server import an_api, bearer
from tests.surfaces.api.served import Served, a_key, served_api


async def speak(api: ApiSurface, wire: bytes) -> bytes:
    """All that comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(api.where).port)
    try:
        writer.write(wire)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.transport.abort()


async def status_for(
    served: Served, host: str | None, path: str = "/readyz", more: str = ""
) -> int:
    """What a request with this `Host` gets; None leaves the header out."""
    named = "" if host is None else f"Host: {host}\r\n"
    wire = f"GET {path} HTTP/1.1\r\n{named}{more}Connection: close\r\n\r\n"
    return int((await speak(served.api, wire.encode())).split()[1])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8642",
        "127.8.9.10:1",
        "localhost",
        "LocalHost:8642",
        "localhost.",
        "localhost.:8642",
        "[::1]",
        "[::1]:8642",
        "[0:0:0:0:0:0:0:1]:80",
        "[::ffff:127.0.0.1]",
    ],
)
async def test_this_machine_is_known_by_its_own_names(served: Served, host: str) -> None:
    assert await status_for(served, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "EVIL.example.",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "localhost@evil.example",
        "evil.example#localhost",
        "localhost,evil.example",
        "localhost:8642:1",
        "localhost:port",
        "[::2]",
        "[evil.example]",
        "192.168.1.20",
        "2130706433",
        "",
        ".",
        ":8642",
    ],
)
async def test_another_name_is_refused(served: Served, host: str) -> None:
    assert await status_for(served, host) == 421


async def test_a_forwarded_name_changes_nothing(served: Served) -> None:
    forwarded = "X-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n"
    assert await status_for(served, "evil.example", more=forwarded) == 421
    forwarded = "X-Forwarded-Host: evil.example\r\n"
    assert await status_for(served, "localhost", more=forwarded) == 200


async def test_old_health_checks_that_name_no_host_are_answered(served: Served) -> None:
    wire = await speak(served.api, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert b" 200 " in wire[:16]
    assert await status_for(served, None) in {400, 421}


async def test_the_refusal_says_what_to_set(served: Served) -> None:
    wire = await speak(served.api, b"GET /readyz HTTP/1.0\r\nHost: Agent.example.org:80\r\n\r\n")
    told = json.loads(wire.partition(b"\r\n\r\n")[2])["error"]
    assert told["code"] == "unknown_host"
    assert told["message"] == (
        "This server does not know itself as agent.example.org; if that is its name, set "
        "gateway.public_url to its address, or add agent.example.org to the setting gateway.hosts."
    )


async def test_what_is_no_name_is_not_repeated(served: Served) -> None:
    wire = await speak(served.api, b"GET / HTTP/1.0\r\nHost: <b>evil</b>\r\n\r\n")
    assert (b" 421 " in wire[:16], b"evil" in wire) == (True, False)


async def test_every_address_is_behind_it(house: House) -> None:
    hub, direct = WebhookHub(), AgentWsSurface()
    hub.enrol("default", "t" * 32)
    api = an_api(house.profile, mounted=[hub, direct])
    house.more_surfaces = [direct, api]
    await house.open()
    key = "".join(f"{name}: {value}\r\n" for name, value in bearer(house.profile).items())
    asked = {(route.method, route.path) for route in ROUTES}
    asked |= {("GET", f"/p/default{path}") for _, path in asked}
    asked |= {("POST", "/webhook"), ("GET", PATH), ("GET", "/"), ("GET", "/none"), ("OPTIONS", "/")}
    for method, path in sorted(asked):
        head = f"{method} {path} HTTP/1.1\r\nHost: evil.example\r\n{key}Connection: close\r\n\r\n"
        wire = await speak(api, head.encode())
        assert b" 421 " in wire[:16], (method, path)
    await house.close()


async def test_the_public_address_and_further_hosts_are_known(house: House) -> None:
    network = GatewayConfig(
        public_url="https://Agent.example.org:8443/parley/", hosts=["parley.lan.", "fd00::7"]
    )
    async with served_api(house, network=network) as served:
        for host in ("agent.example.org", "agent.example.org:8443", "AGENT.EXAMPLE.ORG."):
            assert await status_for(served, host) == 200
        for host in ("Parley.lan:80", "[fd00:0::7]:8642", "127.0.0.1"):
            assert await status_for(served, host) == 200
        for host in ("example.org", "x.agent.example.org", "lan", "[fd00::8]"):
            assert await status_for(served, host) == 421


async def test_our_own_page_may_ask_under_the_public_address(house: House) -> None:
    network = GatewayConfig(public_url="https://agent.example.org:443")
    async with served_api(house, network=network) as served:
        for origin, status in (
            ("https://agent.example.org", 200),
            ("https://evil.example", 403),
        ):
            more = f"Origin: {origin}\r\n"
            assert await status_for(served, "agent.example.org", "/readyz", more) == status


async def test_on_every_address_each_address_is_known_and_no_name(house: House) -> None:
    a_key(house.profile)
    network = GatewayConfig(public_url="https://agent.example.org")
    async with served_api(house, network=network, host="0.0.0.0") as served:
        for host in ("192.168.1.20:8642", "10.0.0.7", "[fe80::1]", "localhost"):
            assert await status_for(served, host) == 200
        assert await status_for(served, "evil.example") == 421
