"""What is known already never keeps a part from being asked about."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parley.agent.tokens import estimate_tokens
from parley.memory.asking import Prompt
from parley.memory.cutting import Budget
from parley.memory.fitting import Fitting, Part
from parley.protocol import ChatMessage
from parley.storage.memory import Fact
from tests.memory.scene import SYSTEM, TOOLS, a_line

_SUMMARY = "- They spoke of many things, and of this one too.\n" * 20


def _facts() -> list[Fact]:
    words = "very " * 8
    return [
        Fact(
            *(id, "person:test:ann", "other", f"They like dish number {id} {words}much.", 0.9),
            *("learned", "test:ann", 1.0, 1.0),
        )
        for id in range(1, 61)
    ]


@pytest.mark.parametrize("window", range(1_400, 4_001, 200))
async def test_where_room_is_short_fewer_known_facts_are_told(window: int) -> None:
    lines = [a_line(id, id, f"I like dish number {id}.") for id in range(1, 20)]
    part = Part(lines, frozenset(line.id for line in lines), keep_from=20)

    async def build(messages: Sequence[ChatMessage]) -> Prompt:
        return Prompt(f"{SYSTEM}\n{_SUMMARY}", tuple(messages))

    fitting = Fitting(
        *(await build(()), TOOLS),
        build=build,
        summary=_SUMMARY,
        budget=Budget.of(window),
        estimate=estimate_tokens,
    )
    with_facts = await fitting.asked(part, _facts(), window)
    without = await fitting.asked(part, (), window)
    assert (with_facts is None) == (without is None)
    if with_facts is not None:
        assert with_facts.tokens <= window - Budget.of(window).reply
