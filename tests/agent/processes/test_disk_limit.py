"""Files may take so much disk space, however a command hides them; who adds more is ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.agent.disk_quota import DiskLimits, quota_for
from parley.agent.sandbox import SandboxMode
from parley.agent.session_files import session_folder
from parley.config.hands import TerminalSettings
from tests.agent.processes.house import House, needs_bubblewrap, open_house, pids_that_hold

_MODES = [pytest.param("required", marks=needs_bubblewrap), "off"]
_LIMIT = 64
_MB = 1024 * 1024
_NAME = f"disk_hog_{os.getpid()}.py"

# Each adds a megabyte at a time, so that a look comes long before the end.
_BEGIN = """
import os, signal, sys, time
block = os.urandom(1 << 20)
def steps(most=1500):
    for number in range(most):
        yield number
        time.sleep(0.005)
    print("took it all", flush=True)
    time.sleep(60)
"""

_ONE_FILE = """
with open("hog", "wb", buffering=0) as file:
    for _ in steps(1000):
        file.write(block)
"""

_SMALL_FILES = """
os.mkdir("small")
for number in steps():
    for part in range(64):
        with open(f"small/{number}-{part}", "wb") as file:
            file.write(block[:16384])
"""

_WITHOUT_A_NAME = """
held = []
for number in steps():
    if number % 20 == 0:
        file = open("hog", "wb", buffering=0)
        os.unlink("hog")
        held.append(file)
    file.write(block)
"""

_UNSEEN_WITHOUT_A_NAME = f"""
import ctypes
ctypes.CDLL(None).prctl(4, 0)
{_WITHOUT_A_NAME}
"""

# Python's own `mmap` keeps the file open.
_MAPPED_WITHOUT_A_NAME = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for number in steps(1000):
    with open("hog", "wb+", buffering=0) as file:
        file.write(block)
        assert libc.mmap(None, len(block), 3, 1, file.fileno(), 0) not in (None, 2**64 - 1)
    os.unlink("hog")
"""

_NEVER_WRITTEN = """
for number in steps():
    with open(f"hog-{number}", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
"""

_BY_CHILDREN_NOBODY_WAITS_FOR = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for number in steps():
    if os.fork() == 0:
        with open(f"hog-{number}", "wb") as file:
            file.write(block)
        os._exit(0)
"""

_IN_THE_BACKGROUND = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("hog", "wb", buffering=0) as file:
            for _ in steps(1000):
                file.write(block)
    os._exit(0)
time.sleep(60)
"""

_DEEP_DOWN = """
for number in range(10_000):
    os.mkdir("d")
    os.chdir("d")
with open("hog", "wb", buffering=0) as file:
    for _ in steps(1000):
        file.write(block)
"""

_RESTLESS = """
os.makedirs("a/in")
os.makedirs("z")
if os.fork() == 0:
    while True:
        os.rename("a/in", "z/in")
        os.rename("z/in", "a/in")
with open("a/in/hog", "wb", buffering=0) as file:
    for _ in steps(1000):
        file.write(block)
"""

_LOCKED = """
os.mkdir("locked")
with open("locked/hog", "wb", buffering=0) as file:
    os.chmod("locked", 0)
    for _ in steps(1000):
        file.write(block)
"""

_SEVERAL_NAMES = """
with open("one", "wb") as file:
    file.write(block * 30)
for number in range(20):
    os.link("one", f"name-{number}")
print("linked", flush=True)
"""

_SPARSE = """
for number in range(5):
    with open(f"sparse-{number}", "wb") as file:
        file.truncate(900 << 20)
        file.write(block)
print("sparse", flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Nothing of it is left: neither gigabytes, nor a tree that is too deep to remove later."""
    yield tmp_path / "home"
    subprocess.run(["chmod", "-R", "u+rwx", str(tmp_path / "home")], check=True)
    subprocess.run(["rm", "-rf", str(tmp_path / "home")], check=True)


