"""Sessions as people and scripts read them: a list, a transcript, Markdown, JSON. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from urllib.parse import unquote

from parley.cli._plain import one_line, plain
from parley.protocol import ChatMessage
from parley.storage.contract import Entry, SessionRecord

__all__ = ["as_list", "as_markdown", "as_record", "as_text", "session_record", "where"]

_NOTES = {
    "interrupted": "cut short",
    "failed": "failed",
    "unknown-outcome": "nobody saw how it ended",
    "internal": "by itself",
}
_WIDEST_TITLE = 60


def as_list(records: Sequence[SessionRecord], zone: tzinfo | None = None) -> str:
    """One line a session: id, when it was last used, turns, where it is held, its title."""
    rows = [("id", "last used", "turns", "where", "title")]
    for record in records:
        title = one_line(record.title or "", longest=_WIDEST_TITLE)
        mark = "*" if record.current else ""
        used = f"{_moment(record.updated_at, zone):%Y-%m-%d %H:%M}"
        rows.append((f"{record.id}{mark}", used, str(record.turns), where(record.lane), title))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  "
        f"{row[3]:<{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def as_text(
    record: SessionRecord, entries: Sequence[Entry], zone: tzinfo | None = None
) -> Iterator[str]:
    """A transcript for the terminal, piece by piece."""
    title = one_line(record.title or "", longest=200)
    yield f"Session {record.id}{': ' + title if title else ''}\n"
    yield f"{where(record.lane)} · {_amount(record)}\n"
    for entry in entries:
        at = f"{_moment(entry.at, zone):%Y-%m-%d %H:%M:%S}"
        yield f"\n{at}  {_speaker(entry.message)}\n"
        for part in _parts(entry.message):
            yield "".join(f"  {line}".rstrip() + "\n" for line in part.splitlines())


def as_markdown(
    record: SessionRecord, entries: Sequence[Entry], zone: tzinfo | None = None
) -> Iterator[str]:
    """A transcript to keep or to send on, piece by piece."""
    yield f"# {one_line(record.title or f'Session {record.id}', longest=200)}\n\n"
    yield f"- Session: `{record.id}`\n- Where: {where(record.lane)}\n- {_amount(record)}\n"
    for entry in entries:
        at = f"{_moment(entry.at, zone):%Y-%m-%d %H:%M:%S %Z}".rstrip()
        yield f"\n## {_speaker(entry.message)} · {at}\n"
        message = entry.message
        if message.role == "tool":
            yield "\n" + _fenced(plain(message.text), "")
            continue
        if message.text.strip():
            yield "\n" + plain(message.text).strip("\n") + "\n"
        for attachment in message.attachments:
            yield f"\n*Attached: {one_line(attachment.name, longest=200)}*\n"
        for call in message.tool_calls:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2)
            name = one_line(call.name, longest=100)
            yield f"\nAsks for `{name}`:\n\n" + _fenced(plain(arguments), "json")


def as_record(record: SessionRecord, entries: Sequence[Entry]) -> dict[str, object]:
    """A session and all that was said in it, for scripts."""
    messages = [
        {"id": entry.id, "turn": entry.turn, "at": _stamp(entry.at), **entry.message.to_dict()}
        for entry in entries
    ]
    return {**session_record(record), "messages": messages}


def session_record(record: SessionRecord) -> dict[str, object]:
    """A session without what was said in it, for scripts."""
    return asdict(record) | {
        "created_at": _stamp(record.created_at),
        "updated_at": _stamp(record.updated_at),
    }


def where(lane: str) -> str:
    """A session key in words: the surface, the kind of chat when it matters, and the chat."""
    parts = [one_line(unquote(part), longest=40) for part in lane.split(":")]
    if len(parts) < 4 or parts[0] != "agent":
        return one_line(lane, longest=80)
    _, _, platform, chat_type, *rest = parts
    return " ".join([platform, *([] if chat_type == "dm" else [chat_type]), *rest]).rstrip()


def _speaker(message: ChatMessage) -> str:
    names = {"user": "you", "assistant": "Parley", "tool": "tool"}
    name = names.get(message.role, message.role)
    if message.role == "tool" and message.tool_name:
        name = f"{one_line(message.tool_name, longest=60)} says"
    note = _NOTES.get(message.note or "", message.note or "")
    return f"{name} ({one_line(note, longest=60)})" if note else name


def _parts(message: ChatMessage) -> Iterator[str]:
    if message.text.strip():
        yield plain(message.text).strip("\n")
    for attachment in message.attachments:
        yield f"[attached: {one_line(attachment.name, longest=200)}, {attachment.size:,} bytes]"
    for call in message.tool_calls:
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        yield f"[asks for {one_line(f'{call.name} {arguments}', longest=400)}]"


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _amount(record: SessionRecord) -> str:
    turns = "1 turn" if record.turns == 1 else f"{record.turns} turns"
    return f"{turns}, {record.input_tokens:,} tokens in, {record.output_tokens:,} out"


def _moment(at: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(zone)


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
