"""Who talks just now, and which conversations could not be tended: kept in memory, and bounded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

__all__ = ["Activity", "Faults"]

_LONGEST_PAUSE: Final = 3600.0
_MOST_FAULTS: Final = 1_000


class Activity:
    """When each lane was last used. A lane rests when that is longer ago than `rest`."""

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._at: dict[str, float] = {}

    def record(self, lane: str) -> None:
        now = time.monotonic()
        self._at.pop(lane, None)
        self._at[lane] = now
        self.prune()

    def rests(self, lane: str) -> bool:
        at = self._at.get(lane)
        return at is None or time.monotonic() - at > self._rest

    def since(self, lane: str, moment: float) -> bool:
        """Whether it was used after that moment."""
        return self._at.get(lane, moment) > moment

    def prune(self) -> None:
        """Lanes that rest are not kept. The longest unused come first."""
        before = time.monotonic() - self._rest
        while self._at:
            lane, at = next(iter(self._at.items()))
            if at >= before:
                return
            del self._at[lane]

    def __len__(self) -> int:
        return len(self._at)


@dataclass(frozen=True, slots=True)
class _Fault:
    times: int
    sentence: str
    until: float


class Faults:
    """Sessions that failed, how often in a row, and why."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._faults: dict[str, _Fault] = {}

    def add(self, session: str, sentence: str) -> float:
        """When to try it again: later each time, and at the latest in an hour."""
        before = self._faults.pop(session, None)
        times = 1 if before is None else before.times + 1
        pause = min(self._pause * 2.0 ** min(times - 1, 30), _LONGEST_PAUSE)
        until = time.time() + pause
        self._faults[session] = _Fault(times, sentence, until)
        if len(self._faults) > _MOST_FAULTS:
            del self._faults[next(iter(self._faults))]
        return until

    def clear(self, session: str) -> None:
        self._faults.pop(session, None)

    def prune(self) -> None:
        """What was due again long ago, and did not fail, is there no more."""
        now = time.time()
        for session, fault in tuple(self._faults.items()):
            if now > fault.until + 2 * _LONGEST_PAUSE:
                del self._faults[session]

    @property
    def last(self) -> str | None:
        return next((fault.sentence for fault in reversed(self._faults.values())), None)

    def __len__(self) -> int:
        return len(self._faults)
