"""Numbers, and the table they are printed in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "Row",
    "cpu_seconds",
    "median",
    "milliseconds",
    "note_load",
    "percentile",
    "print_table",
    "rss_mb",
]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `ok` is None where there is no budget, or it could not be measured."""

    what: str
    measured: str
    budget: str = ""
    ok: bool | None = None


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the others do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def rss_mb(pid: int) -> float:
    """What a process holds in memory, in MB; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def note_load() -> str:
    """How busy this machine is by other work: numbers under load are worse than the truth."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def print_table(title: str, rows: Sequence[Row]) -> None:
    marks = {True: "✓", False: "✗", None: ""}
    cells = [("what", "measured", "budget", "")]
    cells += [(row.what, row.measured, row.budget, marks[row.ok]) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    print(f"\n{title}   ({note_load()})")
    for number, row in enumerate(cells):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        print(line.rstrip())
        if number == 0:
            print("─" * (sum(widths) + 6))
    print(flush=True)
