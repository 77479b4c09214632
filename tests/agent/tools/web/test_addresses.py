"""No address outside the open internet is reached, however it is written."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.tools import ToolError
from parley.agent.tools.web.addresses import is_ours, is_public
from parley.agent.tools.web.destination import destination_of, vet

PRIVATE_4 = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    "168.63.129.16/32",
)
PRIVATE_6 = (
    *("::/128", "::1/128", "::ffff:0:0/96", "64:ff9b:1::/48", "100::/64", "2001::/32"),
    *("2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10"),
    *("fec0::/10", "ff00::/8", "fd00:ec2::254/128"),
)


async def numeric(host: str, port: int) -> Sequence[str]:
    """The system's reading of every form of an address; it asks no server."""
    found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
    return [str(entry[4][0]) for entry in found]


async def is_refused(url: str) -> bool:
    try:
        await vet(destination_of(url, ()), numeric)
    except ToolError:
        return True
    return False


def in_4(network: str) -> st.SearchStrategy[IPv4Address]:
    return st.ip_addresses(v=4, network=IPv4Network(network)).map(lambda a: IPv4Address(int(a)))


def in_6(network: str) -> st.SearchStrategy[IPv6Address]:
    return st.ip_addresses(v=6, network=IPv6Network(network)).map(lambda a: IPv6Address(int(a)))


def forms_4(address: IPv4Address) -> list[str]:
    number = int(address)
    a, b, c, d = address.packed
    high, low = number >> 16, number & 0xFFFF
    return [
        str(address),
        f"{address}.",
        str(number),
        f"{number:#x}",
        f"0{number:o}",
        f"{number:#X}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a}.{b}.{low}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a:03}.{b:03}.{c:03}.{d:03}",
        f"{a:#x}.{b}.0{c:o}.{d}",
        f"{a}%2e{b}%2e{c}%2e{d}",
        f"{a}。{b}。{c}。{d}",
        str(address).translate({ord("0") + i: ord("０") + i for i in range(10)}),
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[0:0:0:0:0:ffff:{address}]",
        f"[::{address}]",
        f"[2002:{high:x}:{low:x}::1]",
        f"[64:ff9b::{address}]",
        f"[64:ff9b:1::{address}]",
        f"[::ffff:0:{address}]",
    ]


@given(st.sampled_from(PRIVATE_4).flatmap(in_4), st.sampled_from(["http", "https", "HTTP"]))
async def test_no_private_ipv4_address_is_reached_in_any_form(
    address: IPv4Address, scheme: str
) -> None:
    assert not is_public(str(address))
    for form in forms_4(address):
        assert await is_refused(f"{scheme}://{form}/"), form
        assert await is_refused(f"{scheme}://{form}:8080/x?y#z"), form


@given(st.sampled_from(PRIVATE_6).flatmap(in_6))
async def test_no_private_ipv6_address_is_reached_in_any_form(address: IPv6Address) -> None:
    assert not is_public(str(address))
    for form in (str(address), address.exploded, str(address).upper(), f"{address}%25eth0"):
        assert await is_refused(f"http://[{form}]/"), form
        assert await is_refused(f"https://[{form}]:8443/"), form


