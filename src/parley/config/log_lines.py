"""One log record as one line: JSON for the file, words for a terminal. Redacted, and bounded."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from parley.config.redact import Plain, Redactor

__all__ = ["JsonLine", "WordsLine"]

_LONGEST: Final = 64 * 1024
_OURS: Final[tuple[str, ...]] = ("time", "level", "logger", "profile", "event", "exception")
_STANDARD: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class _Line(logging.Formatter):
    """What both kinds of lines begin with: a record's fields, redacted."""

    def __init__(self, redactor: Redactor, profile: Callable[[], str]) -> None:
        super().__init__()
        self._redactor = redactor
        self._profile = profile

    def fields(self, record: logging.LogRecord) -> dict[str, Plain]:
        redactor = self._redactor
        fields: dict[str, Plain] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "profile": self._profile(),
            "event": redactor.value(_message(record)),
        }
        extra = {name: item for name, item in vars(record).items() if name not in _STANDARD}
        given = redactor.value(extra)
        if isinstance(given, dict):
            # A record that names its own profile knows better than its surroundings.
            fields["profile"] = given.pop("profile", None) or fields["profile"]
            fields |= {name: item for name, item in given.items() if name not in fields}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["exception"] = redactor.exception(error)
        return fields


class JsonLine(_Line):
    """A record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        line = json.dumps(fields, ensure_ascii=False)
        if len(line) <= _LONGEST:
            return line
        brief = {name: _cut(fields[name]) for name in _OURS if name in fields}
        return json.dumps({**brief, "cut": True}, ensure_ascii=False)


class WordsLine(_Line):
    """A record as a person reads it in a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self.fields(record)
        rest = " ".join(f"{name}={fields[name]}" for name in fields if name not in _OURS)
        clock = str(fields["time"])[11:19]
        return f"{clock} {fields['level']:<7} {_cut(fields['event'])} {_cut(rest)}".rstrip()


def _message(record: logging.LogRecord) -> str:
    """The text; as it was written, when its arguments do not fit it."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args}"


def _cut(value: Plain) -> Plain:
    if isinstance(value, str) and len(value) > _LONGEST // 8:
        return value[: _LONGEST // 8] + "…"
    return value
