"""Responses in the background: they go on without their client, and are followed by their log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from parley.storage.contract import RequestRecord
from parley.surfaces.api.records import Records
from parley.surfaces.api.wire.response_log import LoggedResponse

if TYPE_CHECKING:
    from parley.surfaces.api.stream import EventStream

__all__ = ["follow", "is_background", "progress_of"]

_WAITS: Final = ("queued", "running", "stopping")


def is_background(record: RequestRecord) -> bool:
    return bool(record.body.get("background"))


async def progress_of(records: Records, record: RequestRecord) -> Mapping[str, Any]:
    """The response as it stands."""
    if record.result is not None:
        return record.result
    begun = record.state in _WAITS and await records.last_event(record.id) > 0
    return {**record.body["echo"], "status": "in_progress" if begun else "queued"}


async def follow(
    out: EventStream, records: Records, record: RequestRecord, *, after: int | None = None
) -> None:
    """Every event behind `after`, and those to come, until the response is over."""
    logged = LoggedResponse(record.body["echo"])
    first = 0 if after is None else after + 1
    number = 0
    events = logged.start()
    lines = records.events(record.id, 0)
    while True:
        for event in events:
            if number >= first:
                out.hold(event.data, event=event.name)
            number += 1
        if number > first:
            await out.flush()
        line = await anext(lines, None)
        if line is None:
            return
        events = logged.take(line.kind, line.data)
