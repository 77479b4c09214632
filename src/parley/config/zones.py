"""Time zones by their name."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from parley.protocol import ParleyError

__all__ = ["time_zone"]


def time_zone(name: str) -> ZoneInfo:
    """The zone of this name; an error one can read when there is none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ParleyError(
            f"`{name}` is not a known time zone; one is called such as Europe/Paris."
        ) from error
