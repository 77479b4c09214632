"""A server that is a child of ours: what it knows, what it leaves behind, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from parley.config.extras import install_command
from parley.config.hands import McpServerSettings
from tests.agent.mcp.house import QUICK, ROOT, alive, call, parsed, raw, real, running, starts
from tests.waiting import until

SECRETS = {"MAIL_TOKEN": "tok-abcdef-123456", "OTHER_KEY": "other-abcdef-123456"}


async def test_it_knows_what_it_is_given_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-gateway")
    settings = real(env={"REGION": "north"}, secrets=["MAIL_TOKEN"])
    async with running(tmp_path, {"t": settings}, secrets=SECRETS) as servers:
        told = parsed(await call(servers, "t__environment"))
    given = told["environment"]
    assert given["REGION"] == "north"
    assert given["MAIL_TOKEN"] == "[redacted]"  # it has it, and the model is not told
    assert set(given) <= {"PATH", "LANG", "HOME", "REGION", "MAIL_TOKEN", "LC_CTYPE"}


async def test_its_home_is_its_own_and_not_where_the_agent_writes(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        told = parsed(await call(servers, "t__environment"))
    home = tmp_path / "mcp" / "t"
    assert told["environment"]["HOME"] == told["folder"] == str(home)
    assert home.stat().st_mode & 0o077 == 0


async def test_a_secret_stands_in_no_log_no_health_and_no_error(tmp_path: Path) -> None:
    settings = real(secrets=["MAIL_TOKEN"])
    async with running(tmp_path, {"t": settings}, secrets=SECRETS) as servers:
        failed = await call(servers, "t__fail", text=f"{SECRETS['MAIL_TOKEN']} is not taken")
        assert not failed.ok
        assert "[redacted] is not taken" in failed.text
        lost = await call(servers, "t__die")
        log = tmp_path / "logs" / "mcp-t.log"
        await until(lambda: log.exists() and "dying with" in log.read_text())
        assert "dying with [redacted]" in log.read_text()
        told = f"{lost} {servers.health()} {servers!r} {servers._servers[0].__dict__}"
        assert SECRETS["MAIL_TOKEN"] not in told


async def test_a_secret_that_is_not_set_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with running(tmp_path, {"t": raw("well", file, secrets=["MAIL_TOKEN"])}) as servers:
        told = servers.health()["t"]
        assert told == "MAIL_TOKEN is not set: `parley config set MAIL_TOKEN`."
    assert not starts(file)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (McpServerSettings(), "either `command` or `url`"),
        (McpServerSettings(command="x", url="http://localhost"), "either `command` or `url`"),
        (McpServerSettings(url="ftp://x"), "must begin with http"),
        (McpServerSettings(url="http://[bad"), "must begin with http"),
        (McpServerSettings(command="no-such-program-anywhere"), "There is no program"),
        (McpServerSettings(command="x", args=["a\0b"]), "NUL"),
        (McpServerSettings(command="/etc/passwd"), "There is no program"),
    ],
)
async def test_what_cannot_be_started_is_told(
    tmp_path: Path, settings: McpServerSettings, told: str
) -> None:
    async with running(tmp_path, {"t": settings, "well": raw("well")}) as servers:
        assert told in servers.health()["t"]
        assert [tool.name for tool in servers.tools()] == ["well__echo"]


async def test_closing_leaves_no_process_not_even_a_stubborn_one(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with running(tmp_path, {"t": raw("stubborn", file), "r": real()}) as servers:
        real_one = parsed(await call(servers, "r__environment"))["pid"]
        server, grandchild = starts(file)
        assert all(alive(pid) for pid in (real_one, server, grandchild))
    assert not alive(real_one)
    assert not alive(server)
    # Killed with the group by now, and nobody waits for it but the system.
    await until(lambda: not alive(grandchild))


async def test_closing_while_one_starts_leaves_no_process(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with running(tmp_path, {"t": raw("hang", file)}, wait=0.0):
        await until(lambda: starts(file))
    assert not any(alive(pid) for pid in starts(file))


_PARENT = """
import asyncio, sys
from pathlib import Path
from tests.agent.mcp.house import call, parsed, raw, real, running

async def main():
    home = Path(sys.argv[1])
    servers = {"t": raw("deaf", home / "starts"), "r": real()}
    async with running(home, servers) as servers:
        print(parsed(await call(servers, "r__environment"))["pid"], flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of that")
async def test_when_we_are_killed_no_server_outlives_us(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _PARENT, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    try:
        assert parent.stdout is not None
        real_one = int(await asyncio.wait_for(parent.stdout.readline(), 60))
        (deaf,) = starts(tmp_path / "starts")
        assert alive(real_one)
        assert alive(deaf)
    finally:
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
    await until(lambda: not alive(real_one) and not alive(deaf))


async def test_names_that_are_paths_stay_in_their_place(tmp_path: Path) -> None:
    async with running(tmp_path, {"../../x": raw("well")}, limits=QUICK) as servers:
        (tool,) = servers.tools()
        assert tool.name.startswith("-x__echo_")
        assert (await call(servers, tool.name, text="on")).text == "on"
    assert (tmp_path / "mcp" / "-x").is_dir()


async def test_without_the_library_one_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
sys.modules["mcp"] = None
from parley.agent.mcp import McpServers
from parley.config.hands import McpServerSettings
from parley.profiles import Profile

async def main():
    settings = {{"t": McpServerSettings(command={sys.executable!r})}}
    profile = Profile("default", Path({str(tmp_path)!r}))
    servers = McpServers(profile, settings, secret=lambda _: None, environment={{}})
    servers.start()
    await servers.ready(20)
    print(servers.health()["t"], servers.tools())
    await servers.close()

asyncio.run(main())
"""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert out.decode().strip() == (
        f"MCP servers need a part that is not installed: run `{install_command('mcp')}`. ()"
    )


async def test_the_library_is_not_loaded_until_a_server_is_set_up() -> None:
    program = (
        "import sys, parley.agent.mcp, parley.agent.skills; "
        "print([name for name in sys.modules if name.split('.')[0] in {'mcp', 'httpx2'}])"
    )
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert out.decode().strip() == "[]"
