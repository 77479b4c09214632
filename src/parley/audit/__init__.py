"""Audit log: what was done, by whom and from where, in a chain of hashes.

One log a home, in `PARLEY_HOME/audit`, for all of its profiles. Any room may record something;
`record` costs the event loop a few microseconds, and never fails.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.profiles.profile import FOLDER, Profile
from parley.profiles.scope import scoped_profile

if TYPE_CHECKING:
    from parley.audit.writer import AuditEvent, AuditWriter
    from parley.config.settings import AuditSettings

__all__ = [
    "audit_folder",
    "configure",
    "count",
    "fault_of",
    "flush",
    "house_of",
    "must_record",
    "record",
    "record_durably",
]

_PATIENCE = 10.0
_EMPTY: tuple[object, ...] = (None, "", {}, [])
_writers: dict[Path, AuditWriter] = {}


def record(
    kind: str, *, who: str = "", origin: str = "", profile: Profile | None = None, **data: Any
) -> None:
    """Record that something happened to the profile, by default the one in scope.

    Without `who` it was the person who runs this process. Secrets in `data` are struck out.
    """
    event = _event(kind, who, origin, profile, data)
    if event is None:
        return
    writer = _writer(event.house)
    if _on_event_loop():
        writer.put(event)
    else:
        writer.write(event)


async def record_durably(
    kind: str, *, who: str = "", origin: str = "", profile: Profile | None = None, **data: Any
) -> str:
    """Record it, and come back once that is on the disk.

    Returns why what is recorded may not go on; empty when it may. A log that cannot be written is
    a reason only where `audit.on_failure` is `refuse`.
    """
    event = _event(kind, who, origin, profile, data)
    if event is None:
        return ""
    loop = asyncio.get_running_loop()
    written: asyncio.Future[str | None] = loop.create_future()

    def settle(why: str | None) -> None:
        if not written.done():
            written.set_result(why)

    def done(why: str | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, why)

    writer = _writer(event.house)
    writer.put(event, done)
    try:
        async with asyncio.timeout(_PATIENCE):
            why = await written
    except TimeoutError:
        why = "it takes too long"
    if why is None or writer.on_failure != "refuse":
        return ""
    return f"This was not done, for it cannot be recorded in the audit log ({why})."


def count(kind: str, by: str, *, profile: Profile | None, origin: str = "", **data: Any) -> None:
    """Record something that may come in floods: the first of a minute, then how many there were.

    `by` says whose flood it is; the busiest few are kept apart.
    """
    event = _event(kind, "?", origin, profile, data)
    if event is not None:
        _writer(event.house).count(event, by)


def configure(home: Path, settings: AuditSettings) -> None:
    """What is kept, and what happens when nothing can be written."""
    _writer(home).configure(
        keep_mb=settings.keep_mb, keep_days=settings.keep_days, on_failure=settings.on_failure
    )


def flush() -> None:
    """Wait, for a moment, until all that was recorded is written."""
    for writer in tuple(_writers.values()):
        writer.flush()


def fault_of(profile: Profile) -> str | None:
    """Why the log of this profile's home cannot be written now."""
    writer = _writers.get(house_of(profile))
    return None if writer is None else writer.fault


def must_record(profile: Profile) -> bool:
    """Whether what cannot be recorded may not be done."""
    writer = _writers.get(house_of(profile))
    return writer is not None and writer.on_failure == "refuse"


def audit_folder(profile: Profile) -> Path:
    """Where the log is that tells of this profile."""
    return house_of(profile) / "audit"


def house_of(profile: Profile) -> Path:
    """The home of all profiles, where one of them is known."""
    home = profile.home
    return home.parent.parent if not profile.is_default and home.parent.name == FOLDER else home


def _event(
    kind: str, who: str, origin: str, profile: Profile | None, data: dict[str, Any]
) -> AuditEvent | None:
    whose = profile or scoped_profile()
    if whose is None:
        return None
    from parley.audit.writer import AuditEvent

    if not who:
        who, origin = _local_user(), origin or "this machine"
    told = {name: value for name, value in data.items() if value not in _EMPTY}
    return AuditEvent(time.time(), kind, whose.name, whose.home, house_of(whose), who, origin, told)


def _writer(home: Path) -> AuditWriter:
    found = _writers.get(home)
    if found is None:
        from parley.audit.writer import AuditWriter

        found = _writers.setdefault(home, AuditWriter(home))
    return found


@cache
def _local_user() -> str:
    import pwd

    try:
        return f"local:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"local:{os.getuid()}"


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
