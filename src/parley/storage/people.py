"""What a store keeps of people: who they are, what they set, their chats; and where surfaces are.

The same promises hold as for the rest of the store: see `parley.storage.contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from parley.protocol import InboundMessage, SessionSource

if TYPE_CHECKING:
    from parley.storage.contract import Draft, Receipt, SessionRecord

__all__ = ["Arrival", "Chat", "PeopleStore", "User"]


@dataclass(frozen=True, slots=True)
class User:
    """Someone who has spoken. `person` is how settings and grants name them: `platform:user`."""

    person: str
    platform: str
    external_id: str
    display_name: str | None
    created_at: float
    is_new: bool = False
    """They were not known before this very call."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation that a person opened: `C1`, `C2` … Its number is never used again.

    Where each chat is a room of its own, `lane` is that of the room; until there is a room, `lane`
    and `source` are None. Elsewhere it is one of the sessions of the lane.
    """

    person: str
    number: int
    name: str | None
    lane: str | None
    session: str | None
    """The session it began with."""
    source: SessionSource | None
    archived: bool
    created_at: float

    @property
    def label(self) -> str:
        return f"C{self.number}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message on its way into the inbox; the fields are the arguments of `submit`."""

    lane: str
    dedupe: str
    message: InboundMessage
    kind: Literal["message", "command"] = "message"
    user: str | None = None
    fresh_before: float | None = None
    notice: Callable[[SessionRecord], Draft] | None = None


class PeopleStore(Protocol):
    """The part of a store that people and surfaces stand on."""

    # people
    async def get_or_create_user(
        self, external_id: str, platform: str, display_name: str | None = None
    ) -> User:
        """Known by (platform, external id). A display name that is given is kept from then on."""

    async def users(self, *, limit: int = 100) -> list[User]:
        """The newest first."""

    async def person_settings(self, person: str) -> dict[str, str]:
        """Everything they have set, by name."""

    # chats
    async def open_chat(self, person: str, *, key: str, name: str | None = None) -> Chat:
        """A new chat of this person, without a place; once for each `key`: then that one."""

    async def place_chat(self, person: str, number: int, source: SessionSource, lane: str) -> Chat:
        """The chat is in this lane from now on, which is made if need be, with a session."""

    async def chat_of_session(self, person: str, session: str) -> Chat:
        """The chat that is this session, opened now if it is not one yet.

        Raises `StoreError` when there is no such session.
        """

    async def chats(self, person: str) -> list[Chat]:
        """All of them, the oldest first; those that have no place yet too."""

    async def chat_at(self, lane: str) -> Chat | None:
        """The chat that has this lane for itself, if there is one."""

    async def unplaced_chats(self) -> list[Chat]:
        """Those that have no place yet, of anyone: something ended in the midst of making one."""

    async def name_chat(self, person: str, number: int, name: str | None) -> bool: ...
    async def archive_chat(self, person: str, number: int, *, archived: bool) -> bool:
        """False when there is no such chat, or it was so before."""

    async def archived_lanes(self) -> list[str]:
        """The lanes whose own chat is archived: nothing is answered there."""

    # where a surface is in its platform's stream of events, and what else it must not forget
    async def mark(self, name: str) -> str | None: ...
    async def marks(self, prefix: str) -> dict[str, str]:
        """Every mark whose name begins so."""

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        """All of them in one transaction; None removes one."""

    async def submit_all(
        self, arrivals: Sequence[Arrival], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        """Accept messages as `submit` does, in order, and move the marks: in one transaction."""
