"""The system-call filter of the sandbox: what a command may ask of the kernel.

`syscalls.txt` lists the calls, `build.py` makes the compiled filters beside it, one for each kind
of machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["filter_file", "filter_name"]

_MACHINES = ("x86_64", "aarch64")


def filter_name(machine: str, *, unix_sockets: bool) -> str:
    return f"{machine}{'' if unix_sockets else '-no-unix-sockets'}.bpf"


def filter_file(*, unix_sockets: bool = True) -> Path | None:
    """The filter for this machine; None when there is none."""
    machine = os.uname().machine
    # A Python of 32 bits runs programs that the filter of its machine would end.
    if machine not in _MACHINES or sys.maxsize < 2**32:
        return None
    return Path(__file__).with_name(filter_name(machine, unix_sockets=unix_sockets))
