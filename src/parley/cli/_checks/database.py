"""The database: whether it opens, is of our version and is sound, and what it cannot vouch for."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

from parley.cli._checks.finding import Finding, fault, note, ok, quoted
from parley.cli._plain import one_line
from parley.config.errors import shown
from parley.profiles import Profile

__all__ = ["check_database"]

_CHECKED_WITHIN = 1.0
_STEPS_BETWEEN_LOOKS = 20_000
_MOST_DOUBTFUL = 20


def check_database(profile: Profile) -> list[Finding]:
    """Look into the database without making, changing or upgrading it."""
    file = profile.database_file
    try:
        found = file.stat()
    except FileNotFoundError:
        return [ok("database", f"{shown(file)} is made at the first start.")]
    except OSError as error:
        return [fault("database", f"{shown(file)} cannot be used: {error.strerror}.")]
    if not stat.S_ISREG(found.st_mode):
        return [fault("database", f"{shown(file)} is not an ordinary file.", _move_away(file))]
    if not os.access(file, os.R_OK | os.W_OK):
        what = f"{shown(file)} cannot be read and written by you."
        return [fault("database", what, f"chmod 600 {quoted(file)}")]
    if found.st_size == 0:
        return [ok("database", f"{shown(file)} is empty; the first start fills it.")]
    findings = _inspect(file)
    if found.st_mode & 0o077:
        what = f"others may read {shown(file)}."
        findings.append(note("database", what, f"chmod 600 {quoted(file)}"))
    return findings


def _inspect(file: Path) -> list[Finding]:
    """Ask the file itself, a second time when a gateway began to use it meanwhile."""
    quiet = not _log_of(file).exists()
    try:
        findings = _ask(file, unchanging=quiet)
    except sqlite3.DatabaseError as error:
        findings = [
            fault("database", f"{shown(file)} is not a sound database: {error}.", _move_away(file))
        ]
    changed = quiet and _log_of(file).exists()
    if changed and any(finding.level == "fault" for finding in findings):
        return _inspect(file)
    return findings


def _ask(file: Path, *, unchanging: bool) -> list[Finding]:
    from parley.storage.sqlite.migrate import migrations, schema_version

    # A reader of a WAL database leaves files beside it, unless the file is said not to change.
    uri = f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if unchanging else ''}"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        connection.row_factory = sqlite3.Row
        version, ours = schema_version(connection), max(migrations())
        if version > ours:
            what = (
                f"{shown(file)} was made by a newer Parley (schema {version}, this knows {ours})."
            )
            return [
                fault(
                    "database",
                    what,
                    "git pull && ./scripts/run --version   # in the folder Parley was cloned into",
                )
            ]
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            what = f"{shown(file)} is a database of something else."
            return [fault("database", what, _move_away(file))]
        findings = [_soundness(connection, file, version=version)]
        if version < ours:
            what = f"schema {version} is upgraded to {ours} at the next start, with a copy kept."
            findings.append(note("database", what, "parley gateway run"))
        elif findings[0].level != "fault":
            findings += _doubts(connection)
    return findings


def _soundness(connection: sqlite3.Connection, file: Path, *, version: int) -> Finding:
    size = _size(file)
    deadline = time.monotonic() + _CHECKED_WITHIN
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        complaint = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        what = f"{shown(file)} opens ({size}), but is too large to be checked to its end here."
        return note("database", what, f"sqlite3 {quoted(file)} 'PRAGMA quick_check'")
    finally:
        connection.set_progress_handler(None, 0)
    if complaint == "ok":
        return ok("database", f"{shown(file)} is sound (schema {version}, {size}).")
    damaged, fresh = file.with_name(file.name + ".damaged"), file.with_name(file.name + ".fresh")
    mend = (
        f"sqlite3 {quoted(file)} .recover | sqlite3 {quoted(fresh)} && "
        f"rm -f {quoted(_log_of(file))} {quoted(file.with_name(file.name + '-shm'))} && "
        f"mv {quoted(file)} {quoted(damaged)} && mv {quoted(fresh)} {quoted(file)}"
    )
    what = f"{shown(file)} is damaged: {one_line(complaint, longest=120).rstrip('.')}."
    return fault("database", what, mend)


def _doubts(connection: sqlite3.Connection) -> list[Finding]:
    """Replies that nobody can be sure of: they are shown, and never sent again by themselves."""
    from parley.cli._transcript import where
    from parley.storage.sqlite.outbox import doubtful

    found: list[Finding] = []
    for state, words in (("unsure", "may not have arrived"), ("dead", "could not be delivered")):
        replies = doubtful(connection, state)
        if not replies:
            continue
        count = f"{_MOST_DOUBTFUL} or more" if len(replies) >= _MOST_DOUBTFUL else len(replies)
        newest = replies[0]
        noun = "reply" if len(replies) == 1 else "replies"
        text = one_line(newest.text, longest=40)
        what = f'{count} {noun} {words}, last on {where(newest.lane)}: "{text}".'
        found.append(note("database", what, "parley gateway status"))
    return found


def _size(file: Path) -> str:
    total = file.stat().st_size
    if _log_of(file).exists():
        total += _log_of(file).stat().st_size
    return f"{total / 1_000_000:,.1f} MB"


def _log_of(file: Path) -> Path:
    return file.with_name(file.name + "-wal")


def _move_away(file: Path) -> str:
    return f"mv {quoted(file)} {quoted(file.with_name(file.name + '.old'))}"
