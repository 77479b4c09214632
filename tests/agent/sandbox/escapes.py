"""Tries to get out of the sandbox, in every way that is known; says how far it came.

A program of the standard library alone: `python3 escapes.py FACTS NAME…`, where FACTS is a JSON
file about what lies outside. It prints a JSON object: under each name either `open`, or why not.
Each attempt raises `OSError` when it is barred; none does harm where it is not.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import pty
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Attempt = Callable[[dict[str, Any]], object]
ATTEMPTS: dict[str, Attempt] = {}

libc = ctypes.CDLL(None, use_errno=True)
_NEW_NAMESPACES = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
}


def attempt(function: Attempt) -> Attempt:
    ATTEMPTS[function.__name__] = function
    return function


def add(name: str, function: Attempt) -> None:
    ATTEMPTS[name] = function


def call(number: int, *arguments: Any) -> int:
    """A system call by its number. Raises `OSError` when it fails."""
    whole = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    result: int = libc.syscall(ctypes.c_long(number), *whole)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def by_name(name: str, *arguments: Any) -> None:
    """Add the plain attempt to use a system call. It is given nothing that would do harm."""
    add(f"call {name}", lambda facts: call(facts["numbers"][name], *arguments))


def read(path: str) -> str:
    return Path(path).read_text("utf-8", "replace")


def reading(path: str) -> Attempt:
    return lambda facts: read(path.format(**facts))


def writing(path: str) -> Attempt:
    def write(facts: dict[str, Any]) -> None:
        real = Path(path.format(**facts)).expanduser()
        os.close(os.open(real, os.O_WRONLY | os.O_CREAT, 0o600))

    return write


def opening(family: int, kind: int, protocol: int) -> Attempt:
    return lambda facts: socket.socket(family, kind, protocol).close()


def unsharing(flag: int) -> Attempt:
    return lambda facts: call(facts["numbers"]["unshare"], flag)


def cloning(flag: int) -> Attempt:
    def clone(facts: dict[str, Any]) -> None:
        child = call(facts["numbers"]["clone"], flag | signal.SIGCHLD, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    return clone


# ── files of others ───────────────────────────────────────────────────────────────────────────


@attempt
def inherited_files(facts: dict[str, Any]) -> None:
    for process in ("self", "1"):
        for path in Path(f"/proc/{process}/fd").iterdir():
            if int(path.name) > 2 and (path / facts["secret_name"]).exists():
                return
    raise OSError("no file of others is open")


for _name, _path in {
    "beside the workspace": "{workspace}/../.env",
    "by its path": "{home}/.env",
    "root of process 1": "/proc/1/root{home}/.env",
    "own root": "/proc/self/root{home}/.env",
    "folder of process 1": "/proc/1/cwd/../.env",
    "tasks of process 1": "/proc/1/task/1/root{home}/.env",
    "a link": "{workspace}/link-to-env",
    "a linked folder": "{workspace}/link-to-home/.env",
}.items():
    add(f"read the profile: {_name}", reading(_path))


@attempt
def hard_link_to_the_profile(facts: dict[str, Any]) -> None:
    os.link(f"{facts['home']}/.env", f"{facts['workspace']}/hard-link")


for _name, _path in {
    "the profile": "{home}/planted",
    "the system": "/usr/planted",
    "settings of the system": "/etc/planted",
    "the root": "/planted",
    "devices": "/dev/planted",
    "the home": "~/planted",
    "a core pattern": "/proc/sys/kernel/core_pattern",
    "kernel memory settings": "/proc/sys/vm/overcommit_memory",
    "the magic key": "/proc/sysrq-trigger",
    "the program of process 1": "/proc/1/exe",
    "the memory of process 1": "/proc/1/mem",
    "the user map of process 1": "/proc/1/uid_map",
    "the kernel log": "/dev/kmsg",
    "the memory": "/dev/mem",
    "control groups": "/sys/fs/cgroup/planted",
}.items():
    add(f"write: {_name}", writing(_path))


@attempt
def read_environment_of_process_1(facts: dict[str, Any]) -> None:
    if not Path("/proc/1/environ").read_bytes():
        raise OSError("it is empty")


# ── processes of others ───────────────────────────────────────────────────────────────────────


@attempt
def signal_the_gateway(facts: dict[str, Any]) -> None:
    os.kill(facts["gateway"], 0)


@attempt
def see_the_gateway(facts: dict[str, Any]) -> None:
    if facts["mark"] not in read(f"/proc/{facts['gateway']}/cmdline"):
        raise OSError("that is another process")


@attempt
def trace_a_child(facts: dict[str, Any]) -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        call(facts["numbers"]["ptrace"], 16, child, 0, 0)  # PTRACE_ATTACH
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def read_memory_of_a_child(facts: dict[str, Any]) -> None:
    buffer = ctypes.create_string_buffer(b"known", 8)
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        piece = struct.pack("@PN", ctypes.addressof(buffer), 8)
        call(facts["numbers"]["process_vm_readv"], child, piece, 1, piece, 1, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@attempt
def take_a_file_of_process_1(facts: dict[str, Any]) -> None:
    handle = os.pidfd_open(1)
    try:
        call(facts["numbers"]["pidfd_getfd"], handle, 0, 0)
    finally:
        os.close(handle)


@attempt
def shared_memory_of_others(facts: dict[str, Any]) -> None:
    call(facts["numbers"]["shmget"], facts["shared_memory"], 0, 0)


# ── sockets ───────────────────────────────────────────────────────────────────────────────────


@attempt
def abstract_socket_of_the_machine(facts: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect("\0" + facts["abstract"])


@attempt
def abstract_datagram_of_the_machine(facts: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", "\0" + facts["abstract"] + "-datagram")


@attempt
def socket_with_a_path_of_the_machine(facts: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(facts["socket"])


@attempt
def server_of_the_machine(facts: dict[str, Any]) -> None:
    socket.create_connection(("127.0.0.1", facts["port"]), 5).close()


for _name, _family, _kind, _protocol in (
    ("virtual machines", 40, 1, 0),
    ("packets", 17, 3, 0),
    ("ciphers", 38, 5, 0),
    ("audit", 16, 3, 9),
    ("device events", 16, 3, 15),
    ("netfilter", 16, 3, 12),
    ("bluetooth", 31, 3, 1),
    ("express data path", 44, 3, 0),
):
    add(f"socket: {_name}", opening(_family, _kind, _protocol))


# ── the kernel ────────────────────────────────────────────────────────────────────────────────

for _name, _flag in _NEW_NAMESPACES.items():
    add(f"unshare: {_name}", unsharing(_flag))
    add(f"clone: {_name}", cloning(_flag))


@attempt
def enter_namespaces_of_process_1(facts: dict[str, Any]) -> None:
    handle = os.open("/proc/1/ns/user", os.O_RDONLY)
    try:
        call(facts["numbers"]["setns"], handle, 0)
    finally:
        os.close(handle)


_NOTHING = ctypes.create_string_buffer(128)
by_name("keyctl", 1, None)
by_name("add_key", b"user", b"parley-escape", b"x", 1, -3)
by_name("request_key", b"user", b"parley-escape", None, 0)
by_name("bpf", 5, _NOTHING, 48)
by_name("perf_event_open", _NOTHING, 0, -1, -1, 0)
by_name("userfaultfd", 1)
by_name("io_uring_setup", 1, _NOTHING)
by_name("mount", b"none", b"/tmp", b"tmpfs", 0, None)
by_name("umount2", b"/proc", 0)
by_name("pivot_root", b".", b".")
by_name("chroot", b".")
by_name("fsopen", b"tmpfs", 0)
by_name("open_tree", -100, b"/", 1)
by_name("mount_setattr", -100, b"/", 0, _NOTHING, 32)
by_name("open_by_handle_at", -100, _NOTHING, 0)
by_name("fanotify_init", 0, 0)
by_name("syslog", 10, None, 0)
by_name("init_module", None, 0, b"")
by_name("kexec_load", 0, 0, None, 0)
by_name("reboot", 0, 0, 0, None)
by_name("swapoff", b"/nowhere")
by_name("sethostname", b"escape", 6)
by_name("acct", b"/nowhere")
by_name("clone3", _NOTHING, 88)


@attempt
def calls_of_32_bits(facts: dict[str, Any]) -> None:
    """They have other numbers, which a filter of these could miss."""
    if os.uname().machine != "x86_64":
        raise OSError("not on this machine")
    child = os.fork()
    if child == 0:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # getpid
        place = ctypes.addressof(ctypes.c_char.from_buffer(code))
        found = ctypes.CFUNCTYPE(ctypes.c_int)(place)()
        os._exit(0 if found > 0 else 1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError("the program was ended")


@attempt
def calls_of_x32(facts: dict[str, Any]) -> None:
    if os.uname().machine != "x86_64":
        raise OSError("not on this machine")
    call(0x40000000 | 39)


# ── rights ────────────────────────────────────────────────────────────────────────────────────


def _is_set_id(path: str) -> None:
    if not Path(path).stat().st_mode & 0o6000:
        raise OSError("the bit is not set")


@attempt
def set_user_id_by_chmod(facts: dict[str, Any]) -> None:
    Path("set-id-1").touch()
    Path("set-id-1").chmod(0o4755)
    _is_set_id("set-id-1")


@attempt
def set_user_id_by_its_handle(facts: dict[str, Any]) -> None:
    with Path("set-id-2").open("w") as file:
        os.fchmod(file.fileno(), 0o6755)
    _is_set_id("set-id-2")


@attempt
def set_user_id_when_it_is_made(facts: dict[str, Any]) -> None:
    os.umask(0)
    os.close(os.open("set-id-3", os.O_WRONLY | os.O_CREAT, 0o4755))
    _is_set_id("set-id-3")


@attempt
def set_user_id_by_openat2(facts: dict[str, Any]) -> None:
    how = struct.pack("=QQQ", os.O_WRONLY | os.O_CREAT, 0o4755, 0)
    os.close(call(facts["numbers"]["openat2"], -100, b"set-id-4", how, len(how)))
    _is_set_id("set-id-4")


@attempt
def set_user_id_as_a_node(facts: dict[str, Any]) -> None:
    os.umask(0)
    os.mknod("set-id-5", 0o104755)
    _is_set_id("set-id-5")


@attempt
def a_disk_of_its_own(facts: dict[str, Any]) -> None:
    os.mknod("disk", 0o060600, os.makedev(8, 0))


@attempt
def any_right_at_all(facts: dict[str, Any]) -> None:
    status = dict(
        line.split(":\t", 1) for line in read("/proc/self/status").splitlines() if ":\t" in line
    )
    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    if status["NoNewPrivs"] == "1" and not any(int(status[name], 16) for name in sets):
        raise OSError("none")


@attempt
def type_into_a_terminal(facts: dict[str, Any]) -> None:
    child, terminal = pty.fork()
    if child == 0:
        try:
            fcntl.ioctl(0, 0x5412, b"x")
        except OSError:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    if status != 0:
        raise OSError("refused")


@attempt
def keep_a_terminal_of_others(facts: dict[str, Any]) -> None:
    os.close(os.open("/dev/tty", os.O_RDWR))


def main() -> None:
    facts = json.loads(Path(sys.argv[1]).read_text())
    found = {}
    for name in sys.argv[2:] or ATTEMPTS:
        try:
            ATTEMPTS[name](facts)
            found[name] = "open"
        except OSError as error:
            found[name] = f"barred: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
