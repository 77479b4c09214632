"""Which conversation a connection means: a thread of one key's owner, with one profile."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Final, Self

from parley.gateway.requests import ProfileDoor
from parley.protocol import InboundMessage, Request, SessionSource
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.wire.ids import new_id

__all__ = ["PLATFORM", "AgentThread", "good_thread_id"]

PLATFORM: Final = "direct"
_LONGEST: Final = 800


def good_thread_id(given: str | None) -> str | None:
    """The id, if it can name a conversation: not blank, not too long, nothing unseen in it."""
    if given is None or not given.strip() or len(given) > _LONGEST:
        return None
    return given if given.isprintable() else None


@dataclass(frozen=True, slots=True)
class AgentThread:
    """Two keys never share one: the same `name` with another key is another conversation."""

    caller: Caller
    profile: str
    source: SessionSource
    """As the gateway binds it: what is given up while that stops is found all the same."""

    @classmethod
    def of(cls, caller: Caller, door: ProfileDoor, name: str) -> Self:
        """Raises when nobody is let in just now."""
        # The name of a key holds no `/`, so where the owner ends is never in doubt.
        owner = caller.owner
        source = SessionSource(PLATFORM, chat_id=f"{owner}/{name}", user_id=owner)
        bound = door.bind(InboundMessage(source, "", "-")).source
        return cls(caller, door.profile.name, bound)

    @property
    def place(self) -> tuple[str, str]:
        """What its deliveries know it by."""
        return self.profile, self.source.chat_id

    def request_id(self, id: str | None) -> str:
        """The name of a message within the whole house: of the same one, always the same."""
        if id is None:
            return new_id("msg")
        named = json.dumps([*self.place, id]).encode()
        return f"msg_{hashlib.sha256(named).hexdigest()}"

    def bound(self, door: ProfileDoor, request: Request) -> InboundMessage:
        """The message as it goes in; raises unless it may."""
        text = request.messages[-1].text
        message = InboundMessage(self.source, text, event_id=request.id, request=request)
        return door.bind(message)
