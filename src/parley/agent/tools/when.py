"""Moments and spans as a model writes them. Pure, but for the machine's own time zone."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from parley.agent.tools.base import ToolError
from parley.config.zones import time_zone
from parley.protocol import ParleyError

__all__ = ["cron_times", "find_zone", "machine_zone", "parse_at", "parse_every", "span", "told"]

_SPAN = re.compile(r"(\d{1,9})\s*([mhdw])", re.ASCII | re.IGNORECASE)
_WORDY_SPAN = re.compile(
    r"(\d{1,9})\s*(m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)(?![a-z])",
    re.ASCII | re.IGNORECASE,
)
_LATER = re.compile(r"^(?:\+|in\s+)\s*", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2})(?::(\d{2}))?(?::00)?(am|pm)?", re.ASCII)
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_FARTHEST = timedelta(days=3_653).total_seconds()
_UTC = ZoneInfo("UTC")


def find_zone(name: str | None) -> ZoneInfo:
    """The zone of this name, or the machine's own."""
    if not name:
        return machine_zone()
    try:
        return time_zone(name)
    except ParleyError as error:
        raise ToolError(str(error)) from error


def machine_zone() -> ZoneInfo:
    """By its name, so that it can be kept; UTC where the machine does not tell one."""
    names = (os.environ.get("TZ", "").removeprefix(":"), _zone_behind(Path("/etc/localtime")))
    for name in names:
        try:
            if name:
                return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            continue
    return _UTC


def parse_at(text: str, zone: ZoneInfo, now: float) -> float:
    """A date and time, in `zone` where it names no offset; or `+10m` from now."""
    text = text.strip()
    if (later := _in_a_while(text)) is not None:
        at = now + later
    elif (moment := _on_a_day(text, zone, now)) is not None:
        at = moment
    else:
        at = _moment(text, zone)
    if at <= now:
        raise ToolError(f"{told(at, zone)} is past: it is {told(now, zone)} now.")
    if at - now > _FARTHEST:
        raise ToolError("That is more than ten years away; nothing is planned so far ahead.")
    return at


def _in_a_while(text: str) -> float | None:
    """The seconds in `+10m`, `10m`, `in 10 minutes`, `1h 30m`; None where it is no such thing."""
    rest = _LATER.sub("", text)
    spans = list(_WORDY_SPAN.finditer(rest))
    if not spans or re.sub(r"[\s,]+|and", "", _WORDY_SPAN.sub("", rest)):
        return None
    return float(sum(int(each[1]) * _UNITS[each[2][0].lower()] for each in spans))


def _on_a_day(text: str, zone: ZoneInfo, now: float) -> float | None:
    """`tomorrow 9:00`, `Friday at 18:30`, `9am`: the next such moment; None where it is none."""
    words = text.lower().replace(",", " ").split()
    clock = [found for word in words if (found := _CLOCK.fullmatch(word)) is not None]
    days = [word for word in words if word in _DAYS or word in ("today", "tonight", "tomorrow")]
    rest = [word for word in words if _CLOCK.fullmatch(word) is None and word not in days]
    if len(clock) != 1 or len(days) > 1 or not set(rest) <= {"at", "on", "next"}:
        return None
    hour, minute, half = int(clock[0][1]), int(clock[0][2] or 0), clock[0][3]
    hour = hour % 12 + 12 * (half == "pm") if half else hour
    if hour > 23 or minute > 59 or not (clock[0][2] or half or days):
        return None
    today = datetime.fromtimestamp(now, UTC).astimezone(zone)
    moment = today.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if days and days[0] in _DAYS:
        moment += timedelta(days=(_DAYS.index(days[0]) - today.weekday()) % 7)
        if moment <= today:
            moment += timedelta(days=7)
    elif days == ["tomorrow"] or (not days and moment <= today):
        moment += timedelta(days=1)
    return moment.timestamp()


def parse_every(text: str) -> float:
    """How many seconds `15m`, `2h` or `1d` are."""
    seconds = _seconds(text, "`every` is written such as 15m, 2h or 1d")
    if not 60 <= seconds <= _FARTHEST:
        raise ToolError("`every` is a minute (1m) at least, and ten years at most.")
    return seconds


def cron_times(cron: str, zone: ZoneInfo, now: float, *, count: int = 2) -> list[float]:
    """The next times that a cron line names."""
    from cronsim import CronSim, CronSimError

    if len(cron.split()) != 5:
        raise ToolError("A cron line has five fields: minute, hour, day, month, weekday.")
    try:
        times = CronSim(cron, datetime.fromtimestamp(now, UTC).astimezone(zone))
        return [next(times).timestamp() for _ in range(count)]
    except (CronSimError, StopIteration) as error:
        raise ToolError(f"`{cron}` is not a cron line that ever comes due.") from error


def span(seconds: float) -> str:
    """As `parse_every` reads it."""
    whole = int(seconds)
    unit = next(unit for unit in ("d", "h", "m") if whole % _UNITS[unit] == 0 or unit == "m")
    return f"{whole // _UNITS[unit]}{unit}"


def told(at: float, zone: ZoneInfo) -> str:
    """A moment as one reads it there."""
    try:
        moment = datetime.fromtimestamp(at, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return "That"
    return f"{moment:%a %Y-%m-%d %H:%M} ({zone.key})"


def _moment(text: str, zone: ZoneInfo) -> float:
    try:
        moment = datetime.fromisoformat(text)
        if _is_date(text):
            raise ToolError(f"`{text}` names no time of day; write such as {text}T09:00.")
        # In an hour that comes twice it is the first; in one that is left out, as much later.
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise ToolError(
            "`at` is a date and time such as 2031-01-31T09:00, or in a while: +10m, +2h, +3d."
        ) from error


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _seconds(text: str, otherwise: str) -> float:
    span = _SPAN.fullmatch(text)
    if span is None:
        raise ToolError(f"{otherwise}.")
    return float(int(span[1]) * _UNITS[span[2].lower()])


def _zone_behind(link: Path) -> str:
    """The name in a link such as `/usr/share/zoneinfo/Europe/Paris`."""
    try:
        return str(link.readlink()).partition("zoneinfo/")[2]
    except OSError:
        return ""
