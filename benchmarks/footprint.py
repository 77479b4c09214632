"""What a process holds at a moment: memory, threads, open files, and how often it woke."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from benchmarks.report import cpu_seconds, rss_mb

__all__ = ["Footprint", "footprint"]


class Footprint(NamedTuple):
    """Memory in MB, `pss` with shared pages counted in part; 0 where the system does not tell."""

    rss: float
    pss: float
    threads: int
    files: int
    cpu: float
    wakes: int


def footprint(pid: int) -> Footprint:
    process = Path(f"/proc/{pid}")
    try:
        tasks = list((process / "task").iterdir())
        return Footprint(
            rss=rss_mb(pid),
            pss=_field(process / "smaps_rollup", "Pss:") * 1024 / 1e6,
            threads=len(tasks),
            files=len(list((process / "fd").iterdir())),
            cpu=cpu_seconds(pid),
            wakes=sum(_field(task / "status", "voluntary_ctxt_switches:") for task in tasks),
        )
    except OSError:
        return Footprint(0.0, 0.0, 0, 0, 0.0, 0)


def _field(file: Path, name: str) -> int:
    """The number behind this name in a file of `/proc`; 0 where there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
