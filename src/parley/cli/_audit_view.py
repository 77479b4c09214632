"""Audit records and the verdict on their chain, as people and scripts see them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from parley.agent.foreign import shown_exactly
from parley.audit.chain import AuditRecord
from parley.audit.verify import Verdict
from parley.cli._plain import one_line
from parley.config.errors import shown

__all__ = ["as_json_record", "as_line", "as_report", "verdict_record"]

_LONGEST = 300
_PROVES = """\
This shows that inside the chain no record was changed, removed, moved or added.
It cannot show that nobody with the rights of your account rewrote the whole chain, or
cut off its newest records together with the file `head`. Note the head elsewhere, and later check:
  parley audit --verify --head {head}
"""


def as_line(record: AuditRecord, zone: tzinfo | None = None) -> str:
    """When, what, which profile, who and from where, and the rest in short."""
    fields = record.fields
    who = " from ".join(str(fields[name]) for name in ("who", "from") if fields.get(name))
    about = [record.profile, who, *(f"{name}={_short(v)}" for name, v in record.data.items())]
    told = _in_one_line(" · ".join(part for part in about if part))
    return f"{_local(record.at, zone)}  {record.kind:<18}  {told}"


def as_json_record(record: AuditRecord) -> str:
    """The record for scripts, with its hash; ASCII alone."""
    return json.dumps({**record.fields, "hash": record.hash})


def as_report(verdict: Verdict, folder: Path, *, noted: bool) -> str:
    """What was found, and what that proves."""
    lines: list[str] = []
    if verdict.records == 0 and verdict.ok:
        return f"{shown(folder)} holds no records yet.\n"
    lines += [f"- {each}" for each in verdict.findings]
    if verdict.left_off:
        lines.append(f"- and {verdict.left_off:,} more.")
    lines += [f"Note: {each}" for each in verdict.notes]
    if verdict.dropped_through:
        lines.append(f"Note: retention dropped the records up to {verdict.dropped_through}.")
    state = "the chain is whole" if verdict.ok else "the chain is BROKEN"
    lines.append(
        f"{verdict.records:,} records in {shown(folder)}, {verdict.first} to "
        f"{verdict.head.number}: {state}."
    )
    if noted and verdict.noted_at:
        lines.append(f"The head that you noted is there ({verdict.noted_at}).")
    lines.append(f"Head: {verdict.head.number}:{verdict.head.hash}")
    tail = _PROVES.format(head=f"{verdict.head.number}:{verdict.head.hash}") if verdict.ok else ""
    return "\n".join(lines) + "\n" + tail


def verdict_record(verdict: Verdict, folder: Path) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "ok": verdict.ok,
        "records": verdict.records,
        "first": verdict.first,
        "last": verdict.head.number,
        "head": verdict.head.hash,
        "dropped_through": verdict.dropped_through,
        "findings": verdict.findings,
        "more_findings": verdict.left_off,
        "notes": verdict.notes,
    }


def _in_one_line(text: str) -> str:
    """Cut to length, with every character written out that would not be seen."""
    flat = shown_exactly(text[: _LONGEST + 1].replace("\n", "⏎"))
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 1]}…"


def _short(value: object) -> str:
    if isinstance(value, Mapping) and value.keys() == {"characters", "sha256"}:
        return f"<{value['characters']} characters>"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _local(at: str, zone: tzinfo | None) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return one_line(at, longest=19)
