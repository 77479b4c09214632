"""`web_fetch` reaches what it may, on every hop, and connects to what was checked."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from parley.agent.tools.web.connection import pinned_session
from parley.agent.tools.web.destination import Vetted, destination_of
from tests.agent.tools.web.reader import Reader
from tests.servers.web_site import WebSite

NOT_OPEN = "is not on the open internet"

INWARD = [
    "http://127.0.0.1:{port}/secret",
    "http://localhost:{port}/secret",
    "http://localhost.:{port}/secret",
    "http://127.1:{port}/secret",
    "http://2130706433:{port}/secret",
    "http://0x7f000001:{port}/secret",
    "http://017700000001:{port}/secret",
    "http://0.0.0.0:{port}/secret",
    "http://[::]:{port}/secret",
    "http://[::1]:{port}/secret",
    "http://[::ffff:127.0.0.1]:{port}/secret",
    "http://[::127.0.0.1]:{port}/secret",
    "http://[2002:7f00:1::]:{port}/secret",
    "http://[64:ff9b::127.0.0.1]:{port}/secret",
    "http://127.0.0.1%2f@example.org:{port}/secret",
    "http://example.org@127.0.0.1:{port}/secret",
    "http://①②⑦.⓪.⓪.①:{port}/secret",
    "//127.0.0.1:{port}/secret",
    "http://inward.test:{port}/secret",
    "http://mixed.test:{port}/secret",
    "http://169.254.169.254/latest/meta-data/",
    "http://metadata.test/computeMetadata/v1/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://100.100.100.200/latest/meta-data/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/secret",
]


def knows_names(reader: Reader) -> Reader:
    reader.names.means("front.test", ["127.0.0.1"])
    reader.names.means("inward.test", ["127.0.0.1"])
    reader.names.means("mixed.test", ["8.8.8.8", "127.0.0.1"])
    reader.names.means("metadata.test", ["169.254.169.254"])
    return reader


async def test_a_page_of_an_allowed_private_host_is_read(site: WebSite, reader: Reader) -> None:
    url = site.has("/page", "<h1>Hello</h1>")
    result = await reader.reads(url)
    assert result.ok
    assert "# Hello" in result.text
    assert url in result.text


@pytest.mark.parametrize("inward", INWARD)
async def test_no_address_inside_is_fetched(site: WebSite, inward: str) -> None:
    site.has("/secret", "the secret")
    reader = knows_names(Reader())
    url = inward.format(port=site.port)
    result = await reader.reads(f"http:{url}" if url.startswith("//") else url)
    assert not result.ok
    assert result.text.endswith(".")
    assert site.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("inward", INWARD)
async def test_no_redirect_leads_inside(site: WebSite, inward: str, status: int) -> None:
    site.has("/secret", "the secret")
    site.redirects("/", inward.format(port=site.port), status=status)
    reader = knows_names(Reader(allow=[f"front.test:{site.port}"]))
    result = await reader.reads(site.url(host="front.test"))
    assert not result.ok
    assert "the secret" not in result.text
    assert site.paths == ["/"]


async def test_a_redirect_is_followed_and_the_last_address_is_told(
    site: WebSite, reader: Reader
) -> None:
    site.redirects("/old", "../new?a=b#part")
    site.has("/new", "<p>moved here</p>")
    result = await reader.reads(site.url("/old"))
    assert "moved here" in result.text
    assert site.url("/new?a=b") in result.text


async def test_five_redirects_are_enough(site: WebSite, reader: Reader) -> None:
    for number in range(7):
        site.redirects(f"/{number}", f"/{number + 1}")
    site.has("/7", "arrived")
    assert "arrived" in (await reader.reads(site.url("/2"))).text
    site.requests.clear()
    result = await reader.reads(site.url("/1"))
    assert result.text == "The page was redirected more than 5 times."
    assert len(site.requests) == 6


@pytest.mark.parametrize("target", ["http://", "http://[", "http://x:y/", "\udcff", "http:///"])
async def test_a_redirect_to_nowhere_is_told(site: WebSite, reader: Reader, target: str) -> None:
    site.redirects("/", target)
    assert not (await reader.reads(site.url())).ok


async def test_nothing_is_carried_along(site: WebSite, reader: Reader) -> None:
    site.has("/first", "x", status=302, Location="/second", Set_Cookie="a=b")
    site.has("/second", "<p>fine</p>")
    assert (await reader.reads(site.url("/first"))).ok
    names = {name.lower() for name in site.requests[1].headers}
    assert names == {"host", "user-agent", "accept", "accept-encoding", "connection"}


async def test_no_proxy_of_the_environment_is_used(
    site: WebSite, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await reader.reads(site.has("/", "<p>direct</p>"))).ok


async def test_a_name_is_resolved_once_for_each_hop(site: WebSite) -> None:
    async with WebSite(host="127.0.0.2") as trap:
        reader = Reader(allow=["turning.test"])
        reader.names.means("turning.test", ["127.0.0.1"], ["127.0.0.2"])
        site.has("/", "<p>the one that was checked</p>")
        result = await reader.reads(site.url(host="turning.test"))
        assert "the one that was checked" in result.text
        assert reader.names.asked == ["turning.test"]
        assert trap.requests == []


async def test_a_name_that_turns_inward_between_two_hops_is_refused(site: WebSite) -> None:
    reader = Reader(allow=[f"front.test:{site.port}"])
    reader.names.means("front.test", ["127.0.0.1"])
    reader.names.means("turning.test", ["127.0.0.1"], ["8.8.8.8"])
    site.redirects("/", site.url("/secret", host="turning.test"))
    site.has("/secret", "the secret")
    result = await reader.reads(site.url(host="front.test"))
    assert NOT_OPEN in result.text
    assert site.paths == ["/"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_connection_goes_to_no_address_that_was_not_vetted(
    site: WebSite, host: str
) -> None:
    destination = destination_of(site.url(host=host), ())
    async with pinned_session(Vetted(destination, ("192.0.2.1",))) as session:
        with pytest.raises(OSError):
            await session.get(site.url(host="127.0.0.1"))
        with pytest.raises(OSError):
            await session.get(site.url(host="another.test"))
    assert site.requests == []


async def test_a_name_nobody_knows_is_told(reader: Reader) -> None:
    result = await reader.reads("http://nobody.invalid/")
    assert result.text == "No address was found for nobody.invalid."
    reader.names.means("empty.test", [])
    assert not (await reader.reads("http://empty.test/")).ok


@pytest.mark.parametrize("name", ["xn--", "xn--a", "xn--99999999", "-", "_", "a-.test"])
async def test_a_strange_name_is_told(site: WebSite, name: str) -> None:
    site.has("/", "<p>fine</p>")
    reader = Reader(allow=[name])
    assert not (await reader.reads(f"http://{name}:1/")).ok
    reader.names.means(name, ["127.0.0.1"])
    result = await reader.reads(site.url(host=name))
    assert result.ok or result.text.endswith(".")


async def test_a_closed_port_is_told(site: WebSite) -> None:
    result = await Reader(allow=["127.0.0.1"]).reads("http://127.0.0.1:1/")
    assert result.text == "127.0.0.1 could not be reached, or broke off."


def certificate(folder: Path, name: str) -> Path:
    """A certificate that signs itself, and its key, in one file."""
    made = folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(made), "-out", "-"]
    try:
        shown = subprocess.run(command, check=True, capture_output=True).stdout
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate for this test")
    made.write_bytes(made.read_bytes() + shown)
    return made


async def test_the_certificate_is_checked_against_the_name_and_not_the_address(
    tmp_path: Path,
) -> None:
    both = certificate(tmp_path, "pages.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(both)
    greeted: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: greeted.append(name)
    trusting = ssl.create_default_context(cafile=str(both))
    async with WebSite(tls=server) as site:
        hosts = ["pages.test", "other.test", "127.0.0.1"]
        reader = Reader(allow=hosts, tls=trusting)
        reader.names.means("pages.test", ["127.0.0.1"])
        reader.names.means("other.test", ["127.0.0.1"])
        site.has("/", "<p>over TLS</p>")
        assert "over TLS" in (await reader.reads(site.url(host="pages.test"))).text
        wrong = await reader.reads(site.url(host="other.test"))
        assert wrong.text == "The certificate of other.test is not valid."
        assert not (await reader.reads(site.url())).ok
        assert greeted[:2] == ["pages.test", "other.test"]
        assert len(site.requests) == 1
        untrusting = Reader(allow=["pages.test"])
        untrusting.names.means("pages.test", ["127.0.0.1"])
        assert not (await untrusting.reads(site.url(host="pages.test"))).ok
