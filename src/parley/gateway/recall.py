"""What was said in a session, kept in memory for the sessions that talk just now.

Reading a transcript anew for each turn would cost more the longer it is. The store tells whether
what is remembered still holds; then only what came since is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from parley.protocol import HistoryEntry
from parley.storage.contract import Claim, Entry, Recall, Store

__all__ = ["Histories", "Remembered"]

_MOST_BYTES = 16_000_000
_EACH = 600  # besides the words; an entry was measured to take some 300, a session a little more


@dataclass(frozen=True, slots=True)
class Remembered:
    """A session as a turn sees it: what was said before it, and what it has said itself.

    `summary` stands for what was said before the history; `versions` are those of the places
    that were asked for; `outside` is that of the `Recall`.
    """

    provider: str | None
    model: str | None
    history: tuple[HistoryEntry, ...]
    progress: tuple[Entry, ...]
    summary: str = ""
    versions: tuple[int, ...] = ()
    outside: str = ""


@dataclass(slots=True)
class _Kept:
    revision: int
    last: int
    history: tuple[HistoryEntry, ...]
    bytes: int


class Histories:
    """The histories of the sessions used last, bounded in size."""

    def __init__(self, store: Store, *, most_bytes: int = _MOST_BYTES) -> None:
        self._store = store
        self._most = most_bytes
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._bytes = 0

    async def of(self, claim: Claim, places: Sequence[str] = ()) -> Remembered:
        """Everything before the claimed turn, and what there is of the turn already."""
        kept = self._kept.get(claim.session)
        if kept is None:
            found = await self._store.recall(claim.session, places=places)
        else:
            found = await self._store.recall(
                claim.session, revision=kept.revision, since=kept.last, places=places
            )
        history = self._history(claim, kept, found)
        progress = tuple(entry for entry in found.entries if entry.turn == claim.turn)
        return Remembered(
            *(found.provider, found.model, history, progress),
            summary=found.summary,
            versions=found.versions,
            outside=found.outside,
        )

    def _history(self, claim: Claim, kept: _Kept | None, found: Recall) -> tuple[HistoryEntry, ...]:
        before = () if kept is None or found.whole else kept.history
        # What was posted while a turn ran comes behind it: calls and their results stay together.
        others = (entry for entry in found.entries if entry.turn != claim.turn)
        earlier = sorted(others, key=lambda entry: (entry.turn, entry.id))
        history = before + tuple(
            HistoryEntry(entry.id, entry.message, entry.person) for entry in earlier
        )
        # What was posted since this turn began is read again by the next one, in its place.
        began = next((entry.id for entry in found.entries if entry.turn == claim.turn), None)
        settled = [entry for entry in earlier if began is None or entry.id < began]
        size = sum(_EACH + entry.message.size for entry in settled)
        size += _EACH if kept is None or found.whole else kept.bytes
        self._forget(claim.session)
        if found.revision >= 0:
            known = 0 if kept is None or found.whole else kept.last
            last = max((entry.id for entry in settled), default=known)
            remembered = history[: len(before) + len(settled)]
            self._keep(claim.session, _Kept(found.revision, last, remembered, size))
        return history

    def _keep(self, session: str, kept: _Kept) -> None:
        self._kept[session] = kept
        self._bytes += kept.bytes
        while self._bytes > self._most and self._kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, session: str) -> None:
        gone = self._kept.pop(session, None)
        if gone is not None:
            self._bytes -= gone.bytes
