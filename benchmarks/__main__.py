"""`python -m benchmarks [NAME …]`: measure everything, or what is named, and print one table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module

from benchmarks.report import Row, print_table

_ALL = (
    "startup",
    "storage",
    "turns",
    "api",
    "sessions",
    "profiles",
    "memory",
    "safety",
    "matrix",
    "kill",
)


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in _ALL]
    if unknown:
        print(f"There is no benchmark {unknown[0]}; there are: {', '.join(_ALL)}.")
        return 2
    rows: list[Row] = []
    for name in names or _ALL:
        started = time.perf_counter()
        measure: Callable[[], list[Row]] = import_module(f"benchmarks.{name}").run
        rows += measure()
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    print_table("Parley", rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
