"""Loop guard: two bots that answer each other in a group are slowed down, then stopped. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["LoopGuard", "Verdict"]

Verdict = Literal["answer", "silent", "stop"]
"""`stop` comes once: from then on it is silent, and people are told why."""

_HOUR: Final = 3600.0
_MOST_KEPT: Final = 1000


@dataclass(slots=True)
class _Partner:
    """One sender in one room, and when they were answered during the last hour."""

    answered: deque[float] = field(default_factory=deque)
    strikes: int = 0
    quiet_until: float = 0.0
    stopped: bool = False
    seen: float = 0.0

    def since(self, time: float) -> int:
        return sum(each > time for each in self.answered)


class LoopGuard:
    """Counts answers to each sender of a room. Whoever is answered too often waits longer each
    time, and in the end is not answered until a person writes there.
    """

    def __init__(
        self, most: int = 12, within: float = 60.0, *, hourly: int = 60, strikes: int = 5
    ) -> None:
        self._most = most
        self._within = within
        self._hourly = hourly
        self._strikes = strikes
        self._partners: dict[tuple[str, str], _Partner] = {}

    def check(self, room: str, sender: str, now: float) -> Verdict:
        """Whether there may be one more answer to this sender; if so, it counts."""
        partner = self._partner(room, sender, now)
        if partner.stopped or now < partner.quiet_until:
            return "silent"
        burst = max(1, self._most >> partner.strikes)
        recent = partner.since(max(now - self._within, partner.quiet_until))
        if recent < burst and len(partner.answered) < self._hourly:
            partner.answered.append(now)
            return "answer"
        partner.strikes += 1
        partner.quiet_until = now + self._within * 2.0**partner.strikes
        if partner.strikes < self._strikes:
            return "silent"
        partner.stopped = True
        return "stop"

    def person_wrote(self, room: str, sender: str, now: float) -> None:
        """Someone writes there: the others are answered again, unless this one may be a bot too."""
        own = self._partners.get((room, sender))
        if own is not None and (own.strikes or own.since(now - _HOUR) > self._most):
            return
        slowed = [key for key, each in self._partners.items() if key[0] == room and each.strikes]
        for key in slowed:
            del self._partners[key]

    def _partner(self, room: str, sender: str, now: float) -> _Partner:
        if len(self._partners) > _MOST_KEPT:
            self._partners = {
                key: each
                for key, each in self._partners.items()
                if each.stopped or each.seen > now - _HOUR
            }
        partner = self._partners.setdefault((room, sender), _Partner())
        partner.seen = now
        while partner.answered and partner.answered[0] <= now - _HOUR:
            partner.answered.popleft()
        if not partner.answered and not partner.stopped and now >= partner.quiet_until:
            partner.strikes = 0
        return partner
