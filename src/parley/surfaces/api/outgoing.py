"""An answer on its way to the program that asked: whole, or as a stream of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from parley.storage.contract import RequestRecord
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.stream import EventStream
from parley.surfaces.api.talk import Talk
from parley.surfaces.api.wire.encode import encode

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Outgoing"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Where it goes. `again`: it was given before."""

    desk: Desk
    request: web.Request
    talk: Talk

    def whole(self, made: Mapping[str, Any], *, again: bool = False) -> web.Response:
        from aiohttp import web

        return web.Response(
            body=encode(made), content_type="application/json", headers=self._headers(again)
        )

    def stream(self, *, again: bool = False) -> EventStream:
        rules = self.desk.rules
        return EventStream(
            self.request,
            headers=self._headers(again),
            keepalive_seconds=rules.keepalive_seconds,
            stalled_seconds=rules.stalled_seconds,
            allowed=self.talk.caller.still,
        )

    def of(self, record: RequestRecord) -> Outgoing:
        """The way of an answer that was given before, in the conversation it was given in."""
        return replace(self, talk=replace(self.talk, session=record.body["session_id"]))

    def _headers(self, again: bool) -> dict[str, str]:
        return self.talk.headers | ({"Idempotent-Replayed": "true"} if again else {})
