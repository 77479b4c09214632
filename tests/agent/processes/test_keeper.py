"""What a keeper does for its command, in the sandbox and without: limits, output, input, end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.agent.processes import keeper
from parley.agent.sandbox import SandboxMode, find_sandbox
from tests.agent.processes.house import House, needs_bubblewrap, open_house, pids_that_hold
from tests.waiting import until

_MODES = [pytest.param("required", marks=needs_bubblewrap), "off"]


@pytest.fixture(params=_MODES)
def mode(request: pytest.FixtureRequest) -> SandboxMode:
    found: SandboxMode = request.param
    return found


@pytest.fixture
async def house(tmp_path: Path, mode: SandboxMode) -> AsyncIterator[House]:
    async with open_house(tmp_path / "home", mode=mode) as house:
        yield house


async def test_a_command_tells_what_it_printed_and_how_it_ended(house: House) -> None:
    process, text = await house.run("p1", "echo out; echo err >&2; exit 7")
    assert (process.state, process.exit_code, process.reason) == ("failed", 7, None)
    assert text == "out\nerr\n"
    assert process.bytes == 8
    assert process.ended_at is not None
    assert process.ended_at >= process.started_at


async def test_success_is_done(house: House) -> None:
    process, text = await house.run("p1", "pwd")
    assert (process.state, process.exit_code) == ("done", 0)
    assert text.strip() == str(house.workspace)


async def test_the_end_is_told_once(house: House) -> None:
    await house.run("p1", "true")
    await house.processes.wait("p1")
    assert [end.process.id for end in house.ended] == ["p1"]


async def test_what_is_read_to_start_it_is_gone_at_once(house: House) -> None:
    await house.start("p1", "sleep 60", environment={"NOTE": "mark-of-the-note"})
    folder = house.home / "processes" / "p1"
    await until((folder / "input").exists)
    assert not (folder / "launch").exists()
    assert {path.stat().st_mode & 0o077 for path in [folder, *folder.iterdir()]} == {0}


async def test_a_time_limit_ends_it_with_what_it_printed(house: House) -> None:
    process, text = await house.run("p1", "echo first; sleep 60", timeout=0.5)
    assert (process.state, process.reason) == ("killed", "timeout")
    assert text == "first\n"


async def test_it_may_tidy_up_when_it_is_ended(house: House) -> None:
    await house.start("p1", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    await _printed(house, "p1", "ready")
    process = await house.processes.kill("p1")
    assert (process.state, process.reason) == ("killed", "killed")
    assert "bye" in (await house.processes.output("p1", 1000)).text


async def test_who_will_not_end_is_killed(house: House) -> None:
    await house.start("p1", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    await _printed(house, "p1", "ready")
    process = await house.processes.kill("p1")
    assert process.state == "killed"


async def test_all_that_it_started_goes_with_it(house: House) -> None:
    mark = "31.0414"
    command = (
        f"setsid sleep {mark}1 & nohup sleep {mark}2 & (setsid setsid sleep {mark}3 &) & "
        f"trap '' TERM; echo ready; sleep {mark}4; sleep {mark}5"
    )
    await house.start("p1", command)
    await until(lambda: len([p for p in pids_that_hold(mark) if _name(p) == "sleep"]) == 4)
    await house.processes.kill("p1")
    assert pids_that_hold(mark) == []


async def test_what_runs_on_beyond_the_command_ends_with_it(house: House) -> None:
    mark = "32.0415"
    process, _ = await house.run("p1", f"setsid sleep {mark} & disown; exit 0")
    assert process.exit_code == 0
    assert pids_that_hold(mark) == []


async def test_an_endless_output_costs_little(tmp_path: Path, mode: SandboxMode) -> None:
    async with open_house(tmp_path / "home", mode=mode, output_kb=64) as house:
        process, text = await house.run("p1", "yes | head -c 300000000; echo the end")
        assert process.bytes == 300_000_008
        assert text.endswith("y\ny\nthe end\n")
        assert len(text) <= 64 * 1024
        assert house.files("p1") < 80 * 1024
        output = await house.processes.output("p1", 10)
        assert (output.text, output.dropped) == ("y\nthe end\n", 299_999_998)


async def test_an_endless_output_is_ended_in_the_midst(tmp_path: Path, mode: SandboxMode) -> None:
    async with open_house(tmp_path / "home", mode=mode, output_kb=64) as house:
        await house.start("p1", "yes")
        await _printed(house, "p1", "y")
        process = await house.processes.kill("p1")
        assert process.state == "killed"
        assert house.files("p1") < 80 * 1024


def test_a_pid_that_went_to_another_process_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert not keeper._signal_ours(process.pid, {1}, signal.SIGKILL)
            assert process.poll() is None
            assert keeper._signal_ours(process.pid, {os.getpid()}, signal.SIGKILL)
            assert process.wait(30) == -signal.SIGKILL
        finally:
            process.kill()


@needs_bubblewrap
async def test_a_fork_bomb_is_ended_as_a_whole(tmp_path: Path) -> None:
    """It ends itself after some five hundred, which is enough to starve no other test."""
    mark = "bomb_33_0416"
    again = f"{mark} $(($1 - 1))"
    bomb = f"{mark}() {{ [ $1 -gt 0 ] || exec sleep 20; {again} | {again} & }}; {mark} 8; sleep 60"
    async with open_house(tmp_path / "home", mode="required", processes=50) as house:
        process, _ = await house.run("p1", bomb)
        assert (process.state, process.reason) == ("killed", "too many processes")
        assert pids_that_hold(mark) == []


@pytest.mark.parametrize("start", ["", "setsid "])
async def test_what_doubles_itself_is_ended_as_a_whole(
    tmp_path: Path, mode: SandboxMode, start: str
) -> None:
    """Twice as many at each step, but not for ever: where it is not ended, it ends itself."""
    async with open_house(tmp_path / "home", mode=mode, processes=50) as house:
        double = house.workspace / "double_33_0417.sh"
        again = f"{start}bash {double} $(($1 - 1)) &"
        double.write_text(f"[ $1 -gt 0 ] || exec sleep 20\n{again}\n{again}\nwait\n")
        process, _ = await house.run("p1", f"bash {double} 8")
        assert (process.state, process.reason) == ("killed", "too many processes")
        assert pids_that_hold(double.name) == []


async def test_many_sleepers_are_too_many_as_well(tmp_path: Path, mode: SandboxMode) -> None:
    mark = "34.0417"
    async with open_house(tmp_path / "home", mode=mode, processes=20) as house:
        command = f"for i in $(seq 30); do setsid sleep {mark} & sleep 0.02; done; wait"
        process, _ = await house.run("p1", command)
        assert process.reason == "too many processes"
        assert pids_that_hold(mark) == []


async def test_memory_and_files_have_a_limit(tmp_path: Path, mode: SandboxMode) -> None:
    async with open_house(tmp_path / "home", mode=mode, memory_mb=300, file_mb=2) as house:
        process, text = await house.run("p1", "python3 -c 'bytearray(500_000_000)'")
        assert process.exit_code != 0
        assert "MemoryError" in text
        process, _ = await house.run("p2", "head -c 5000000 /dev/zero > big")
        assert process.exit_code != 0
        assert (house.workspace / "big").stat().st_size == 2 * 1024 * 1024


async def test_no_core_is_left_and_no_right_is_gained(house: House) -> None:
    _, text = await house.run(
        "p1", "ulimit -c; ulimit -n; umask; grep NoNewPrivs /proc/self/status"
    )
    assert text.split() == ["0", "1024", "0077", "NoNewPrivs:", "1"]


async def test_it_reads_what_is_written_to_it(house: House) -> None:
    await house.start("p1", "read a; echo got $a; cat; echo over")
    await house.processes.write("p1", "one\n")
    await _printed(house, "p1", "got one")
    await house.processes.write("p1", "zwei ü\n" * 2000, eof=True)
    process = await house.processes.wait("p1", 20.0)
    text = (await house.processes.output("p1", 1_000_000)).text
    assert process.state == "done"
    assert text == "got one\n" + "zwei ü\n" * 2000 + "over\n"


async def test_a_terminal_is_one(house: House) -> None:
    await house.start(
        "p1", "test -t 0 && test -t 1 && echo is a tty; read a; echo got $a", pty=True
    )
    await _printed(house, "p1", "is a tty")
    await house.processes.write("p1", "hello\n")
    process = await house.processes.wait("p1", 20.0)
    assert process.state == "done"
    assert "got hello" in (await house.processes.output("p1", 1000)).text


async def test_a_key_in_a_terminal_interrupts(house: House) -> None:
    await house.start("p1", "echo ready; sleep 60", pty=True)
    await _printed(house, "p1", "ready")
    await house.processes.write("p1", "\x03")
    process = await house.processes.wait("p1", 20.0)
    assert process.state == "failed"
    assert process.exit_code == 128 + signal.SIGINT


async def test_a_folder_that_is_not_there_is_a_failure(house: House) -> None:
    process, text = await house.run("p1", "echo never", cwd=house.workspace / "gone")
    assert process.state == "failed"
    assert "never" not in text


async def test_the_keeper_holds_nothing_of_the_gateway(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-gateway")
    await house.start("p1", "sleep 60")
    folder = house.home / "processes" / "p1"
    await until((folder / "input").exists)
    keeper = json.loads((folder / "keeper.json").read_text())["pid"]
    assert b"sk-of-the-gateway" not in Path(f"/proc/{keeper}/environ").read_bytes()
    assert os.getsid(keeper) == keeper
    handles = {str(Path(f"/proc/{keeper}/fd/{number}").readlink()) for number in range(3)}
    assert handles == {"/dev/null"}


async def test_tricks_of_the_environment_are_not_passed_on(house: House) -> None:
    (house.workspace / "trick").write_text("echo tricked\n")
    tricks = {"BASH_ENV": str(house.workspace / "trick"), "LD_PRELOAD": "/nowhere/evil.so"}
    more = {"SHELLOPTS": "xtrace", "PS4": "tricked", "BASH_FUNC_ls%%": "() { echo tricked; }"}
    _, text = await house.run("p1", "ls; env", environment=tricks | more)
    assert "tricked" not in text
    assert "evil" not in text


def test_the_restricted_child_is_there_without_bubblewrap() -> None:
    assert not find_sandbox("off").contains


async def _printed(house: House, id: str, text: str) -> None:
    ring = house.home / "processes" / id / "output"
    await until(lambda: ring.exists() and text.encode() in ring.read_bytes())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


_ADDS_A_KEY = """
import asyncio, ctypes, sys
from pathlib import Path
from tests.agent.processes.house import open_house

