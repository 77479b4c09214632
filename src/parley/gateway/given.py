"""What a program tells of a conversation, against what is stored of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parley.protocol import ChatMessage, HistoryEntry

__all__ = ["history_for"]


def history_for(
    stored: tuple[HistoryEntry, ...], given: Sequence[ChatMessage], *, whole: bool = False
) -> tuple[HistoryEntry, ...]:
    """What is stored, unless the program tells it differently: then what it tells.

    A program that gives nothing, or the end of what is stored, goes on with the stored: that holds
    what tools found as well. One that took something back, or knows more, is believed. Where it
    gives the `whole`, nothing means that nothing was said, and less that something was taken back;
    of a long conversation the stored may be the end.
    """
    told = _words(given)
    if not told and not whole:
        return stored
    known = _words(entry.message for entry in stored)
    if whole and known and told[-len(known) :] == known:
        return stored
    if not whole and known[-len(told) :] == told:
        return stored
    return tuple(HistoryEntry(0, message) for message in given)


def _words(messages: Iterable[ChatMessage]) -> list[tuple[str, str]]:
    """What a person would see of it."""
    return [
        (message.role, text)
        for message in messages
        if message.role != "tool" and message.note != "failed" and (text := message.text.strip())
    ]
