"""A child has nothing open but its three standard streams, whatever we were started with."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import parley
from tests.agent.processes.house import needs_bubblewrap

SECRET = "sk-of-the-person"
_SOURCES = Path(parley.__file__).parent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")

# In the sandbox also what the others in there have open; without one that is the whole machine.
_LOOKS = "cat /proc/self/fd/*/secret; ls /proc/self/fd"
_LOOKS_AT_ALL = "cat /proc/[0-9]*/fd/*/secret; "

_COMMAND = """
import asyncio, sys
from pathlib import Path
import uvloop
from tests.agent.processes.house import open_house

async def main():
    async with open_house(Path(sys.argv[1]), mode=sys.argv[2]) as house:
        print((await house.run("p1", sys.argv[3]))[1])

uvloop.run(main())
"""

_CHILD = """
import sys
import uvloop
from parley.agent.child_process import start_child

async def main():
    child = await start_child(["/bin/ls", "/proc/self/fd"], environment={})
    print((await child.communicate(b"")).decode())
    print(child.returncode)
    child.close()

uvloop.run(main())
"""

_FILE_WORKER = """
import os, sys
from pathlib import Path
import uvloop
from parley.agent.sandbox import find_sandbox
from parley.agent.tools.files.file_hand import FileHand

def family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(child))]

async def main():
    workspace = Path(sys.argv[1])
    (workspace / "note").write_text("a note")
    hand = FileHand(workspace, sandbox=lambda: find_sandbox("auto"), environment=os.environ)
    try:
        assert "a note" in await hand.call("read", path="note", first_line=1, lines=9, column=1)
        for pid in family(hand.pids[0]):
            for name in os.listdir(f"/proc/{pid}/fd"):
                print(name, os.readlink(f"/proc/{pid}/fd/{name}"))
    finally:
        await hand.close()

uvloop.run(main())
"""


def _run_with_open_home(tmp_path: Path, program: str, *arguments: str) -> str:
    """What `program` prints when it is started with the person's home as an open file."""
    home = tmp_path / "person"
    home.mkdir()
    (home / "secret").write_text(SECRET)
    handle = os.open(home, os.O_RDONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            pass_fds=(handle,),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))},
        )
    finally:
        os.close(handle)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mode", [pytest.param("required", marks=needs_bubblewrap), "off"])
def test_a_command_reads_nothing_through_files_left_open(tmp_path: Path, mode: str) -> None:
    looks = _LOOKS if mode == "off" else _LOOKS_AT_ALL + _LOOKS
    said = _run_with_open_home(tmp_path, _COMMAND, str(tmp_path / "home"), mode, looks)
    assert SECRET not in said
    assert [line for line in said.splitlines() if line.isdigit()] == ["0", "1", "2", "3"]


def test_a_child_has_its_standard_streams_alone(tmp_path: Path) -> None:
    said = _run_with_open_home(tmp_path, _CHILD)
    assert said.split() == ["0", "1", "2", "3", "0"]  # 3 is the listing, the last its exit code


def test_the_file_tools_have_no_file_of_ours(tmp_path: Path) -> None:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    said = _run_with_open_home(tmp_path, _FILE_WORKER, str(workspace))
    assert said
    assert str(tmp_path / "person") not in said


def test_every_parley_command_keeps_inherited_files_to_itself(tmp_path: Path) -> None:
    program = (
        "import os; from parley.cli._open_files import secure_open_files as secure;"
        "os.close(0); secure(); assert os.fstat(0).st_rdev == os.stat('/dev/null').st_rdev;"
        "import ctypes; ctypes.CDLL(None).system(b'ls /proc/self/fd')"
    )
    assert _run_with_open_home(tmp_path, program).split() == ["0", "1", "2", "3"]


def test_every_child_is_started_by_what_closes_files() -> None:
    """Whoever starts one in another way shows here that it inherits nothing."""
    allowed = {
        "agent/processes/folder.py": {"posix_spawn"},  # the keeper, which closes them first
        "agent/processes/keeper.py": {"fork", "execve"},
        "agent/mcp/child.py": {"execvp"},  # it was started by `start_child` itself
    }
    for path in _SOURCES.rglob("*.py"):
        used = _ways_to_start(ast.parse(path.read_text("utf-8")))
        assert used <= allowed.get(path.relative_to(_SOURCES).as_posix(), set()), path


def _ways_to_start(tree: ast.AST) -> set[str]:
    of_os = ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system")
    of_loops = ("create_subprocess_", "subprocess_exec", "subprocess_shell")
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            is_os = isinstance(node.value, ast.Name) and node.value.id == "os"
            if node.attr.startswith(of_loops) or (is_os and node.attr.startswith(of_os)):
                found.add(node.attr)
        match node:
            case ast.keyword(arg="close_fds", value=ast.Constant(value=True)):
                pass
            case ast.keyword(arg="close_fds" | "pass_fds" | "preexec_fn" as option):
                found.add(option)
    return found
