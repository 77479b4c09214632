"""HTTPS by certificate files: served, renewed while connections stay open, and flooded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from parley.config.settings import GatewayConfig, TlsSettings
from parley.protocol import ParleyError
from parley.surfaces.api import tls
from parley.surfaces.api.site import Site, SiteLimits
from parley.surfaces.api.tls import CertificateFiles, find_certificate
from tests.gateway.house import House
from tests.servers.api_server import an_api
from tests.servers.certificates import make_certificate, trusting
from tests.surfaces.api.raw import a_site, both_loops
from tests.surfaces.api.served import a_key
from tests.waiting import until

event_loop_policy = both_loops
pytestmark = pytest.mark.filterwarnings('ignore:Overriding the "event_loop_policy"')


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    made = tmp_path / "tls.pem", tmp_path / "tls.key"
    make_certificate(*made)
    return made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at for every connection."""
    monkeypatch.setattr(tls, "_LOOKED_EVERY", 0.0)


async def scheme(request: web.Request) -> web.StreamResponse:
    return web.Response(text=request.scheme)


async def plenty(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"x" * 3_000_000)


class Client:
    """One HTTPS connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def certificate(self) -> bytes:
        found = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found

    async def get(self, path: str = "/") -> bytes:
        self._writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head[:16]
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            return await self._reader.readexactly(length)


@asynccontextmanager
async def client(port: int, trusted: ssl.SSLContext) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusted, server_hostname="localhost"
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def test_requests_are_answered_by_tls_only(files: tuple[Path, Path]) -> None:
    routes = (("GET", "/", scheme), ("GET", "/plenty", plenty))
    async with a_site(*routes, certificate=CertificateFiles(*files)) as site:
        async with client(site.port, trusting(files[0])) as one:
            assert await one.get() == b"https"
            assert len(await one.get("/plenty")) == 3_000_000
            assert await one.get() == b"https"
            assert site.connections == 1
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            assert b"HTTP/" not in await _all(reader)
        writer.close()
        await until(lambda: site.connections == 0)


async def _all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_renewed_certificate_is_used_and_open_connections_go_on(
    files: tuple[Path, Path],
) -> None:
    async with (
        a_site(("GET", "/", scheme), certificate=CertificateFiles(*files)) as site,
        client(site.port, trusting(files[0])) as before,
    ):
        assert await before.get() == b"https"
        make_certificate(*files)
        async with client(site.port, trusting(files[0])) as after:
            assert await after.get() == b"https"
            assert after.certificate != before.certificate
        assert await before.get() == b"https"


async def test_files_that_cannot_be_used_leave_the_old_ones_in_use(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate = CertificateFiles(*files)
    old = trusting(files[0])
    async with a_site(("GET", "/", scheme), certificate=certificate) as site:
        new_key = tmp_path / "new.key"
        make_certificate(files[0], new_key)  # its key is not there yet
        async with client(site.port, old) as one:
            assert await one.get() == b"https"
        assert "does not belong to" in str(certificate.fault)
        new_key.replace(files[1])
        async with client(site.port, trusting(files[0])) as two:
            assert await two.get() == b"https"
        assert str(certificate.fault) == "None"
        files[1].unlink()
        async with client(site.port, trusting(files[0])) as three:
            assert await three.get() == b"https"
        assert "cannot be read" in str(certificate.fault)


async def raw(site: Site) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", site.port))
    return sock


async def test_handshakes_that_never_come_are_counted_and_keep_nobody_out(
    files: tuple[Path, Path],
) -> None:
    limits = SiteLimits(connections=30, anonymous_per_address=10, header_seconds=60)
    certificate = CertificateFiles(*files)
    async with a_site(("GET", "/", scheme), limits=limits, certificate=certificate) as site:
        held = [await raw(site) for _ in range(60)]
        await until(lambda: site.connections > 0)
        async with client(site.port, trusting(files[0])) as one:
            assert await one.get() == b"https"
            assert site.connections <= 30
        await until(lambda: site.connections <= 10)
        for sock in held:
            sock.close()


async def test_a_handshake_has_its_time(files: tuple[Path, Path]) -> None:
    limits = SiteLimits(header_seconds=0.3)
    certificate = CertificateFiles(*files)
    async with a_site(("GET", "/", scheme), limits=limits, certificate=certificate) as site:
        sock = await raw(site)
        await until(lambda: site.connections == 1)
        await until(lambda: site.connections == 0)
        sock.close()


async def test_the_site_closes_while_a_handshake_waits(files: tuple[Path, Path]) -> None:
    async with a_site(("GET", "/", scheme), certificate=CertificateFiles(*files)) as site:
        sock = await raw(site)
        await until(lambda: site.connections == 1)
    sock.close()


# ── what cannot be used ──


def test_bad_files_are_told_in_one_sentence(tmp_path: Path) -> None:
    good, key = tmp_path / "a.pem", tmp_path / "a.key"
    make_certificate(good, key)
    other, other_key = tmp_path / "b.pem", tmp_path / "b.key"
    make_certificate(other, other_key)
    locked, locked_key = tmp_path / "c.pem", tmp_path / "c.key"
    make_certificate(locked, locked_key, "localhost", "-passout", "pass:secret")
    text = tmp_path / "text.pem"
    text.write_text("hello")
    both = tmp_path / "both.pem"
    both.write_bytes(good.read_bytes() + key.read_bytes())

    def told(certificate: str | None, key: str | None) -> str:
        with pytest.raises(ParleyError) as caught:
            find_certificate(TlsSettings(certificate=certificate, key=key), tmp_path)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "none.pem cannot be read: no such file" in told("none.pem", "a.key")
    assert "none.key cannot be read: no such file" in told("a.pem", "none.key")
    assert "b.key does not belong to" in told("a.pem", "b.key")
    assert "is encrypted" in told("c.pem", "c.key")
    assert "are no PEM certificate" in told("text.pem", "a.key")
    assert "are no PEM certificate" in told("a.pem", None)
    assert "without a certificate" in told(None, "a.key")
    assert find_certificate(TlsSettings(), tmp_path) is None
    found = find_certificate(TlsSettings(certificate=str(both)), tmp_path)
    assert found is not None
    assert found.context().minimum_version == ssl.TLSVersion.TLSv1_2


# ── off loopback ──


async def fault_of(house: House, network: GatewayConfig, host: str = "0.0.0.0") -> str | None:
    """What the API says that keeps it from being served there."""
    a_key(house.profile)
    api = an_api(house.profile, host=host, network=network)
    house.more_surfaces = [api]
    await house.open()
    assert house.gateway is not None
    places = (await house.gateway.status()).profiles[0].surfaces
    [told] = [one for one in places if one.platform == "api"]
    await house.close()
    return told.fault


async def test_plain_http_is_not_served_to_other_machines(house: House) -> None:
    told = await fault_of(house, GatewayConfig(public_url="http://agent.example.org"))
    assert told == (
        "HTTP without TLS is not served on 0.0.0.0: set gateway.tls.certificate and "
        "gateway.tls.key, or gateway.public_url to the https:// address of a proxy in front that "
        "terminates TLS, or gateway.host to 127.0.0.1."
    )


async def test_a_proxy_that_terminates_tls_opens_it(house: House) -> None:
    proxied = GatewayConfig(public_url="https://agent.example.org")
    assert await fault_of(house, proxied) is None


async def test_the_api_itself_speaks_https(house: House, files: tuple[Path, Path]) -> None:
    certificate, key = map(str, files)
    network = GatewayConfig(tls=TlsSettings(certificate=certificate, key=key))
    a_key(house.profile)
    api = an_api(house.profile, host="0.0.0.0", network=network)
    house.more_surfaces = [api]
    await house.open()
    assert api.where.startswith("https://0.0.0.0:")
    async with client(int(api.where.rpartition(":")[2]), trusting(files[0])) as one:
        assert await one.get("/readyz") == b'{"ready": true}'
    files[1].write_text("broken")
    async with client(int(api.where.rpartition(":")[2]), trusting(files[0])):
        assert house.gateway is not None
    places = (await house.gateway.status()).profiles[0].surfaces
    [told] = [one for one in places if one.platform == "api"]
    assert told.note is not None
    assert "are no PEM certificate" in told.note
    await house.close()
