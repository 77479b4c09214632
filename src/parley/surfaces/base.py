"""The contract of a surface: start, stop, send; and what it can promise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from parley.gateway.delivery import ChatRooms, NotSent, Rejected, Unreachable
from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.storage.contract import Delivery

__all__ = ["ChatRooms", "NotSent", "Rejected", "Surface", "Unreachable"]


class Surface(ABC):
    """A place where people talk. A new one is a folder of its own and a line in the registry."""

    platform: ClassVar[str]

    supports_async_delivery: ClassVar[bool] = True
    """Whether a reply can be delivered after the turn that asked for it."""

    knows_repeats: ClassVar[bool] = False
    """Whether the same delivery sent twice is shown once."""

    can_ask: ClassVar[bool] = False
    """Whether a person there sees a question of the running turn, and can answer it."""

    shows_questions: ClassVar[bool] = False
    """Whether it shows such a question as the turn's event; else it is sent like a reply."""

    sends_files: ClassVar[bool] = False
    """Whether files go out with a reply."""

    verb: ClassVar[str] = "/"
    """What commands begin with, as people there write them: `/` or `!`. Both are understood."""

    rooms: ChatRooms | None = None
    """Where each chat of a person is a room of its own: whoever makes those rooms."""

    greets: bool = False
    """Whether a person is greeted when they first write to the agent there."""

    vouches: ClassVar[bool] = False
    """Whether the surface itself makes sure that every sender may speak."""

    fault: str | None = None
    """What is wrong with it just now, though it was started: such as a server that is away."""

    note: str | None = None
    """What somebody should see to, though it serves."""

    account: str | None = None
    """Which of its platform's accounts it serves; None where its profile has but one."""

    @property
    def credential(self) -> str | None:
        """What proves the account to its platform. Only ever compared, never shown."""
        return None

    @property
    @abstractmethod
    def where(self) -> str:
        """In a few words, where people find it."""

    @abstractmethod
    async def start(self, door: FrontDoor) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    async def send(self, delivery: Delivery) -> str | None:
        """Deliver and return the platform's id; raise NotSent, Unreachable or Rejected."""

    async def show(self, event: LiveEvent) -> None:
        """Show what a running turn says; nothing by default."""
        return
