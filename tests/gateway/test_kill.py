"""`kill -9` at any moment: every accepted message is answered, once and in order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest

from tests.gateway.kills import kill_while_talking


@pytest.mark.timeout(300)  # a busy machine is slow to start a process twenty times
@pytest.mark.parametrize("busy", ["queue", "steer"])
async def test_every_message_is_answered_once_and_in_order_however_often_the_gateway_is_killed(
    busy: Literal["queue", "steer"], tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")

    tally = await kill_while_talking(tmp_path, busy=busy, kills=10, seed=seed)
    print(tally)

    assert (tally.lost, tally.doubled, tally.reordered, tally.faults) == ([], [], [], []), seed
    assert tally.accepted == tally.messages > 0
    if busy == "queue":
        assert tally.replies == tally.messages
