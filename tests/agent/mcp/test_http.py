"""A server at an address, over real HTTP on loopback."""

from __future__ import annotations

import json
import resource
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.config.hands import McpServerSettings
from tests.agent.mcp.house import QUICK, call, http_server, raw, running
from tests.servers.ports import free_port
from tests.servers.raw_sse import Answer, RawServer, Seen
from tests.waiting import until


def at(port: int, **more: Any) -> McpServerSettings:
    return McpServerSettings(url=f"http://127.0.0.1:{port}/mcp", **more)


async def test_tools_are_listed_and_called(tmp_path: Path) -> None:
    port = free_port()
    async with http_server(port), running(tmp_path, {"t": at(port)}) as servers:
        assert (await call(servers, "t__echo", text="hello")).text == "hello"
        assert not (await call(servers, "t__fail", text="no")).ok
        await call(servers, "t__grow", name="leaf")
        await until(lambda: any(tool.name == "t__leaf" for tool in servers.tools()))
        assert servers.health() == {}
    assert not (tmp_path / "logs").exists()


async def test_the_token_is_sent_and_a_wrong_one_is_told_without_it(tmp_path: Path) -> None:
    port = free_port()
    settings = {"t": at(port, token_env="MCP_TOKEN")}
    async with http_server(port, "right-token-1234"):
        async with running(tmp_path, settings, secrets={"MCP_TOKEN": "right-token-1234"}) as good:
            assert (await call(good, "t__echo", text="in")).text == "in"
        async with running(tmp_path, settings, secrets={"MCP_TOKEN": "wrong-token-1234"}) as bad:
            told = bad.health()["t"]
            assert f"http://127.0.0.1:{port} does not take the token (HTTP 401)." in told
            assert "wrong-token" not in told
            assert bad.tools() == ()


async def test_nobody_there_is_told_and_tried_again(tmp_path: Path) -> None:
    port = free_port()
    settings = {"t": at(port), "well": raw("well")}
    async with running(tmp_path, settings) as servers:
        assert f"Nobody answers at http://127.0.0.1:{port}." in servers.health()["t"]
        assert (await call(servers, "well__echo", text="on")).text == "on"
        async with http_server(port):
            await until(lambda: not servers.health())
            assert (await call(servers, "t__echo", text="now")).text == "now"


async def test_one_that_is_killed_and_comes_back_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    limits = replace(QUICK, look_every=0.2)
    async with running(tmp_path, {"t": at(port)}, limits=limits) as servers:
        async with http_server(port):
            await until(servers.tools)
            assert (await call(servers, "t__echo", text="one")).text == "one"
        lost = await call(servers, "t__echo", text="two")
        assert not lost.ok
        async with http_server(port):
            await until(lambda: not servers.health())
            deadline = time.monotonic() + 10
            while not (again := await call(servers, "t__echo", text="three")).ok:
                assert time.monotonic() < deadline, again.text
            assert again.text == "three"


async def test_a_late_answer_is_given_up(tmp_path: Path) -> None:
    port = free_port()
    settings = {"t": at(port, timeout_seconds=2.0)}
    async with http_server(port), running(tmp_path, settings) as servers:
        began = time.monotonic()
        assert "took longer" in (await call(servers, "t__sleep", seconds=60)).text
        assert time.monotonic() - began < 50
        assert (await call(servers, "t__echo", text="on")).text == "on"


def _scripted(result: bytes, **headers: str) -> Any:
    def script(seen: Seen) -> Answer | None:
        if seen.method != "POST":
            return Answer(status=405)
        request = seen.json
        if "id" not in request:
            return Answer(status=202)
        kind = {"Content-Type": "application/json"}
        known: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "get", "inputSchema": {"type": "object"}}]},
            "ping": {},
        }
        if request["method"] in known:
            body = {"jsonrpc": "2.0", "id": request["id"], "result": known[request["method"]]}
            return Answer([json.dumps(body).encode()], headers=kind)
        return Answer([result] * 64, headers={**kind, **headers})

    return script


def _bomb() -> bytes:
    """A small text that is 200 MB when unpacked, made without ever having so much of it."""
    packer = zlib.compressobj(wbits=31)
    return b"".join([*(packer.compress(b" " * 1_000_000) for _ in range(200)), packer.flush()])


@pytest.mark.parametrize(
    ("result", "headers"),
    [
        (b" " * 1_000_000, {}),
        (_bomb(), {"Content-Encoding": "gzip"}),
        (b"data: " + b"x" * 1_000_000, {"Content-Type": "text/event-stream"}),
    ],
)
async def test_a_giant_or_packed_answer_takes_no_memory(
    tmp_path: Path, result: bytes, headers: dict[str, str]
) -> None:
    async with RawServer(_scripted(result, **headers)) as far:
        settings = {"t": at(far.port, timeout_seconds=10), "well": raw("well")}
        async with running(tmp_path, settings) as servers:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            refused = await call(servers, "t__get")
            assert not refused.ok
            assert "took longer" not in refused.text
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000
            assert (await call(servers, "well__echo", text="on")).text == "on"


async def test_a_hanging_address_delays_nobody(tmp_path: Path) -> None:
    async with RawServer(lambda seen: Answer(ending="hold")) as far:
        settings = {"t": at(far.port), "well": raw("well")}
        began = time.monotonic()
        async with running(tmp_path, settings, wait=1.5) as servers:
            assert time.monotonic() - began < QUICK.begin
            await until(servers.tools)
            assert [tool.name for tool in servers.tools()] == ["well__echo"]
