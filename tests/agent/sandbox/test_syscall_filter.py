"""The system-call filter: what it says to each call, on each kind of machine, and in practice."""

from __future__ import annotations

import errno
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from parley.agent.sandbox import seccomp
from parley.agent.sandbox.seccomp import filter_name
from parley.agent.sandbox.seccomp.build import AUDIT_ARCH, build, read_syscalls
from tests.agent.processes.house import needs_bubblewrap, open_house

ALLOW, KILL = "allow", "kill"
FOREIGN = {"x86_64": 0x40000003, "aarch64": 0x40000028}  # their 32-bit kin


def shipped(machine: str, *, unix_sockets: bool = True) -> bytes:
    folder = Path(seccomp.__file__).parent
    return (folder / filter_name(machine, unix_sockets=unix_sockets)).read_bytes()


def verdict(
    code: bytes, machine: str, number: int, arguments: Sequence[int] = (), arch: int | None = None
) -> str:
    """What the kernel would answer: classic BPF, as far as filters use it."""
    given = AUDIT_ARCH[machine] if arch is None else arch
    six = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, given, 0, *six)
    lines = list(struct.iter_unpack("<HBBI", code))
    place = value = 0
    while True:
        what, yes, no, k = lines[place]
        place += 1
        if what == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        elif what == 0x05:
            place += k
        elif what == 0x06:
            break
        else:
            is_so = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[what]
            place += yes if is_so else no
    if k >> 16 == 5:
        return errno.errorcode[k & 0xFFFF]
    return {0x7FFF0000: ALLOW, 0x80000000: KILL}[k]


@pytest.fixture(params=AUDIT_ARCH)
def machine(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.parametrize("unix_sockets", [True, False])
def test_what_is_shipped_is_what_the_source_says(machine: str, unix_sockets: bool) -> None:
    made = build(machine, unix_sockets=unix_sockets)
    again = "run `python -m parley.agent.sandbox.seccomp.build`"
    assert shipped(machine, unix_sockets=unix_sockets) == made, again
    assert len(made) // 8 <= 4096  # as many as the kernel takes


def test_each_listed_call_has_its_verdict_and_no_other_has_one(machine: str) -> None:
    listed = read_syscalls(machine)
    expected = dict.fromkeys(listed["allow"].values(), ALLOW)
    expected |= dict.fromkeys(listed["refuse"].values(), "EPERM")
    checked = set(listed["check"].values())
    assert len(listed["allow"]) > 200
    for number in [*range(1000), 2**30, 2**30 + 1, 2**31, 2**32 - 1]:
        if number not in checked:
            found = verdict(shipped(machine), machine, number)
            assert found == expected.get(number, "ENOSYS"), number


def test_calls_of_another_kind_of_machine_end_the_program(machine: str) -> None:
    for number in (0, 1, 11, 63):
        assert verdict(shipped(machine), machine, number, arch=FOREIGN[machine]) == KILL


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (0x1200011,), ALLOW),  # fork
        ("clone", (0x3D0F00,), ALLOW),  # a thread
        *(("clone", (bit,), "EPERM") for bit in (1 << 17, 1 << 25, 1 << 28, 1 << 29, 1 << 30)),
        ("socket", (1, 1, 0), ALLOW),
        ("socket", (2, 1, 6), ALLOW),
        ("socket", (10, 2, 0), ALLOW),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 12), "EAFNOSUPPORT"),  # netfilter
        ("socket", (40, 1, 0), "EAFNOSUPPORT"),  # the host of a virtual machine
        ("socket", (38, 5, 0), "EAFNOSUPPORT"),  # the kernel's ciphers
        ("socket", (2**32 + 1, 1, 0), ALLOW),  # the kernel reads 32 bits of it
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 0xF_0000_5412), "EPERM"),
        ("ioctl", (0, 0x541C), "EPERM"),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0400000,), "EPERM"),
        ("openat", (0, 0, 0o100, 0o644), ALLOW),
        ("openat", (0, 0, 0, 0o6777), ALLOW),  # it makes nothing: that is no mode
        ("openat", (0, 0, 0o101, 0o4755), "EPERM"),
        ("openat", (0, 0, 0o20000000, 0o2755), "EPERM"),
        ("fchmod", (0, 0o755), ALLOW),
        ("fchmod", (0, 0o4755), "EPERM"),
        ("fchmodat", (0, 0, 0o2755), "EPERM"),
        ("fchmodat2", (0, 0, 0o6755), "EPERM"),
        ("mknodat", (0, 0, 0o104755), "EPERM"),
        ("mknodat", (0, 0, 0o010644), ALLOW),
    ],
)
def test_some_calls_depend_on_their_arguments(
    machine: str, name: str, arguments: tuple[int, ...], expected: str
) -> None:
    number = read_syscalls(machine)["check"][name]
    assert verdict(shipped(machine), machine, number, arguments) == expected


def test_where_names_of_others_are_open_there_are_no_unix_sockets(machine: str) -> None:
    numbers = read_syscalls(machine)
    code = shipped(machine, unix_sockets=False)
    assert verdict(code, machine, numbers["check"]["socket"], (1, 1, 0)) == "EAFNOSUPPORT"
    assert verdict(code, machine, numbers["check"]["socket"], (2, 1, 0)) == ALLOW
    assert verdict(code, machine, numbers["allow"]["socketpair"], (1, 1, 0)) == ALLOW


_THREADS = (
    "import subprocess, threading, multiprocessing, sqlite3, socket, tempfile, asyncio;"
    "subprocess.run(['true'], check=True); t = threading.Thread(target=print); t.start();"
    "t.join(); p = multiprocessing.get_context('fork').Process(target=print); p.start();"
    "p.join(); sqlite3.connect('x.db').execute('create table t (x)'); socket.socketpair();"
    "asyncio.run(asyncio.create_subprocess_exec('true')); tempfile.TemporaryFile().close()"
)
_PROGRAMS = {
    "python3": f'python3 -c "{_THREADS}"',
    "git": (
        "git init -q r && cd r && echo a > a && git add . && git -c user.name=n "
        "-c user.email=e commit -qm m && git clone -q . ../r2 && git status --short"
    ),
    "tar": "mkdir d && echo a > d/a && tar czf d.tgz d && rm -r d && tar xzf d.tgz && cat d/a",
    "gcc": "echo 'int main(){return 0;}' > m.c && gcc -O1 -o m m.c && ./m",
    "node": (
        "node -e \"require('child_process').execSync('true');"
        "new (require('worker_threads').Worker)('1', {eval: true});"
        "require('fs').promises.readFile('/etc/passwd')\""
    ),
    "curl": "curl -sS -m 2 http://127.0.0.1:9; test $? = 7",
    "rg": "echo needle > hay && rg -q needle",
    "perl": "perl -e 'fork() or exit 0; wait; print 1'",
    "make": "printf 'all:\\n\\t@true\\n' > Makefile && make -j2",
    "script": "ls -l / && find . -newer /etc/passwd | sort | xargs -r stat && df /tmp && date",
}


@needs_bubblewrap
@pytest.mark.parametrize("program", _PROGRAMS)
async def test_ordinary_programs_work_behind_it(tmp_path: Path, program: str) -> None:
    if program != "script" and shutil.which(program, path="/usr/bin:/bin") is None:
        pytest.skip(f"there is no {program}")
    async with open_house(tmp_path / "home", mode="required") as house:
        process, text = await house.run("p1", _PROGRAMS[program], timeout=60.0)
    assert process.exit_code == 0, text
