"""A gateway's status in words, for `gateway run` and `gateway status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parley.protocol import count

__all__ = ["describe"]

_Record = Mapping[str, Any]
_KEY_HINT = "  The key of this machine for programs: parley keys local"


def describe(status: _Record, *, greeting: bool = False, keyless: bool = False) -> str:
    """All there is to say, a line each; a `greeting` leaves out what cannot have happened yet.

    `keyless`: no API key was made, so that the one of this machine works.
    """
    lines = _one(status, greeting) if _is_alone(status) else _many(status, greeting)
    served = any(place["platform"] == "api" and not place["fault"] for place in status["surfaces"])
    hint = [_KEY_HINT] if keyless and served else []
    return "\n".join([*lines, *hint])


def _is_alone(status: _Record) -> bool:
    return not status["multiplex"] and len(status["profiles"]) == 1


def _one(status: _Record, greeting: bool) -> Iterator[str]:
    [profile] = status["profiles"]
    yield _head(status, status["home"], greeting)
    yield f"  answers   {profile['answered_by']}"
    if not greeting:
        yield f"  turns     {_under_way(profile)}"
    for surface in (*profile["surfaces"], *_told(status)):
        yield f"  {surface['platform']:<9} {_place(surface)}"
    yield from _troubles(profile, "  ")


def _many(status: _Record, greeting: bool) -> Iterator[str]:
    profiles = sorted(
        status["profiles"], key=lambda told: (told["name"] != "default", told["name"])
    )
    served = sum(not profile["fault"] for profile in profiles)
    of = f"{served} of {len(profiles)}" if served < len(profiles) else f"{served}"
    many = "s" if len(profiles) != 1 else ""
    yield _head(status, f"{of} profile{many} of {status['home']}", greeting)
    names = [profile["name"] for profile in profiles]
    names += [surface["platform"] for surface in _told(status)]
    width = max(len(name) for name in names)
    for profile in profiles:
        name = f"{profile['name']:<{width}}"
        if profile["fault"]:
            yield f"  {name}  NOT SERVED: {profile['fault']}"
            continue
        open_ = (place["platform"] for place in profile["surfaces"] if not place["fault"])
        places = ", ".join(open_) or "nowhere"
        yield f"  {name}  {profile['answered_by']} · {places}"
        if not greeting and any(profile[part] for part in ("running", "queued", "undelivered")):
            yield f"  {'':<{width}}  {_under_way(profile)}"
        for surface in profile["surfaces"]:
            if surface["fault"] or surface.get("note"):
                yield f"  {'':<{width}}  {surface['platform']} {_place(surface)}"
        yield from _troubles(profile, f"  {'':<{width}}  ")
    for surface in _told(status):
        yield f"  {surface['platform']:<{width}}  {_place(surface)}"
    for note in status["notes"]:
        yield f"  note: {note}"


def _told(status: _Record) -> list[_Record]:
    """The surfaces of the house; direct agents are at the API's address, which is told already."""
    return [each for each in status["surfaces"] if each["platform"] != "direct" or each["fault"]]


def _head(status: _Record, what: str, greeting: bool) -> str:
    head = f"Parley {status['version']} serves {what} (process {status['pid']})"
    if greeting:
        return head
    return f"{head}, {status['state']}, up {_duration(status['uptime_seconds'])}"


def _under_way(profile: _Record) -> str:
    undelivered = count(profile["undelivered"], "reply on its way", "replies on their way")
    return f"{profile['running']} running, {profile['queued']} waiting, {undelivered}"


def _place(surface: _Record) -> str:
    fault = f"  NOT SERVED: {surface['fault']}" if surface["fault"] else ""
    # Programs are told the address that their client library wants.
    below = "/v1" if surface["platform"] == "api" else ""
    note = f"  NOTE: {surface['note']}" if surface.get("note") else ""
    return f"{surface['where']}{below}{fault}{note}"


def _troubles(profile: _Record, indent: str) -> Iterator[str]:
    for fault in profile["faults"]:
        yield f"{indent}fault     {fault}"
    if starting := profile.get("starting"):
        yield f"{indent}starting  {', '.join(starting)}"
    for note in profile.get("notes", ()):
        yield f"{indent}note      {note}"
    for note in profile["doubtful"]:
        what = "may not have arrived" if note["state"] == "unsure" else "was refused"
        words = f": {note['text'][:60]}" if note["text"] else ""
        yield f"{indent}reply {note['id']} {what} ({note['lane']}){words}"


def _duration(seconds: float) -> str:
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds) % 60} s"
