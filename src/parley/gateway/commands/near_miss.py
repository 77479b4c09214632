"""Near misses: what somebody meant who mistyped a word. Pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["near_miss"]


def near_miss(word: str, names: Iterable[str]) -> str | None:
    """The name that differs from `word` by one slip of a finger, or by two where it is long.

    A short word differs from many others by little: there only two letters may be swapped.
    """
    word = word.lower()
    best: tuple[int, str] | None = None
    for name in names:
        slips = _slips(word, name)
        if slips <= _allowed(word, name) and (best is None or slips < best[0]):
            best = (slips, name)
    return best[1] if best is not None else None


def _allowed(word: str, name: str) -> int:
    shorter = min(len(word), len(name))
    if shorter < 3:
        return 1 if {len(word), len(name)} == {2, 3} and word[0] == name[0] else 0
    if shorter == 3:
        return 1 if sorted(word) == sorted(name) or len(name) > 3 else 0
    return 2 if shorter >= 7 else 1


def _slips(left: str, right: str) -> int:
    """How many letters are missing, too many, wrong or swapped with their neighbour."""
    if abs(len(left) - len(right)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
    return row[-1]
