"""Messages that others refer to: who said them, and which question of ours they are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from parley.surfaces.matrix.connection import Connection, MatrixFault, part
from parley.surfaces.matrix.incoming import clean_text
from parley.surfaces.matrix.receiving import open_event

__all__ = ["Quote", "Quotes"]

_REMEMBERED: Final = 4_000
_LONGEST: Final = 2_000


@dataclass(frozen=True, slots=True)
class Quote:
    """What is to be known of a message. `question` is the id of what it asks, if it does."""

    sender: str
    text: str = ""
    thread_id: str | None = None
    question: str | None = None


class Quotes:
    """Remembers what went by, and asks the homeserver for the rest."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # By room: whoever names an event of another room is not told what it says.
        self._known: OrderedDict[tuple[str, str], Quote] = OrderedDict()

    def note(self, room_id: str, event: Mapping[str, Any]) -> None:
        """An event of this room went by, decrypted."""
        event_id, sender = event.get("event_id"), event.get("sender")
        if isinstance(event_id, str) and isinstance(sender, str) and "state_key" not in event:
            self._keep((room_id, event_id), _read(sender, event.get("content")))

    async def find(self, room_id: str, event_id: str) -> Quote | None:
        """The message of this id; None when it cannot be had."""
        name = (room_id, event_id)
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
            return known
        path = f"/v3/rooms/{part(room_id)}/event/{part(event_id)}"
        try:
            event = await self._connection.call("GET", path, timeout=10)
        except MatrixFault:
            return None
        self.note(room_id, open_event(self._connection.nio, room_id, event))
        return self._known.get(name)

    def _keep(self, name: tuple[str, str], quote: Quote) -> None:
        self._known[name] = quote
        self._known.move_to_end(name)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _read(sender: str, content: object) -> Quote:
    if not isinstance(content, Mapping):
        return Quote(sender)
    body, relation = content.get("body"), content.get("m.relates_to")
    asked = content.get("org.parley.question")
    thread = None
    if isinstance(relation, Mapping) and relation.get("rel_type") == "m.thread":
        thread = relation.get("event_id")
    question = asked.get("id") if isinstance(asked, Mapping) else None
    return Quote(
        sender,
        clean_text(body)[:_LONGEST] if isinstance(body, str) else "",
        thread if isinstance(thread, str) else None,
        question if isinstance(question, str) else None,
    )
