"""`parley doctor` says of each MCP server whether it can be used, and starts none."""

from __future__ import annotations

from pathlib import Path

from parley.cli._checks.mcp import check_mcp
from parley.cli._checks.settings import Ground
from parley.config.hands import McpServerSettings
from parley.config.settings import Settings
from parley.profiles import Profile
from tests.agent.mcp.house import http_server, raw, starts
from tests.servers.ports import free_port


def ground(home: Path, **servers: McpServerSettings) -> Ground:
    return Ground(Profile("default", home), Settings(mcp=servers))


async def test_without_servers_nothing_is_said(tmp_path: Path) -> None:
    assert await check_mcp(ground(tmp_path), offline=False) == []
    assert await check_mcp(Ground(Profile("default", tmp_path)), offline=False) == []


async def test_programs_are_looked_for_and_not_started(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    good, bad = raw("well", file), McpServerSettings(command="no-such-program")
    keyless = raw("well", file, secrets=["MAIL_TOKEN"])
    found = await check_mcp(ground(tmp_path, bad=bad, good=good, keyless=keyless), offline=False)
    assert [finding.level for finding in found] == ["fault", "ok", "fault"]
    assert "There is no program" in found[0].what
    assert "MAIL_TOKEN is not set" in found[2].what
    assert not starts(file)
    assert not list(tmp_path.iterdir())


async def test_addresses_are_greeted_unless_offline(tmp_path: Path) -> None:
    port, closed = free_port(), free_port()
    servers = {
        "far": McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"),
        "gone": McpServerSettings(url=f"http://127.0.0.1:{closed}/mcp"),
    }
    async with http_server(port):
        found = await check_mcp(ground(tmp_path, **servers), offline=False)
    assert [finding.level for finding in found] == ["ok", "ok", "note"]
    assert f"`gone`: Nobody answers at http://127.0.0.1:{closed}." in found[2].what
    offline = await check_mcp(ground(tmp_path, **servers), offline=True)
    assert [finding.level for finding in offline] == ["ok", "ok"]