def _used(folder: Path) -> int:
    found = subprocess.run(
        ["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=False
    )
    return int(found.stdout.split()[0])


def _put(house: House, program: str) -> str:
    (house.workspace / _NAME).write_text(_BEGIN + program)
    return f"python3 {_NAME}"


def _ann(home: Path, session: str = "one") -> Path:
    return session_folder(home / "session-files", "desk:ann", session)


def _where_own(home: Path, mode: SandboxMode) -> str:
    """How a command reaches the folder of its conversation."""
    return ".parley" if mode == "required" else str(_ann(home))


# ── too much ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(_ONE_FILE, id="one file"),
        pytest.param(_SMALL_FILES, id="small files"),
        pytest.param(_WITHOUT_A_NAME, id="without a name"),
        pytest.param(_UNSEEN_WITHOUT_A_NAME, id="unseen without a name"),
        pytest.param(_MAPPED_WITHOUT_A_NAME, id="mapped without a name"),
        pytest.param(_NEVER_WRITTEN, id="never written"),
        pytest.param(_BY_CHILDREN_NOBODY_WAITS_FOR, id="children nobody waits for"),
        pytest.param(_IN_THE_BACKGROUND, id="in the background"),
        pytest.param(_DEEP_DOWN, id="deep down"),
        pytest.param(_RESTLESS, id="restless"),
        pytest.param(_LOCKED, id="locked"),
    ],
)
async def test_who_fills_the_disk_is_ended_with_all_that_it_started(
    home: Path, mode: SandboxMode, program: str
) -> None:
    async with open_house(home, mode=mode, workspace_mb=_LIMIT) as house:
        process, text = await house.run("p1", _put(house, program))
        assert pids_that_hold(_NAME) == []
        used = _used(house.workspace)
    assert process.state == "killed", text
    assert process.reason is not None
    assert f"terminal.workspace_mb allows {_LIMIT}" in process.reason
    assert "took it all" not in text
    assert used < (_LIMIT + 700) * _MB


@pytest.mark.parametrize("mode", _MODES)
async def test_files_of_one_conversation_count_for_its_person(
    home: Path, mode: SandboxMode
) -> None:
    where = _where_own(home, mode)
    async with open_house(home, mode=mode, person_mb=_LIMIT) as house:
        command = _put(house, _ONE_FILE.replace('"hog"', f'"{where}/hog"'))
        process, text = await house.run("p1", command, private=_ann(home))
    assert process.state == "killed", text
    assert f"terminal.person_mb allows {_LIMIT}" in (process.reason or "")
    assert (_ann(home) / "hog").stat().st_size > _LIMIT * _MB // 2


@pytest.mark.parametrize("mode", _MODES)
async def test_what_a_command_adds_to_the_workspace_counts_for_its_person(
    home: Path, mode: SandboxMode
) -> None:
    async with open_house(home, mode=mode, person_mb=_LIMIT) as house:
        (house.workspace / "of others").write_bytes(os.urandom(2 * _LIMIT * _MB))
        process, text = await house.run("p1", _put(house, _ONE_FILE), private=_ann(home))
    assert process.state == "killed", text
    assert f"terminal.person_mb allows {_LIMIT}" in (process.reason or "")


@pytest.mark.parametrize("mode", _MODES)
async def test_all_conversations_of_a_person_count_and_those_of_others_do_not(
    home: Path, mode: SandboxMode
) -> None:
    where = _where_own(home, mode)
    bob = session_folder(home / "session-files", "desk:bob", "one")
    command = f"head -c {20 * _MB} /dev/urandom > {where}/more; sleep 60"
    async with open_house(home, mode=mode, person_mb=_LIMIT) as house:
        for folder, size in ((_ann(home, "two"), _LIMIT - 10), (bob, 2 * _LIMIT)):
            folder.mkdir(parents=True)
            (folder / "much").write_bytes(os.urandom(size * _MB))
        process, text = await house.run("p1", command, private=_ann(home))
        assert process.state == "killed", text
        assert "terminal.person_mb" in (process.reason or "")
        (_ann(home, "two") / "much").unlink()
        done, text = await house.run("p2", command.replace("sleep 60", "true"), private=_ann(home))
        assert done.state == "done", text


@pytest.mark.parametrize("mode", _MODES)
async def test_the_number_of_files_is_limited_too(home: Path, mode: SandboxMode) -> None:
    program = """
os.mkdir("many")
for number in steps():
    for part in range(50):
        open(f"many/{number}-{part}", "w").close()
"""
    async with open_house(home, mode=mode, workspace_files=2000) as house:
        process, text = await house.run("p1", _put(house, program))
        number = len(list((house.workspace / "many").iterdir()))
    assert process.state == "killed", text
    assert "terminal.workspace_files allows 2000" in (process.reason or "")
    assert 1900 < number < 40_000


