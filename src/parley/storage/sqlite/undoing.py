"""Taking a commit back, in SQL: each fact that is still as the commit left it is as it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from parley.storage.memory import Change, ChangeAction, Commit, Fact
from parley.storage.sqlite import commits, facts
from parley.storage.sqlite.commits import Writing
from parley.storage.sqlite.queries import SQL

__all__ = ["undo"]

_FINAL = frozenset({"forgot", "undid"})


def undo(db: sqlite3.Connection, id: int, *, by: str, now: float) -> Commit | None:
    commit = commits.get(db, id)
    if commit is None or commit.kind in _FINAL or commit.undone_by is not None:
        return None
    writing = Writing("undid", commit.place, now, by, f"{commit.kind} {id}", commit.session)
    for change in reversed(_reversible(db, commit.changes)):
        _take_back(db, writing, change)
    if not _unfold(db, writing, commit) and not writing.changes:
        return None
    undid = commits.write(db, writing)
    db.execute(SQL["memory_commit_undone"], {"commit": id, "by": undid.id})
    return undid


def _reversible(db: sqlite3.Connection, changes: Sequence[Change]) -> list[Change]:
    """Those whose facts nothing was done to since; what one replaced stays so while it stays."""
    last = {change.fact: change.after for change in changes}
    touched = {fact for fact, after in last.items() if not _is_still(facts.get(db, fact), after)}
    return [
        change
        for change in changes
        if change.fact not in touched
        and not (
            change.action == "replaced"
            and change.after is not None
            and change.after.replaced_by in touched
        )
    ]


def _is_still(fact: Fact | None, after: Fact | None) -> bool:
    return fact is not None and after is not None and _content(fact) == _content(after)


def _content(fact: Fact) -> Fact:
    return replace(fact, at=0.0, session=None)


def _take_back(db: sqlite3.Connection, writing: Writing, change: Change) -> None:
    fact = facts.get(db, change.fact)
    if fact is None:
        return
    action: ChangeAction = "changed"
    if change.before is None:
        since, action = replace(fact, state="removed", replaced_by=None), "removed"
    else:
        since = change.before
        if since.state == "current":
            known = facts.known(db, fact.place, since.text)
            if known is not None and known.id != fact.id:
                return
            action = "changed" if fact.state == "current" else "restored"
        elif since.replaced_by is not None and facts.get(db, since.replaced_by) is None:
            return
    writing.changes.append(facts.put(db, fact, since, action, now=writing.at))


def _unfold(db: sqlite3.Connection, writing: Writing, commit: Commit) -> bool:
    """The window goes back when nothing was folded since; where it was cut further, it stays."""
    if commit.folded is None or commit.summary is None or commit.session is None:
        return False
    values = {"session": commit.session, "commit": commit.id}
    session = db.execute(SQL["session_summary"], values).fetchone()
    before, since = commit.folded
    if session is None or session["folded"] != since:
        return False
    if db.execute(SQL["memory_fold_since"], values).fetchone() is not None:
        return False
    row = db.execute(SQL["memory_commit_get"], values).fetchone()
    writing.folded, writing.summary = (since, before), (session["summary"], commit.summary[0])
    window: int = session["window_start"]
    if window == max(row["window_before"], since):
        window = row["window_before"]
    db.execute(
        SQL["session_unfold"],
        {
            "session": commit.session,
            "summary": commit.summary[0],
            "folded": before,
            "window": window,
        },
    )
    return True
