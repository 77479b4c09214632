"""Where a conversation is cut: how much is folded, and in which slices. Pure.

A cut comes before a person's message that begins something new, and never between a tool call and
its result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from parley.agent.prompt import begins_turn
from parley.agent.tokens import margin_of
from parley.storage.memory import Line

__all__ = ["Budget", "Estimate", "chunks", "fold_point", "may_cut", "newest_from"]

Estimate: TypeAlias = Callable[[int], int]
"""How many tokens so many bytes of a message are."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a prompt may take of a model's window: all but the reply, and a margin."""

    window: int
    reply: int
    margin: int

    @classmethod
    def of(cls, window: int, *, max_output: int | None = None, margin: int | None = None) -> Budget:
        reply = min(max_output or window // 4, window // 2)
        if margin is None:
            margin = margin_of(window)
        return cls(window, reply, margin)

    @property
    def tokens(self) -> int:
        return self.window - self.reply - self.margin


def fold_point(
    lines: Sequence[Line], fixed_tokens: int, budget: Budget, estimate: Estimate
) -> int | None:
    """The id of the first entry that stays, when the prompt passes its budget; None: nothing goes.

    What stays is at most half of the room that `fixed_tokens` leave, so that the beginning then
    stays the same for many turns; and it is never less than the newest turn.
    """
    sizes = [estimate(line.message.size) for line in lines]
    if fixed_tokens + sum(sizes) <= budget.tokens:
        return None
    room = max(0, budget.tokens - fixed_tokens) // 2
    kept, keep_from = 0, None
    for index in range(len(lines) - 1, 0, -1):
        kept += sizes[index]
        if keep_from is not None and kept > room:
            break
        if may_cut(lines, index):
            keep_from = index
    return None if keep_from is None else lines[keep_from].id


def newest_from(lines: Sequence[Line], turns: int) -> int | None:
    """The id with which so many of the newest turns begin; None when nothing is before them."""
    cuts = [index for index in range(1, len(lines)) if may_cut(lines, index)]
    return lines[cuts[-turns]].id if len(cuts) >= turns else None


def chunks(lines: Sequence[Line], most_tokens: int, estimate: Estimate) -> list[Sequence[Line]]:
    """Slices of at most so many tokens. What cannot be cut is a slice of its own, however long."""
    starts = [0, *(index for index in range(1, len(lines)) if may_cut(lines, index))]
    found: list[Sequence[Line]] = []
    begin, taken = 0, 0
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        size = sum(estimate(line.message.size) for line in lines[start:end])
        if start > begin and taken + size > most_tokens:
            found.append(lines[begin:start])
            begin, taken = start, 0
        taken += size
    if lines:
        found.append(lines[begin:])
    return found


def may_cut(lines: Sequence[Line], index: int) -> bool:
    """Whether what comes before the line at `index` can stand without it, and the other way."""
    if not begins_turn(lines, index):
        return False
    if index == 0:
        return True
    before = lines[index - 1]
    if before.message.role == "user" and before.turn == lines[index].turn:
        return False  # both were answered together
    roles = (lines[position].message.role for position in range(index, len(lines)))
    return next((role for role in roles if role != "user"), None) != "tool"