@pytest.mark.parametrize("mode", _MODES)
async def test_several_commands_at_once_stay_within_it_together(
    home: Path, mode: SandboxMode
) -> None:
    """Each alone would."""
    async with open_house(home, mode=mode, workspace_mb=_LIMIT) as house:
        command = _put(house, _ONE_FILE.replace('"hog"', "sys.argv[1]").replace("1000", "60"))
        await house.start("idle", "echo up; sleep 300")
        names = [f"p{number}" for number in range(3)]
        for name in names:
            await house.start(name, f"{command} {name}", timeout=60.0)
        ended = [await house.processes.wait(name, 60.0) for name in names]
        assert {"killed"} <= {process.state for process in ended}
        assert any("terminal.workspace_mb" in (process.reason or "") for process in ended)
        # Who wrote nothing is left alone.
        idle = house.processes.get("idle")
        assert idle is not None
        assert idle.is_running


# ── not too much ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(_SEVERAL_NAMES, "linked\n", id="several names"),
        pytest.param(_SPARSE, "sparse\n", id="sparse"),
    ],
)
async def test_only_what_is_on_the_disk_counts_and_once(
    home: Path, mode: SandboxMode, program: str, said: str
) -> None:
    """The second command writes so much that all files are counted while it runs."""
    async with open_house(home, mode=mode, workspace_mb=_LIMIT) as house:
        process, text = await house.run("p1", _put(house, program))
        assert (process.state, process.reason, text) == ("done", None, said)
        room = quota_for(house.workspace, None, _limits(workspace_mb=_LIMIT)).look()
        assert room.left > 0
        more = f"head -c {20 * _MB} /dev/urandom > more; echo written; sleep 2"
        process, text = await house.run("p2", more)
        assert (process.state, process.reason, text) == ("done", None, "written\n")


@pytest.mark.parametrize("mode", _MODES)
async def test_in_a_full_workspace_a_command_can_remove_files_and_add_none(
    home: Path, mode: SandboxMode
) -> None:
    async with open_house(home, mode=mode, workspace_mb=_LIMIT) as house:
        for number in range(5):
            (house.workspace / f"much-{number}").write_bytes(os.urandom(20 * _MB))
        add = f"head -c {_MB} /dev/urandom > more"
        process, text = await house.run("p1", add)
        assert process.state == "failed"
        assert f"take 101 MB, and terminal.workspace_mb allows {_LIMIT}" in text
        assert "may remove files only" in text
        assert _used(house.workspace) < 101 * _MB
        for remaining in (4, 3):
            process, text = await house.run(f"r{remaining}", f"rm much-{remaining}; echo gone")
            assert (process.state, text) == ("done", "gone\n")
        process, text = await house.run("p2", "rm much-2")
        assert process.state == "done", text
        process, text = await house.run("p3", f"{add} && echo written")
        assert (process.state, text) == ("done", "written\n")


@pytest.mark.parametrize("mode", _MODES)
async def test_in_a_full_workspace_who_adds_in_another_way_is_ended(
    home: Path, mode: SandboxMode
) -> None:
    """Files without content take no space of a file: their folders do."""
    program = """
for number in steps():
    for part in range(200):
        os.mkdir(f"d-{number}-{part}")
"""
    async with open_house(home, mode=mode, workspace_mb=_LIMIT) as house:
        (house.workspace / "much").write_bytes(os.urandom(2 * _LIMIT * _MB))
        process, text = await house.run("p1", _put(house, program))
    assert process.state == "killed", text
    assert "terminal.workspace_mb" in (process.reason or "")
    assert "may remove files" in (process.reason or "")


async def test_who_waits_is_not_ended_for_what_others_add(home: Path) -> None:
    async with open_house(home, mode="off", workspace_mb=_LIMIT) as house:
        await house.start("idle", "while true; do sleep 0.05; done")
        process, text = await house.run("p1", _put(house, _ONE_FILE))
        assert process.state == "killed", text
        idle = house.processes.get("idle")
        assert idle is not None
        assert idle.is_running


def _limits(**settings: int) -> DiskLimits:
    return DiskLimits.from_settings(TerminalSettings(**settings))  # type: ignore[arg-type]
