"""A command may hold so much memory with all that it started, however it hides it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.agent.sandbox import SandboxMode
from tests.agent.processes.house import needs_bubblewrap, open_house, pids_that_hold

_MODES = [pytest.param("required", marks=needs_bubblewrap), "off"]
_LIMIT = 256
_MUCH = 1500

_IN_FILES_OF_MEMORY = f"""
import os, time
block = bytes(1 << 20)
for file in range({_MUCH // 50}):
    handle = os.memfd_create("hog")
    for _ in range(50):
        os.write(handle, block)
print("took it all", flush=True)
time.sleep(60)
"""

_MAPPED_AND_CLOSED = f"""
import mmap, os, time
for part in range({_MUCH // 100}):
    if os.fork() == 0:
        handle = os.memfd_create("hog")
        os.ftruncate(handle, 100 << 20)
        held = mmap.mmap(handle, 100 << 20)
        os.close(handle)
        for at in range(0, 100 << 20, 4096):
            held[at] = 1
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""

_BOMB_OF_HOGS = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        held = bytearray(60 << 20)
        for at in range(0, len(held), 4096):
            held[at] = 1
        time.sleep(60)
        os._exit(0)
    time.sleep(0.02)
print("took it all")
"""

_HIDDEN = f"""
import ctypes, os
ctypes.CDLL(None).prctl(4, 0)
{_IN_FILES_OF_MEMORY}
"""

_IN_TMP = """
import time
block = bytes(1 << 20)
with open("/tmp/hog_35", "wb", buffering=0) as file:
    for _ in range(400):
        file.write(block)
print("took it all", flush=True)
time.sleep(60)
"""

_SHARED = """
import mmap, os
handle = os.memfd_create("shared")
os.ftruncate(handle, 100 << 20)
held = mmap.mmap(handle, 100 << 20)
for at in range(0, 100 << 20, 4096):
    held[at] = 1
own = bytearray(40 << 20)
for at in range(0, len(own), 4096):
    own[at] = 1
children = []
for _ in range(5):
    if (child := os.fork()) == 0:
        sum(held[::4096]), sum(own[::4096])
        import time
        time.sleep(2.5)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
print("shared by all")
"""


async def _run(home: Path, mode: SandboxMode, program: str) -> tuple[str, str | None, str]:
    name = "hog_35_0418.py"
    async with open_house(home, mode=mode, memory_mb=_LIMIT) as house:
        (house.workspace / name).write_text(program)
        process, text = await house.run("p1", f"python3 {name}")
        assert pids_that_hold(name) == []
    return process.state, process.reason, text


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(_IN_FILES_OF_MEMORY, id="files of memory"),
        pytest.param(_MAPPED_AND_CLOSED, id="mapped and closed"),
        pytest.param(_BOMB_OF_HOGS, id="bomb of hogs"),
        pytest.param(_HIDDEN, id="hidden"),
    ],
)
async def test_who_takes_too_much_is_ended_with_all_that_it_started(
    tmp_path: Path, mode: SandboxMode, program: str
) -> None:
    state, reason, text = await _run(tmp_path / "home", mode, program)
    assert state == "killed", text
    assert reason is not None
    assert "memory" in reason
    assert f"terminal.memory_mb allows {_LIMIT}" in reason
    assert "took it all" not in text


@needs_bubblewrap
async def test_the_temporary_folder_of_the_sandbox_is_memory_too(tmp_path: Path) -> None:
    state, reason, _ = await _run(tmp_path / "home", "required", _IN_TMP)
    assert (state, "terminal.memory_mb" in (reason or "")) == ("killed", True)


@pytest.mark.parametrize("mode", _MODES)
async def test_what_several_share_is_counted_once(tmp_path: Path, mode: SandboxMode) -> None:
    state, reason, text = await _run(tmp_path / "home", mode, _SHARED)
    assert (state, reason, text) == ("done", None, "shared by all\n")


@pytest.mark.parametrize("mode", _MODES)
async def test_when_memory_is_short_a_command_goes_first(tmp_path: Path, mode: SandboxMode) -> None:
    async with open_house(tmp_path / "home", mode=mode) as house:
        _, text = await house.run("p1", "cat /proc/self/oom_score_adj")
    assert int(text) >= 800
