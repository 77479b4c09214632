"""Compare the history that a program sends with the stored one. Pure.

A program sees less than is stored: not the calls of the profile's own tools, and the texts of
several steps as one. What it could not have seen makes no difference here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from parley.protocol import ChatMessage

__all__ = ["count_known"]


def count_known(
    given: Sequence[ChatMessage],
    stored: Iterable[ChatMessage],
    *,
    asked: Sequence[ChatMessage] = (),
    whole: bool = False,
    cut: bool = False,
) -> int | None:
    """How many of the `given` messages are stored already; None when they tell it differently.

    `stored` has the newest first. What comes behind it in `given` is new. A program may give only
    the end of what is stored, unless it says that it gives the `whole`: then what is missing was
    taken back. With `cut`, `stored` is the end of a longer conversation. `asked` is the rest of
    the request: calls that the program names are its own.
    """
    named = frozenset(
        id
        for message in (*given, *asked)
        for id in (message.tool_call_id, *(call.id for call in message.tool_calls))
        if id is not None
    )
    told = list(_blocks(reversed(given), named))
    known = _Lazy(_blocks(stored, named))
    seen = 0
    for skipped, block in enumerate(told):
        if _match(told[skipped:], known, whole=whole, cut=cut):
            return len(given) - seen
        seen += block.messages
    return None


@dataclass(frozen=True, slots=True)
class _Block:
    """What a program sees as one message. The newest text comes first."""

    kind: Literal["user", "assistant", "results"]
    texts: tuple[str, ...] = ()
    ids: frozenset[str] = frozenset()
    interrupted: bool = False
    messages: int = 0
    """How many messages it takes up, with those behind it that nobody sees."""

    def matches(self, stored: _Block) -> bool:
        if (self.kind, self.ids) != (stored.kind, stored.ids):
            return False
        told, whole = _squash(self.texts), _squash(stored.texts)
        if told == whole or told == _squash(stored.texts[:1]):
            return True
        # Whoever stopped an answer may have got less of it than was stored.
        return stored.interrupted and whole.startswith(told)


class _Lazy:
    """Blocks that are read when they are needed, and can be read again."""

    def __init__(self, blocks: Iterator[_Block]) -> None:
        self._blocks = blocks
        self._read: list[_Block] = []

    def __iter__(self) -> Iterator[_Block]:
        yield from self._read
        for block in self._blocks:
            self._read.append(block)
            yield block


def _match(told: Sequence[_Block], stored: Iterable[_Block], *, whole: bool, cut: bool) -> bool:
    """Whether one of them is the end of the other, as far as that may be."""
    position = 0
    for known in stored:
        if position == len(told):
            return not whole
        if not told[position].matches(known):
            return False
        position += 1
    return position == len(told) or whole or cut


def _blocks(newest_first: Iterable[ChatMessage], named: frozenset[str]) -> Iterator[_Block]:
    """A call that the program named ends a block: its results come next."""
    kind: Literal["assistant", "results"] | None = None
    texts: list[str] = []
    ids: frozenset[str] = frozenset()
    interrupted, taken = False, 0

    def ended() -> Iterator[_Block]:
        nonlocal kind, texts, ids, interrupted, taken
        if kind is not None and (ids or _squash(texts)):
            yield _Block(kind, tuple(texts), ids, interrupted, taken)
            taken = 0
        kind, texts, ids, interrupted = None, [], frozenset(), False

    for message in newest_first:
        calls = frozenset(call.id for call in message.tool_calls) & named
        if message.note == "failed":
            taken += 1
        elif message.role == "user":
            yield from ended()
            taken += 1
            if message.text.strip():
                yield _Block("user", (message.text,), messages=taken)
                taken = 0
        elif message.role == "tool":
            if message.tool_call_id in named:
                if kind != "results":
                    yield from ended()
                kind, ids = "results", ids | {message.tool_call_id or ""}
            taken += 1
        else:
            if kind != "assistant" or calls:
                yield from ended()
            kind, ids = "assistant", ids | calls
            texts.append(message.text)
            interrupted = interrupted or message.note == "interrupted"
            taken += 1
    yield from ended()


def _squash(texts: Sequence[str]) -> str:
    """All of them in order, without white space: steps are joined and answers are trimmed."""
    return "".join("".join(text.split()) for text in reversed(texts))