@given(st.sampled_from(PRIVATE_4).flatmap(in_4))
def test_an_ipv4_address_is_found_inside_others(address: IPv4Address) -> None:
    teredo = IPv6Address((0x20010000 << 96) | (int(address) ^ 0xFFFFFFFF))
    for text in (f"::ffff:{address}", f"64:ff9b::{address}", f"::{address}", str(teredo)):
        assert not is_public(text)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"],
)
async def test_an_address_of_the_open_internet_is_reached(address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    assert is_public(address)
    assert not await is_refused(f"http://{shown}/")


def test_the_internet_is_reached_from_a_network_without_ipv4() -> None:
    assert is_public("64:ff9b::8.8.8.8")


@pytest.mark.parametrize("text", ["", "localhost", "8.8.8.8/32", "008.8.8.8", "fe80::1%eth0", "x"])
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "example.org", "//example.org/", "http://", "http:///x", "https:example.org"),
        *("file:///etc/passwd", "ftp://example.org/", "gopher://example.org/", "data:text/html,x"),
        *("javascript:alert(1)", "unix:///run/docker.sock", "http+unix://x/", "ws://example.org"),
        *("http://user@example.org/", "http://user:word@example.org/", "http://:@example.org/"),
        *("http://example.org:22/", "http://example.org:25/", "http://example.org:0/"),
        *("http://example.org:99999/", "http://example.org:x/", "http://8.8.8.8:445/"),
        *("http://exam%70le.org/", "http://exa mple.org/", "http://example..org/", "http://./"),
        *(
            "http://exam\tple.org/",
            "http://example.org/\r\nX: y",
            "http://example.org\\@127.0.0.1/",
        ),
        *(
            "http:\\\\example.org\\",
            "http://[::1",
            "http://::1/",
            "http://[8.8.8.8]/",
            "http://[]/",
        ),
        *("http://256.1.1.1/", "http://1.1.1.1.1/", "http://0x/", "http://1/"),
        *("http://134744072/", "http://0x8.8.8.8/", "http://010.8.8.8/", "http://8.8.2056/"),
        *("http://example.0x7f/", "http://example.1/"),
        *(
            "http://" + "a" * 64 + ".org/",
            "http://" + "a." * 127 + "org/",
            "http://x/" + "y" * 4000,
        ),
    ],
)
def test_what_is_not_plainly_a_web_address_is_refused_in_a_sentence(url: str) -> None:
    with pytest.raises(ToolError) as refusal:
        destination_of(url, ())
    assert str(refusal.value).endswith(".")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.ORG./a%20b?c=d#e", "example.org"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://example.org:8443/", "example.org"),
        ("  http://under_score.example.org/ ", "under_score.example.org"),
    ],
)
def test_a_host_has_one_form(url: str, host: str) -> None:
    destination = destination_of(url, ())
    assert destination.host == destination.url.raw_host == host
    assert not destination.url.raw_fragment


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("127.0.0.1", "http://127.0.0.1:9/", True),
        ("127.0.0.1:9", "http://127.0.0.1:9/", True),
        ("127.0.0.1:9", "http://127.0.0.1:8080/", False),
        ("127.0.0.1", "http://127.1/", False),
        ("127.0.0.1", "http://2130706433/", False),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/", False),
        ("wiki.corp", "http://wiki.corp/", True),
        ("Wiki.Corp:8443", "https://WIKI.corp.:8443/", True),
        ("wiki.corp:80", "http://wiki.corp/", True),
        ("wiki.corp:80", "https://wiki.corp/", False),
        ("wiki.corp", "http://x.wiki.corp/", False),
        ("wiki.corp", "http://wiki.corp.example.org/", False),
        ("wiki", "http://wiki.corp/", False),
        ("*", "http://10.0.0.1/", False),
        ("::1", "http://[::1]:9/", True),
        ("[::1]:9", "http://[::1]:9/", True),
        ("[::1]:9", "http://[::1]:8080/", False),
        ("[::1]", "http://[0:0::1]/", True),
        ("::1:9", "http://[::1]:9/", False),
    ],
)
def test_the_operator_allows_a_host_exactly_as_it_is_written(
    entry: str, url: str, allowed: bool
) -> None:
    try:
        assert destination_of(url, [entry]).allowed == allowed
    except ToolError:
        assert not allowed


def test_an_address_of_this_machine_is_known_as_such() -> None:
    assert is_ours("127.0.0.1")
    assert not is_ours("8.8.8.8")
    assert not is_ours("2001:4860:4860::8888")
    assert not is_ours("no address")


_AS_8_8_8_8 = """
import asyncio, subprocess
from parley.agent.tools import ToolError
from parley.agent.tools.web.destination import destination_of, resolve_name, vet
for command in ("link set lo up", "addr add 8.8.8.8/32 dev lo"):
    subprocess.run(["ip", *command.split()], check=True)
try:
    asyncio.run(vet(destination_of("http://8.8.8.8:8000/", ()), resolve_name))
    print("let in")
except ToolError:
    print("refused")
"""


def test_a_public_address_that_is_our_own_is_refused() -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no network of one's own can be made here")
    apart = ("unshare", "--map-root-user", "--net")
    if subprocess.run([*apart, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("no network of one's own can be made here")
    done = subprocess.run([*apart, sys.executable, "-c", _AS_8_8_8_8], capture_output=True)
    assert done.stdout.strip() == b"refused", done.stderr
