"""What a summary says of a part that was put away as it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from parley.storage.memory import Line

__all__ = ["with_archived"]

_PUT_AWAY = re.compile(
    r"- (\d+) messages? from (\d{4}-\d\d-\d\d) to \d{4}-\d\d-\d\d "
    r"(?:was|were) put away unsummarised; `session_search` finds them\."
)


def with_archived(summary: str, lines: Sequence[Line]) -> str:
    """The summary with a line on what it does not tell of; there is one such line at its end."""
    count = sum(bool(line.message.text) and line.message.role != "tool" for line in lines)
    begin = _day(lines[0].at)
    *kept, last = summary.rstrip().split("\n")
    if (before := _PUT_AWAY.fullmatch(last)) is not None:
        count, begin = count + int(before[1]), before[2]
    elif last:
        kept.append(last)
    messages = "1 message" if count == 1 else f"{count} messages"
    verb = "was" if count == 1 else "were"
    note = (
        f"- {messages} from {begin} to {_day(lines[-1].at)} {verb} put away unsummarised; "
        "`session_search` finds them."
    )
    return "\n".join((*kept, note))


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
