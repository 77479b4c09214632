"""Audit logs for tests: written by real processes, and tampered with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from parley.audit.chain import AuditRecord, parse_record
from parley.audit.log_files import CURRENT_NAME, AuditFiles, AuditLimits, old_parts, stamp

__all__ = ["ROOMY", "SMALL", "entry", "lines_of", "made_log", "records_of", "start_writer"]

ROOMY = AuditLimits(64 * 1024 * 1024, 365)
SMALL = AuditLimits(256 * 1024, 365)

_WRITER = """
import sys, time
from pathlib import Path
from tests.audit.logs import SMALL, ROOMY, entry
from parley.audit.log_files import AuditFiles
folder, name, count, size = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
files = AuditFiles(folder, lambda: SMALL if size else ROOMY)
print("ready", flush=True)
number = 0
while count < 0 or number < count:
    batch = 1 + number % 7
    files.append([entry(name, number=number + i, fill="x" * size) for i in range(batch)])
    number += batch
    if count < 0:
        print(number, flush=True)
"""


def entry(kind: str, **data: Any) -> dict[str, Any]:
    return {"at": stamp(time.time()), "kind": kind, "profile": "default", "data": data}


def made_log(home: Path, count: int, limits: AuditLimits = ROOMY, *, fill: int = 0) -> Path:
    """A log with so many records, each appended by itself."""
    folder = home / "audit"
    home.mkdir(exist_ok=True)
    files = AuditFiles(folder, lambda: limits)
    for number in range(count):
        files.append([entry("test.made", number=number, fill="x" * fill)])
    files.close()
    return folder


def lines_of(folder: Path) -> list[bytes]:
    """Every line of every part, without its line break."""
    parts = [*old_parts(folder), folder / CURRENT_NAME]
    return [line for part in parts if part.exists() for line in part.read_bytes().splitlines()]


def records_of(folder: Path) -> list[AuditRecord]:
    found = [parse_record(line) for line in lines_of(folder)]
    assert all(found)
    return [record for record in found if record is not None]


def start_writer(
    folder: Path, name: str, *, count: int = -1, fill: int = 0
) -> subprocess.Popen[str]:
    """A process that appends; without a count until it is killed, and it says how far it came."""
    folder.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", _WRITER, str(folder), name, str(count), str(fill)]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def kill(process: subprocess.Popen[str]) -> int:
    """End it with SIGKILL; returns how many records it said were written."""
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    said = process.stdout.read().split("\n")
    process.wait()
    process.stdout.close()
    whole = [int(number) for number in said[:-1] if number]
    return whole[-1] if whole else 0
