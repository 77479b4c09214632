"""What is remembered, as scripts read it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from parley.cli._memory_view import Reasons
from parley.storage.memory import Commit, Fact, Line

__all__ = ["commit_record", "fact_record", "reasons_record"]


def fact_record(fact: Fact) -> dict[str, object]:
    return {
        "id": fact.id,
        "place": fact.place,
        "kind": fact.kind,
        "text": fact.text,
        "confidence": fact.confidence,
        "origin": fact.origin,
        "person": fact.person or None,
        "said_at": _stamp(fact.said_at),
        "changed_at": _stamp(fact.at),
        "sources": list(fact.sources),
        "session": fact.session,
        "state": fact.state,
        "replaced_by": fact.replaced_by,
        "outside": fact.outside or None,
    }


def commit_record(commit: Commit, *, whole: bool = False) -> dict[str, object]:
    """`whole`: with what became of each fact, and of the summary."""
    record: dict[str, object] = {
        "id": commit.id,
        "kind": commit.kind,
        "place": commit.place,
        "at": _stamp(commit.at),
        "by": commit.by,
        "note": commit.note,
        "session": commit.session,
        "first": commit.first,
        "last": commit.last,
        "added": commit.added,
        "removed": commit.removed,
        "undone_by": commit.undone_by,
    }
    if not whole:
        return record
    changes = [
        {
            "fact": change.fact,
            "action": change.action,
            "before": None if change.before is None else fact_record(change.before),
            "after": None if change.after is None else fact_record(change.after),
        }
        for change in commit.changes
    ]
    before, after = commit.summary or (None, None)
    return record | {"changes": changes, "summary": {"before": before, "after": after}}


def reasons_record(reasons: Reasons) -> dict[str, object]:
    session = reasons.fact.session
    return {
        "fact": fact_record(reasons.fact),
        "replaced": [fact_record(old) for old in reasons.replaced],
        "session": None
        if session is None
        else {"id": session, "title": reasons.titles.get(session)},
        "messages": [_line_record(line) for line in reasons.lines],
        "commits": [commit_record(commit) for commit in reasons.commits],
    }


def _line_record(line: Line) -> dict[str, object]:
    return {
        "id": line.id,
        "at": _stamp(line.at),
        "person": line.person,
        "role": line.message.role,
        "text": line.message.text,
    }


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
