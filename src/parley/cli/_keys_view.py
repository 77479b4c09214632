"""API keys as people and scripts see them, and when one is to expire. No token is here. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock
from typing import Final

from parley.config.api_keys import SCOPES, ApiKey
from parley.protocol import ParleyError

__all__ = ["as_list", "as_record", "expiry", "moment", "scopes_of"]

_SPAN: Final = re.compile(r"([0-9]{1,5})([dh])")
_SPANS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1)}


def as_list(keys: Sequence[ApiKey], profile: str, now: float, zone: tzinfo | None = None) -> str:
    """One line a key: name, id, scopes, when it was made, until when it works."""
    rows = [("name", "id", "scopes", "created", "expires")]
    for key in keys:
        scopes = ",".join(_in_order(key)) + (" (all profiles)" if key.all_profiles else "")
        until = _until(key, profile, now, zone)
        rows.append((key.name, key.id, scopes, moment(key.created_at, zone), until))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(f"{row[i]:<{widths[i]}}" for i in range(4)) + f"  {row[4]}" for row in rows]
    return "\n".join(lines) + "\n"


def as_record(key: ApiKey, now: float) -> dict[str, object]:
    """A key for scripts."""
    return {
        "name": key.name,
        "id": key.id,
        "profile": key.profile,
        "scopes": _in_order(key),
        "all_profiles": key.all_profiles,
        "per_minute": key.per_minute,
        "created_at": _stamp(key.created_at),
        "expires_at": None if key.expires_at is None else _stamp(key.expires_at),
        "expired": key.expired(now),
    }


def scopes_of(text: str) -> list[str]:
    """The scopes in a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def expiry(text: str, now: float, zone: tzinfo | None = None) -> float | None:
    """The moment that `30d`, `12h`, a date (its last second here) or `never` means."""
    wanted = text.strip().lower()
    if wanted == "never":
        return None
    if span := _SPAN.fullmatch(wanted):
        return now + (int(span[1]) * _SPANS[span[2]]).total_seconds()
    try:
        day = datetime.combine(date.fromisoformat(wanted), clock(23, 59, 59), zone)
        return day.timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ParleyError(
            "A key expires after days (30d) or hours (12h), at the end of a day (2031-01-31), "
            "or `never`."
        ) from error


def moment(at: float, zone: tzinfo | None = None) -> str:
    return f"{datetime.fromtimestamp(at, UTC).astimezone(zone):%Y-%m-%d %H:%M}"


def _until(key: ApiKey, profile: str, now: float, zone: tzinfo | None) -> str:
    if key.profile != profile:
        return f"void: made for `{key.profile}`"
    if key.expires_at is None:
        return "never"
    at = moment(key.expires_at, zone)
    return f"expired {at}" if key.expired(now) else at


def _in_order(key: ApiKey) -> list[str]:
    return [scope for scope in SCOPES if scope in key.scopes]


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