libc = ctypes.CDLL(None)
if libc.syscall(250, 1, None) < 0 or libc.syscall(248, b"user", b"parley", b"secret", 6, -3) < 0:
    sys.exit(77)
reads = (
    "import ctypes; c = ctypes.CDLL(None); k = c.syscall(249, b'user', b'parley', None, 0);"
    "b = ctypes.create_string_buffer(9); c.syscall(250, 11, k, b, 9); print('read', b.value)"
)

async def main():
    async with open_house(Path(sys.argv[1]), mode=sys.argv[2]) as house:
        print((await house.run("p1", f'python3 -c "{reads}"'))[1])

asyncio.run(main())
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it names system calls by number")
def test_keys_that_the_kernel_keeps_for_a_login_are_out_of_reach(
    tmp_path: Path, mode: SandboxMode
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ADDS_A_KEY, str(tmp_path / "home"), mode],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))},
    )
    if done.returncode == 77:
        pytest.skip("the kernel keeps no keys here")
    assert done.stdout.strip() == "read b''", done.stderr


_OPENS = """
import socket
for name in ("AF_UNIX", "AF_INET", "AF_INET6", "AF_VSOCK"):
    try:
        socket.socket(getattr(socket, name), socket.SOCK_STREAM).close()
        print(name)
    except OSError as error:
        print(error.errno)
import ctypes
print(ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(120)))
"""


@needs_bubblewrap
@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="not known there")
async def test_no_socket_leads_out_of_the_sandbox(tmp_path: Path) -> None:
    async with open_house(tmp_path / "home", mode="required") as house:
        (house.workspace / "opens.py").write_text(_OPENS)
        _, text = await house.run("p1", "python3 opens.py")
    assert text.split() == ["AF_UNIX", "AF_INET", "AF_INET6", str(errno.EAFNOSUPPORT), "-1"]
