"""Quarantine of an imported profile: what would run, open, send or spend waits for its owner.

It is a folder in the profile's home, `quarantine/`, that nothing but this module reads. A home is
put into it before it gets its name, so no gateway ever sees it otherwise.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from parley.config.document import SettingPath, Value
from parley.config.edit import HEAD, add_settings
from parley.config.env import OPTIONAL_ENV_VARS
from parley.config.env_file import EnvFile, read_env_file, write_env_file
from parley.config.errors import ConfigError, nearest, shown
from parley.config.files import locked, read_text, replace_text
from parley.config.import_rules import split_settings
from parley.config.load import load_settings
from parley.config.tree import open_top, remove_tree, walk_tree
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.storage.contract import StoreError

__all__ = ["HeldItem", "Quarantine", "QuarantineReport", "quarantine_home"]

FOLDER: Final = "quarantine"
_SETTINGS: Final = "settings.json"
_JOBS: Final = "jobs.json"
_FILES: Final = "files"
_ENV: Final = ".env"
# What only people and models read. All else in a home waits.
_HARMLESS_NAMES: Final = frozenset({"SOUL.md", "workspace", "attachments", "memory", "logs"})
_BY_ENTRY: Final = frozenset({"skills", "mcp"})
_MOST_FILES: Final = 10
_MOST_COUNTED: Final = 10_000
_MOST_BYTES: Final = 4_000
_KEY: Final = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HeldItem:
    """One thing that waits: `name` is how the owner names it, `what` is all of it."""

    name: str
    kind: str
    what: str
    key: SettingPath | str = field(compare=False)


@dataclass(slots=True)
class QuarantineReport:
    """What an import left out for good, and what is wrong with it."""

    grants: list[str] = field(default_factory=list)
    people: int = 0
    """Settings that people had."""
    faults: list[str] = field(default_factory=list)


def quarantine_home(profile: Profile, *, final: Path) -> QuarantineReport:
    """Hold back what an unpacked home should not do by itself; `final` is where it will lie."""
    report = QuarantineReport()
    hold = profile.home / FOLDER
    files = hold / _FILES
    found = sorted(item for item in profile.home.iterdir() if item.name not in _HARMLESS_NAMES)
    for folder in (hold, files):
        folder.mkdir(mode=0o700)
    for item in found:
        item.rename(files / item.name)
    _take_database(profile, hold, final, report)
    _take_settings(profile, hold, report)
    with suppress(ConfigError):
        read_env_file(files / _ENV)
        with suppress(FileNotFoundError):
            (files / _ENV).rename(hold / _ENV)
    Quarantine(profile).end_if_empty()
    return report


def _take_settings(profile: Profile, hold: Path, report: QuarantineReport) -> None:
    """Take the harmless settings over; a file with a fault waits as it is."""
    file = hold / _FILES / profile.config_file.name
    try:
        text, held = split_settings(read_text(file) or HEAD, profile.config_file)
        replace_text(profile.config_file, text, private=True)
        load_settings(profile, {})
        _write(hold / _SETTINGS, [[list(path), value] for path, value in held.items()])
    except (ConfigError, ValueError, RecursionError):
        report.faults.append("its settings have a fault, and are held back as they are")
        replace_text(profile.config_file, HEAD, private=True)
        return
    file.unlink(missing_ok=True)


def _take_database(profile: Profile, hold: Path, final: Path, report: QuarantineReport) -> None:
    from parley.storage.sqlite.import_copy import copy_conversations

    file = hold / _FILES / profile.database_file.name
    if not file.is_file() or not file.stat().st_size:
        return
    try:
        found = copy_conversations(file, profile.database_file, final / "attachments")
    except StoreError as error:
        # It could hold grants, jobs and triggers, and nobody could see what is confirmed.
        report.faults.append(f"its database was left out: {error}")
        file.unlink()
        for ending in ("", "-wal", "-shm", "-journal"):
            profile.database_file.with_name(f"{profile.database_file.name}{ending}").unlink(
                missing_ok=True
            )
        return
    file.unlink()
    _write(hold / _JOBS, found.jobs)
    report.grants, report.people = found.grants, found.people


class Quarantine:
    """What waits for the owner of a profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._folder = profile.home / FOLDER

    def items(self) -> list[HeldItem]:
        """All that waits, in the order in which it is asked about."""
        if not self._folder.is_dir():
            return []
        found: list[HeldItem] = []
        for item in (*self._settings(), *self._variables(), *self._jobs(), *self._files()):
            name, number = item.name, 2
            while any(other.name == name for other in found):
                name, number = f"{item.name}#{number}", number + 1
            found.append(replace(item, name=name))
        return found

    def find(self, names: Collection[str]) -> list[HeldItem]:
        """The items of these names; an error that helps when one is not there."""
        items = {item.name: item for item in self.items()}
        for name in names:
            if name not in items:
                close = nearest(name, items)
                hint = f"did you mean `{close}`?" if close else "see `parley profile review`."
                raise ParleyError(f"Nothing called `{name}` is held back; {hint}")
        return [items[name] for name in dict.fromkeys(names)]

    def allow(self, items: Collection[HeldItem]) -> None:
        """Put items where they count. What was put there is not held back any more."""
        chosen = _by_kind(items)
        with locked(self._folder):
            held = self._held_settings()
            if paths := {path for path in chosen["setting"] if isinstance(path, tuple)}:
                add_settings(self._profile, {path: held[path] for path in held if path in paths})
                self._keep_settings(held, without=paths)
            if variables := chosen["variable"]:
                lines = read_env_file(self._folder / _ENV).lines
                ours = read_env_file(self._profile.env_file)
                for name in variables:
                    ours = ours.without(str(name))
                added = [line for line in lines if line.name in variables]
                together = [
                    replace(line, text=line.text.rstrip("\n") + "\n")
                    for line in (*ours.lines, *added)
                ]
                write_env_file(self._profile.env_file, EnvFile(tuple(together)))
                self._keep_variables(without=variables)
            if jobs := chosen["job"]:
                self._plan(jobs)
                self._keep_jobs(without=jobs)
            for path in chosen["files"]:
                self._put_back(str(path))
        self.end_if_empty()

    def drop(self, items: Collection[HeldItem]) -> None:
        """Remove items for good."""
        chosen = _by_kind(items)
        with locked(self._folder):
            self._keep_settings(self._held_settings(), without=chosen["setting"])
            self._keep_variables(without=chosen["variable"])
            self._keep_jobs(without=chosen["job"])
            for path in chosen["files"]:
                _remove(self._folder / _FILES / str(path))
        self.end_if_empty()

    def end_if_empty(self) -> None:
        if self._folder.is_dir() and not self.items():
            remove_tree(self._folder)

    # ── settings ──────────────────────────────────────────────────────────────────────────────

    def _settings(self) -> Iterator[HeldItem]:
        for path, value in self._held_settings().items():
            yield HeldItem(".".join(path), "setting", json.dumps(value), path)

    def _held_settings(self) -> dict[SettingPath, Value]:
        return {tuple(path): value for path, value in _read(self._folder / _SETTINGS)}

    def _keep_settings(
        self, held: dict[SettingPath, Value], *, without: Collection[SettingPath | str]
    ) -> None:
        left = [[list(path), value] for path, value in held.items() if path not in without]
        _write(self._folder / _SETTINGS, left)

    # ── variables ─────────────────────────────────────────────────────────────────────────────

    def _variables(self) -> Iterator[HeldItem]:
        for name, value in read_env_file(self._folder / _ENV).values.items():
            # What is no secret is a setting, or an address that messages go to.
            what = f"a key of {len(value)} characters" if _is_key(name) else json.dumps(value)
            yield HeldItem(f"{_ENV}:{name}", "variable", what, name)

    def _keep_variables(self, *, without: Collection[SettingPath | str]) -> None:
        file = self._folder / _ENV
        if not without or not file.exists():
            return
        left = tuple(line for line in read_env_file(file).lines if line.name not in without)
        if any(line.name is not None for line in left):
            write_env_file(file, EnvFile(left))
        else:
            file.unlink()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────

    def _jobs(self) -> Iterator[HeldItem]:
        for job in _read(self._folder / _JOBS):
            yield HeldItem(f"job:{job['id']}", "job", _job_words(job), job["id"])

    def _keep_jobs(self, *, without: Collection[SettingPath | str]) -> None:
        jobs = _read(self._folder / _JOBS)
        _write(self._folder / _JOBS, [job for job in jobs if job["id"] not in without])

    def _plan(self, ids: Collection[SettingPath | str]) -> None:
        from parley.storage.sqlite.migrate import open_migrated
        from parley.storage.sqlite.queries import SQL

        jobs = [job for job in _read(self._folder / _JOBS) if job["id"] in ids]
        try:
            with closing(open_migrated(self._profile.database_file)) as db:
                db.execute("BEGIN IMMEDIATE")
                db.executemany(SQL["job_put"], jobs)
                db.execute("COMMIT")
        except sqlite3.Error as error:
            file = shown(self._profile.database_file)
            raise StoreError(f"The jobs cannot be put into {file} ({error}).") from error

    # ── files ─────────────────────────────────────────────────────────────────────────────────

    def _files(self) -> Iterator[HeldItem]:
        for path in self._held_files():
            yield HeldItem(path, "files", _file_words(self._folder / _FILES / path), path)

    def _held_files(self) -> Iterator[str]:
        folder = self._folder / _FILES
        for item in sorted(folder.iterdir()) if folder.is_dir() else ():
            if item.name in _BY_ENTRY and item.is_dir():
                yield from (f"{item.name}/{inner.name}" for inner in sorted(item.iterdir()))
            else:
                yield item.name

    def _put_back(self, path: str) -> None:
        source, target = self._folder / _FILES / path, self._profile.home / path
        taken = os.path.lexists(target)
        if taken and path not in {"config.yaml", _ENV} and not _is_empty_folder(target):
            raise ParleyError(f"{shown(target)} is there already; move it away first.")
        try:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            source.rename(target)
        except OSError as error:
            raise ParleyError(f"{shown(target)} cannot be made ({error.strerror}).") from error


