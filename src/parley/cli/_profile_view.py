"""Profiles as people and scripts see them: one line each, or one at length. No secret is shown."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from parley.cli._plain import one_line
from parley.cli._profile_house import environment_of, route_words, routes_to
from parley.cli._profile_keep import holder_words
from parley.config.errors import ConfigError, shown
from parley.config.secrets import Secrets
from parley.config.settings import Settings
from parley.config.tree import open_top, walk_tree
from parley.gateway.home import Holder, holder_of
from parley.profiles import Profile, profile_scope
from parley.protocol import ParleyError
from parley.storage.archive import NEVER

__all__ = ["Details", "Summary", "as_list", "as_text", "describe", "summarize"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One profile in a list. Either `provider` is there, or the `fault` of its settings."""

    name: str
    home: str
    provider: str | None
    model: str | None
    fault: str | None
    active: bool
    served_by: Holder | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def answers(self) -> str:
        if self.fault is not None:
            return f"fault: {one_line(self.fault, longest=200)}"
        words = f"{self.provider} · {self.model}" if self.model else str(self.provider)
        return one_line(words, longest=80)


@dataclass(frozen=True, slots=True)
class Details:
    """All there is to say of one profile. What cannot be read is None."""

    summary: Summary
    soul: str | None
    skills: int
    sessions: int | None
    bytes: int
    database_bytes: int
    keys: tuple[str, ...]
    surfaces: tuple[str, ...]
    routes: tuple[str, ...]
    held_back: tuple[str, ...]
    """What an import brought that waits to be confirmed."""

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        return {**record.pop("summary"), **record}


def summarize(profile: Profile, *, active: bool) -> Summary:
    settings, fault = _settings(profile)
    provider = None if settings is None else settings.model.provider
    return Summary(
        name=profile.name,
        home=str(profile.home),
        provider=provider,
        model=None if settings is None else _model(settings),
        fault=fault,
        active=active,
        served_by=holder_of(profile),
    )


def describe(profile: Profile, *, active: bool) -> Details:
    settings, _ = _settings(profile)
    return Details(
        summary=summarize(profile, active=active),
        soul=_first_line(profile.soul_file),
        skills=_count(profile.skills),
        sessions=_sessions(profile),
        bytes=_size(profile.home),
        database_bytes=_database_size(profile),
        keys=_keys(profile),
        surfaces=_surfaces(settings),
        routes=_routes(profile),
        held_back=_held_back(profile),
    )


def as_list(summaries: Sequence[Summary]) -> str:
    """One line a profile: name, who answers, whether it is served, where it lives."""
    rows = [("name", "answers", "served", "home")]
    for one in summaries:
        served = "-" if one.served_by is None else f"{one.served_by.kind} {one.served_by.pid}"
        mark = "*" if one.active else ""
        rows.append((f"{one.name}{mark}", one.answers, served, shown(Path(one.home))))
    # A fault is a sentence: it takes what room it needs without pushing the others aside.
    usual = [row for row, one in zip(rows[1:], summaries, strict=True) if one.fault is None]
    widths = [max(len(row[column]) for row in [rows[0], *usual]) for column in range(3)]
    widths[0] = max(len(row[0]) for row in rows)
    lines = ["  ".join(f"{row[i]:<{widths[i]}}" for i in range(3)) + f"  {row[3]}" for row in rows]
    return "\n".join(lines) + "\n"


def as_text(details: Details) -> str:
    """A profile at length."""
    one = details.summary
    served = "no" if one.served_by is None else f"by {holder_words(one.served_by)}"
    sessions = "cannot be read" if details.sessions is None else str(details.sessions)
    rows = [
        ("profile", one.name + (" (active)" if one.active else "")),
        ("home", shown(Path(one.home))),
        ("answers", one.answers),
        ("soul", one_line(details.soul or "none: the usual one", longest=100)),
        ("skills", str(details.skills)),
        ("sessions", f"{sessions}, database {_amount(details.database_bytes)}"),
        ("size", _amount(details.bytes)),
        ("keys", ", ".join(details.keys) or "none"),
        ("surfaces", ", ".join(("terminal", *details.surfaces))),
        ("served", served),
        ("routes", "; ".join(one_line(route, longest=200) for route in details.routes) or "none"),
    ]
    if details.held_back:
        review = f"parley profile review {one.name}"
        rows.append(("held back", f"{len(details.held_back)} (see them: {review})"))
    return "".join(f"{label:<9} {value}\n" for label, value in rows)


def _settings(profile: Profile) -> tuple[Settings | None, str | None]:
    from parley.config.load import load_settings

    try:
        return load_settings(profile, environment_of(profile)), None
    except ConfigError as error:
        return None, str(error)


def _model(settings: Settings) -> str | None:
    name = settings.model.provider
    entry = settings.providers.get(name)
    given = settings.model.name or (entry.model if entry else None)
    return given or (settings.local.weights if name == "local" else None)


def _first_line(file: Path) -> str | None:
    from parley.config.files import read_text

    try:
        lines = (read_text(file) or "").splitlines()
    except ConfigError as error:
        return str(error)
    return next((line.strip() for line in lines if line.strip()), None)


def _count(folder: Path) -> int:
    try:
        return sum(not item.name.startswith(".") for item in folder.iterdir())
    except OSError:
        return 0


def _sessions(profile: Profile) -> int | None:
    from parley.cli._stored import stored

    async def count() -> int:
        async with stored(profile) as store:
            found = [] if store is None else await store.sessions(limit=1_000_000)
        return sum(bool(record.turns or record.title) for record in found)

    try:
        return asyncio.run(count())
    except ParleyError:
        return None


def _size(home: Path) -> int:
    """How much the profile takes, without what is not its own in the default one's home."""
    others = NEVER - {"run"}

    def wanted(path: str, status: os.stat_result) -> bool:
        return path not in others or not S_ISDIR(status.st_mode)

    total = 0
    with contextlib.suppress(OSError), open_top(home) as top:
        for entry in walk_tree(top, wanted=wanted):
            total += 0 if entry.is_folder else entry.status.st_size
    return total


def _database_size(profile: Profile) -> int:
    file = profile.database_file
    return sum(_file_size(file.with_name(file.name + ending)) for ending in ("", "-wal"))


def _file_size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _keys(profile: Profile) -> tuple[str, ...]:
    secrets = Secrets(profile, environment_of(profile))
    try:
        with profile_scope(profile):
            return secrets.names()
    except ConfigError:
        return ()


def _surfaces(settings: Settings | None) -> tuple[str, ...]:
    """The places of its own where this profile's agent can be talked to."""
    if settings is None:
        return ()
    surfaces = settings.surfaces
    return tuple(
        name
        for name in type(surfaces).model_fields
        if getattr(getattr(surfaces, name), "enabled", False)
    )


def _routes(profile: Profile) -> tuple[str, ...]:
    try:
        return tuple(route_words(route) for route in routes_to(profile.name))
    except ConfigError:
        return ()


def _held_back(profile: Profile) -> tuple[str, ...]:
    from parley.storage.quarantine import Quarantine

    try:
        return tuple(item.name for item in Quarantine(profile).items())
    except ParleyError:
        return ("what cannot be read",)


def _amount(size: int) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,} {unit}"
        size = round(size / 1000)
    raise AssertionError
