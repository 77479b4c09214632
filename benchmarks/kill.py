"""Kill a real gateway at random moments and count lost, doubled and reordered replies.

`python -m benchmarks.kill [KILLS] [SEED]`: half of them with the policy `queue`, half with `steer`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import Literal

from tests.gateway.kills import KillTally, kill_while_talking

from benchmarks.report import Row, median, percentile, print_table

__all__ = ["run"]

KILLS = 200


def run(*, kills: int = KILLS, seed: int | None = None) -> list[Row]:
    chosen = random.randrange(1_000_000) if seed is None else seed
    print(f"kill: seed {chosen}", flush=True)
    rows: list[Row] = []
    for busy in ("queue", "steer"):
        rows += _rows(busy, _kill(busy, kills=kills // 2, seed=chosen))
    return rows


def _kill(busy: Literal["queue", "steer"], *, kills: int, seed: int) -> KillTally:
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        return asyncio.run(kill_while_talking(Path(folder), busy=busy, kills=kills, seed=seed))


def _rows(busy: str, tally: KillTally) -> list[Row]:
    for bad in (*tally.lost, *tally.doubled, *tally.reordered, *tally.faults):
        print(f"  {busy}: {bad}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(tally.kills.items()))
    first = tally.first_answers
    spread = f"{median(first):.2f} / {percentile(first, 99):.2f} s" if first else "none"
    return [
        Row(f"{busy}: kills", f"{tally.kills.total()} ({kinds})"),
        Row(f"{busy}: messages / accepted", f"{tally.messages} / {tally.accepted}"),
        Row(f"{busy}: replies / repeats by key", f"{tally.replies} / {tally.repeats}"),
        _none(f"{busy}: lost", tally.lost),
        _none(f"{busy}: doubled", tally.doubled),
        _none(f"{busy}: reordered", tally.reordered),
        _none(f"{busy}: other faults", tally.faults),
        Row(f"{busy}: restart to first answer, p50 / p99", spread),
    ]


def _none(what: str, found: list[str]) -> Row:
    return Row(what, str(len(found)), "0", not found)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    print_table(
        "kill",
        run(kills=numbers[0] if numbers else KILLS, seed=numbers[1] if len(numbers) > 1 else None),
    )
