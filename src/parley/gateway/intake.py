"""The front door: every message of every surface comes in here, and nowhere else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, Protocol

from parley.gateway.commands import Commands, looks_like_command
from parley.gateway.delivery import Deliveries
from parley.gateway.lanes import Lanes
from parley.gateway.notices import begun_anew
from parley.gateway.status import GatewayStatus, Introduction
from parley.gateway.tally import Tally
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.sessions.key import encode_part
from parley.sessions.policy import cutoff, is_trigger
from parley.sessions.store import SessionStore
from parley.storage.contract import InboxMessage, Receipt

if TYPE_CHECKING:
    from parley.gateway.requests import ProfileDoor

__all__ = ["FrontDoor", "Intake", "Stopping"]


class Stopping(ParleyError):
    """The gateway takes nothing more; the next one will."""


class FrontDoor(Protocol):
    """What a surface knows of the gateway."""

    async def admit(self, message: InboundMessage) -> Receipt:
        """Accept one event. On return it is durable: the platform may be told so."""

    async def back(self, source: SessionSource) -> None:
        """A conversation can be reached again: replies that waited for it may go."""

    def introduce(self, source: SessionSource) -> Introduction:
        """Who answers there."""

    async def status(self) -> GatewayStatus: ...

    def profiles(self) -> tuple[str, ...]:
        """The names of all that may be meant here, whether they can answer just now or not."""

    def to(self, profile: str) -> ProfileDoor:
        """The door of one of them, for a surface that knows itself who is meant."""


class Intake:
    """Into the inbox of one profile; a slash command is answered at once."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        lanes: Lanes,
        deliveries: Deliveries,
        commands: Commands,
        busy: Literal["steer", "queue", "interrupt"],
        tally: Tally,
    ) -> None:
        self._sessions = sessions
        self._lanes = lanes
        self._deliveries = deliveries
        self._commands = commands
        self._busy = busy
        self._tally = tally

    async def admit(self, message: InboundMessage, *, lane: str | None = None) -> Receipt:
        """With `lane`: what comes by itself goes to the conversation that began it."""
        source = message.source
        policy = self._sessions.policy(source.platform)
        lane, name = lane or self._sessions.key_for(source), _dedupe(message)
        # What a program asks for is meant as it stands, and it says itself which session it means.
        plain = not message.internal and message.request is None
        is_command = plain and (
            looks_like_command(message.text) or is_trigger(policy, message.text)
        )
        # What comes by itself, such as a finished task, belongs to the conversation that began it.
        over = cutoff(policy, time.time()) if plain and not is_command else None
        notice = begun_anew(source) if over is not None and policy.reset_notice else None
        receipt = await self._lanes.submit(
            lane,
            name,
            message,
            kind="command" if is_command else "message",
            user=source.user_id,
            fresh_before=over,
            notice=notice,
        )
        if receipt.fresh:
            self._deliveries.look_again(source.platform)
        if receipt.state == "queued":
            self._tally.accepted += 1
            if is_command:
                await self._commands.run(lane, InboxMessage(receipt.inbox_id, message))
            elif self._busy == "interrupt" and plain:
                await self._interrupt(lane, receipt.inbox_id)
        return receipt

    def named(self, message: InboundMessage) -> tuple[str, str]:
        """The lane that a message goes to, and the name it has there."""
        return self._sessions.key_for(message.source), _dedupe(message)

    async def withdraw(self, lane: str, name: str) -> bool:
        """Nobody waits for the answer to this message any more; whether that ended anything."""
        running = self._lanes.turn_of(lane)
        said = running.said_so_far if running is not None else None
        gone = await self._lanes.store.withdraw(lane, name, said=said)
        if gone.turn is not None:
            self._lanes.cancel(lane, gone.turn)
        self._lanes.look_again()
        return gone.dropped or gone.turn is not None

    async def _interrupt(self, lane: str, inbox_id: int) -> None:
        turn = self._lanes.turn_of(lane)
        if turn is None or turn.listens:  # it asked the person, who answers
            return
        if all(taken.id != inbox_id for taken in turn.messages):
            # By its number: it may end just now, and the turn after it answers this message.
            await self._lanes.stop(lane, turn=turn.claim.turn)


def _dedupe(message: InboundMessage) -> str:
    """The platform's own id, apart from the same id on another platform or account."""
    source = message.source
    if not message.event_id:
        raise ParleyError("A message without an id cannot be told from its repeats.")
    parts = (source.platform, source.account or "", message.event_id)
    return ":".join(encode_part(part) for part in parts)
