"""Compile `syscalls.txt` to seccomp filters: `python -m parley.agent.sandbox.seccomp.build`.

A filter is a program of classic BPF, as `bwrap --seccomp` takes it. It finds the number of the
call by halves; numbers in a row with the same verdict are one range.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from parley.agent.sandbox.seccomp import filter_name

__all__ = ["build", "read_syscalls"]

Code: TypeAlias = list[tuple[int, int, int, int]]
"""Instructions: what to do, how far to jump if so, how far if not, and a value."""

AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _IS, _AT_LEAST, _HAS, _JUMP, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_NUMBER, _ARCH = 0, 4

_NAMESPACES: Final = 0x7E020000  # of `clone`
_PERSONALITIES: Final = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)  # plain Linux, and asking for it
_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: to type for somebody else
_SET_ID: Final = 0o6000
_CREATES: Final = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
# Where the mode of a new file, or of one that is changed, is among the arguments.
_MODES: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1}
_MODES_OF_NODES: Final = {"mknod": 1, "mknodat": 2}
_OPENS: Final = {"open": 1, "openat": 2}  # where its flags are; the mode is next to them


def read_syscalls(machine: str) -> dict[str, dict[str, int]]:
    """By verdict: the names of system calls, and their numbers on this kind of machine."""
    column = 1 + list(AUDIT_ARCH).index(machine)
    found: dict[str, dict[str, int]] = {}
    for line in Path(__file__).with_name("syscalls.txt").read_text("ascii").splitlines():
        if line.startswith("["):
            current = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            parts = line.split()
            if parts[column] != "-":
                current[parts[0]] = int(parts[column])
    return found


def build(machine: str, *, unix_sockets: bool) -> bytes:
    """The filter for one kind of machine."""
    verdicts: dict[int, Code] = {}
    listed = read_syscalls(machine)
    for kind, answer in (
        ("allow", _give(_ALLOW)),
        ("refuse", _fail(errno.EPERM)),
        ("absent", _fail(errno.ENOSYS)),
    ):
        verdicts |= dict.fromkeys(listed[kind].values(), answer)
    for name, number in listed["check"].items():
        verdicts[number] = _check(name, unix_sockets=unix_sockets)
    code: Code = [
        (_LOAD, 0, 0, _ARCH),
        # A program for another kind of machine has other numbers: none of them is known here.
        (_IS, 1, 0, AUDIT_ARCH[machine]),
        *_give(_KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_halves(_ranges(verdicts)),
    ]
    return b"".join(struct.pack("<HBBI", *each) for each in code)


def _ranges(verdicts: Mapping[int, Code]) -> list[tuple[int, Code]]:
    """Where each row of numbers with the same verdict begins; what is not listed is not there."""
    unknown = _fail(errno.ENOSYS)
    ranges: list[tuple[int, Code]] = []
    for number in range(max(verdicts) + 2):
        verdict = verdicts.get(number, unknown)
        if not ranges or ranges[-1][1] != verdict:
            ranges.append((number, verdict))
    return ranges


def _halves(ranges: list[tuple[int, Code]]) -> Code:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _halves(ranges[:middle]), _halves(ranges[middle:])
    start = ranges[middle][0]
    if len(low) > 255:  # farther than a conditional jump leads
        return [(_AT_LEAST, 0, 1, start), (_JUMP, 0, 0, len(low)), *low, *high]
    return [(_AT_LEAST, len(low), 0, start), *low, *high]


def _check(name: str, *, unix_sockets: bool) -> Code:
    """The code that looks at the arguments of a call."""
    if name == "clone":
        return _unless_bits(0, _NAMESPACES)
    if name == "personality":
        return [_load(0), *_if_any(_PERSONALITIES, _ALLOW), *_fail(errno.EPERM)]
    if name == "ioctl":
        refused = _fail(errno.EPERM)[0][3]
        return [_load(1), *_if_any(_TERMINAL_INPUT, refused), *_give(_ALLOW)]
    if name == "socket":
        families = (_INET, _INET6, *((_UNIX,) if unix_sockets else ()))
        return [
            _load(0),
            *_if_any(families, _ALLOW),
            (_IS, 0, 3, _NETLINK),
            _load(2),
            (_IS, 0, 1, _NETLINK_ROUTE),
            *_give(_ALLOW),
            *_fail(errno.EAFNOSUPPORT),
        ]
    if name in _OPENS:
        flags = _OPENS[name]
        return [
            _load(flags),
            (_HAS, 1, 0, _CREATES),
            *_give(_ALLOW),
            *_unless_bits(flags + 1, _SET_ID),
        ]
    return _unless_bits((_MODES | _MODES_OF_NODES)[name], _SET_ID)


def _load(argument: int) -> tuple[int, int, int, int]:
    """The lower half of an argument: the kernel reads no more of what is checked here."""
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _unless_bits(argument: int, bits: int) -> Code:
    return [_load(argument), (_HAS, 0, 1, bits), *_fail(errno.EPERM), *_give(_ALLOW)]


def _if_any(values: Iterable[int], answer: int) -> Code:
    return [line for value in values for line in ((_IS, 0, 1, value), *_give(answer))]


def _give(answer: int) -> Code:
    return [(_RETURN, 0, 0, answer)]


def _fail(number: int) -> Code:
    return _give(_FAIL | number)


if __name__ == "__main__":
    for machine in AUDIT_ARCH:
        for unix_sockets in (True, False):
            path = Path(__file__).with_name(filter_name(machine, unix_sockets=unix_sockets))
            path.write_bytes(build(machine, unix_sockets=unix_sockets))