def _by_kind(items: Collection[HeldItem]) -> dict[str, list[SettingPath | str]]:
    chosen: dict[str, list[SettingPath | str]] = {
        kind: [] for kind in ("setting", "variable", "job", "files")
    }
    for item in items:
        chosen[item.kind].append(item.key)
    return chosen


def _is_key(name: str) -> bool:
    """Whether a variable is not shown. One that takes the place of a setting always is."""
    if name in OPTIONAL_ENV_VARS:
        return OPTIONAL_ENV_VARS[name]["password"]
    return not name.startswith("PARLEY_") and _KEY.search(name) is not None


def _job_words(job: dict[str, Any]) -> str:
    try:
        text = json.loads(job["payload"]).get("text")
    except (ValueError, AttributeError):
        text = job["payload"]
    when = {name: job[name] for name in ("cron", "every", "next_at") if job[name] is not None}
    return json.dumps({**when, "in": job["lane"], "says": text})


def _file_words(path: Path) -> str:
    """What is in a file or folder, in words: how much, and the first names."""
    if path.name == "config.yaml":
        return _beginning(path)
    if not path.is_dir() or path.is_symlink():
        return f"a file of {path.lstat().st_size:,} bytes"
    names: list[str] = []
    runs = 0
    with open_top(path) as top:
        for entry in walk_tree(top):
            if not entry.is_folder:
                names.append(entry.path)
                runs += entry.mode == 0o700
            if len(names) >= _MOST_COUNTED:
                break
    more = ", …" * (len(names) > _MOST_FILES)
    programs = f" ({runs} can be run)" if runs else ""
    listed = ", ".join(json.dumps(name) for name in sorted(names)[:_MOST_FILES])
    number = "1 file" if len(names) == 1 else f"{len(names):,} files"
    return f"{number}{programs}: {listed}{more}" if names else "nothing"


def _beginning(path: Path) -> str:
    text = path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
    size = path.stat().st_size
    more = f" … ({size:,} bytes)" if size > _MOST_BYTES else ""
    return json.dumps(text) + more


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def _write(file: Path, record: object) -> None:
    replace_text(file, json.dumps(record), private=True)


def _read(file: Path) -> list[Any]:
    try:
        found: list[Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown(file)} cannot be read; remove it, and import again.") from error
    return found
