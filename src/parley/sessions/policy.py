"""Which messages share a conversation on a surface, and when a conversation is over. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from parley.config.zones import time_zone

if TYPE_CHECKING:
    from parley.config.settings import Reset, SessionSettings

__all__ = ["SessionPolicy", "cutoff", "is_trigger", "policy_for"]


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """What holds for the conversations of one surface. `timezone` None: the machine's own."""

    group_sessions_per_user: bool = True
    thread_sessions_per_user: bool = False
    reset: Reset = "never"
    idle_minutes: int = 1440
    daily_at: str = "04:00"
    timezone: str | None = None
    reset_triggers: tuple[str, ...] = ()
    reset_notice: bool = True


def policy_for(settings: SessionSettings, platform: str) -> SessionPolicy:
    """What the settings say in general, and above it what they say of this surface."""
    values = settings.model_dump(exclude={"surfaces"})
    own = settings.surfaces.get(platform)
    if own is not None:
        values |= own.model_dump(exclude_none=True)
    return SessionPolicy(**values | {"reset_triggers": tuple(values["reset_triggers"])})


def cutoff(policy: SessionPolicy, now: float) -> float | None:
    """The moment before which a session must have been used last to be over; None: never over."""
    match policy.reset:
        case "never":
            return None
        case "idle":
            return _idle_since(policy, now)
        case "daily":
            return _day_began(policy, now)
        case "both":
            return max(_idle_since(policy, now), _day_began(policy, now))


def is_trigger(policy: SessionPolicy, text: str) -> bool:
    """Whether the whole message is one of those that begin a new conversation."""
    said = _plain(text)
    return bool(said) and any(said == _plain(trigger) for trigger in policy.reset_triggers)


def _idle_since(policy: SessionPolicy, now: float) -> float:
    return now - policy.idle_minutes * 60


def _day_began(policy: SessionPolicy, now: float) -> float:
    """The last time it was `daily_at`.

    Once a day: an hour that the clock passes twice counts the first time, and a time that it
    leaves out comes as much later as the clock jumped.
    """
    zone = time_zone(policy.timezone) if policy.timezone is not None else None
    at = time.fromisoformat(policy.daily_at)
    today = datetime.fromtimestamp(now, zone).date()
    # From tomorrow on, for a clock that was put back over midnight; a day may be left out whole.
    days = (today + timedelta(days=ahead) for ahead in (1, 0, -1, -2))
    moments = (datetime.combine(day, at, tzinfo=zone).timestamp() for day in days)
    return max(moment for moment in moments if moment <= now)


def _plain(text: str) -> str:
    return text.strip().casefold()
