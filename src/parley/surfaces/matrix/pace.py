"""How fast previews may go out: few enough that replies never wait for their sake."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Pace"]

_PER_SECOND: Final = 20.0
_AT_ONCE: Final = 5.0
_UNDER_WAY: Final = 1.0
"""So many previews the server has to do with at a time, on average."""
_SLOWEST: Final = 0.02
_GROWTH: Final = 1.05
_PAUSE: Final = 2.0
_AT_FIRST: Final = 0.1
"""What a send takes, before anything is known of the server."""
_MEMORY: Final = 0.8


class Pace:
    """A queue of previews for the whole account, in the order they came.

    It moves more slowly where the server is slow, or complains, or has replies to take.
    """

    def __init__(
        self,
        *,
        per_second: float = _PER_SECOND,
        at_once: float = _AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._top = self._rate = per_second
        self._at_once = at_once
        self._took = _AT_FIRST
        self._tickets = 0
        self._served = at_once
        self._served_at = clock()
        self._silent_until = 0.0

    def reserve(self) -> int:
        """A place in the queue."""
        self._move()
        self._tickets += 1
        return self._tickets

    def give_back(self) -> None:
        """A place is not needed after all: the others move up."""
        self._served += 1

    def wait_for(self, ticket: int) -> float:
        """In how many seconds it is this place's turn, as things are now; 0 for at once."""
        self._move()
        return max(0.0, (ticket - self._served) / self._speed, self.silence)

    @property
    def silence(self) -> float:
        """For how long no preview may be sent, because the server said so."""
        return max(0.0, self._silent_until - self._clock())

    def spend(self) -> None:
        """A reply goes out. It waits for nobody, and previews get rarer for it."""
        self._move()
        self._served = max(self._served - 1, self._tickets - 10 * self._at_once)

    def worked(self, took: float) -> None:
        """A preview went out, and the server took so many seconds for it."""
        self._move()
        self._rate = min(self._top, self._rate * _GROWTH)
        self._took = _MEMORY * self._took + (1 - _MEMORY) * took

    def limited(self, after: float | None) -> None:
        """The server has had too much: be silent for longer than it says, and slower then."""
        wait = _PAUSE if after is None else after
        self._move()
        if not self.silence:
            self._rate = max(_SLOWEST, min(self._rate / 2, 0.5 / max(wait, 0.05)))
            self._served = min(self._served, self._tickets)
        self._silent_until = max(self._silent_until, self._clock() + wait * 1.5 + 0.2)

    @property
    def _speed(self) -> float:
        return min(self._rate, _UNDER_WAY / max(self._took, 0.001))

    def _move(self) -> None:
        now = self._clock()
        moved = self._served + (now - self._served_at) * self._speed
        self._served = min(self._tickets + self._at_once, moved)
        self._served_at = now
