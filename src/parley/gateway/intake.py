"""The front door: every message of every surface comes in here, and nowhere else."""

from __future__ import annotations

from typing import Literal, Protocol

from parley.gateway.access import Access
from parley.gateway.commands import Commands, looks_like_command
from parley.gateway.lanes import Lanes
from parley.gateway.routing import Router
from parley.gateway.status import GatewayStatus
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.storage.contract import InboxMessage, Receipt

__all__ = ["FrontDoor", "Intake", "Stopping"]


class Stopping(ParleyError):
    """The gateway takes nothing more; the next one will."""


class FrontDoor(Protocol):
    """What a surface knows of the gateway."""

    async def admit(self, message: InboundMessage) -> Receipt:
        """Accept one event. On return it is durable: the platform may be told so."""

    async def back(self, source: SessionSource) -> None:
        """A conversation can be reached again: replies that waited for it may go."""

    async def status(self) -> GatewayStatus: ...


class Intake:
    """Dedupe, access, route, then into the inbox; a slash command is answered at once."""

    def __init__(
        self,
        *,
        access: Access,
        router: Router,
        lanes: Lanes,
        commands: Commands,
        busy: Literal["steer", "queue", "interrupt"],
    ) -> None:
        self._access = access
        self._router = router
        self._lanes = lanes
        self._commands = commands
        self._busy = busy

    async def admit(self, message: InboundMessage) -> Receipt:
        source = message.source
        self._access.check(source)
        lane, name = self._router.route(source).lane, _dedupe(message)
        is_command = not message.internal and looks_like_command(message.text)
        receipt = await self._lanes.submit(
            lane,
            name,
            message,
            kind="command" if is_command else "message",
            user=source.user_id,
        )
        if receipt.state == "queued":
            if is_command:
                await self._commands.run(lane, InboxMessage(receipt.inbox_id, message))
            elif self._busy == "interrupt":
                await self._interrupt(lane, receipt.inbox_id)
        return receipt

    async def _interrupt(self, lane: str, inbox_id: int) -> None:
        turn = self._lanes.turn_of(lane)
        if turn is not None and all(taken.id != inbox_id for taken in turn.claim.messages):
            # By its number: it may end just now, and the turn after it answers this message.
            await self._lanes.stop(lane, turn=turn.claim.turn)


def _dedupe(message: InboundMessage) -> str:
    """The platform's own id, apart from the same id on another platform or account."""
    source = message.source
    if not message.event_id:
        raise ParleyError("A message without an id cannot be told from its repeats.")
    parts = (source.platform, source.account or "", message.event_id)
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts)
