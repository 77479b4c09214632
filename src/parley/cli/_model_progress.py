"""How far an install is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.agent.providers.local.fetch import Progress

__all__ = ["plain_lines", "shown_progress"]


@contextmanager
def shown_progress(title: str) -> Iterator[Progress]:
    """Show what the progress is told on stderr, so that stdout stays for results."""
    if not sys.stderr.isatty():
        yield plain_lines(title, _print_line)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=None)
        stage = ""

        def tell(done: int, total: int, label: str) -> None:
            nonlocal stage
            if (label == "checking") != (stage == "checking"):
                bars.reset(task)  # checking counts anew, at another speed
            stage = label
            described = f"{title} · {label}"
            bars.update(task, completed=done, total=total or None, description=described)

        yield tell


def plain_lines(
    title: str,
    say: Callable[[str], None],
    *,
    every: float = 3.0,
    clock: Callable[[], float] = time.monotonic,
) -> Progress:
    """A progress that says a line at the start and then every few seconds."""
    last = float("-inf")

    def tell(done: int, total: int, label: str) -> None:
        nonlocal last
        now = clock()
        if now - last < every:
            return
        last = now
        amount = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if total else "…"
        say(f"{title}: {label}, {amount}")

    return tell


def _print_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
