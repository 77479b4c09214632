"""`kill -9` at every step of a consolidation: no message and no fact is lost or doubled."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.gateway.memory_kills import kill_while_remembering

_KILLS = int(os.environ.get("PARLEY_MEMORY_KILLS") or 11)


@pytest.mark.timeout(120 + 6 * _KILLS)
async def test_nothing_is_lost_or_doubled_however_often_it_is_killed_while_it_learns(
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("PARLEY_SEED") or random.randrange(1 << 30))
    print(f"PARLEY_SEED={seed}")

    tally = await kill_while_remembering(tmp_path / "home", kills=_KILLS, seed=seed)

    print(tally)
    assert tally.faults == [], seed
    assert tally.kills.total() == _KILLS
    assert tally.facts >= tally.messages > 0
    assert tally.commits["learned"] + tally.commits["folded"] > 0
