"""How a command is run: its change and its answer are one transaction."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Final

from parley.gateway.commands.base import CommandCall, Reach, Reply
from parley.gateway.commands.registry import COMMANDS, read_command, unknown
from parley.gateway.failures import NotNow, error_text, is_operator
from parley.gateway.persist import until_stored
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.sessions.key import encode_part
from parley.sessions.policy import is_trigger
from parley.storage.contract import Draft, InboxMessage, Outcome, StoreClosed, StoreUnavailable

__all__ = ["Commands"]

_log = logging.getLogger("parley.commands")

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 60.0
_TOLD_AFTER: Final = 10.0


class Commands:
    """Runs commands for one profile.

    One for which the platform must do something that it cannot do now is tried again until it
    can, and whoever asked is told after a while.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._sessions = reach.sessions
        self._store = reach.store
        self._lanes = reach.lanes
        self._deliveries = reach.deliveries
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self) -> None:
        """Answer commands that were accepted before the gateway ended.

        Those for which the platform is needed are answered as soon as it is there.
        """
        for lane, accepted in await self._store.pending_commands():
            await self.run(lane, accepted)

    async def close(self) -> None:
        """What could not be done yet is taken up at the next start."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        """Someone asked the agent in: as if they had said `!start`, once for each event.

        On return it is durable, and under way.
        """
        await self._reach.chats.rooms(source)  # from here on it is known that there are rooms
        message = InboundMessage(source, "!start", event_id)
        parts = ("welcome", source.platform, source.account or "", event_id)
        name = ":".join(encode_part(part) for part in parts)
        lane = self._sessions.key_for(source)
        receipt = await self._lanes.submit(lane, name, message, kind="command", user=source.user_id)
        if receipt.state == "queued":
            # Not waited for: the surface that asks is the one that makes the room.
            accepted = InboxMessage(receipt.inbox_id, message)
            self._keep(until_stored(partial(self.run, lane, accepted)), accepted)

    async def run(self, lane: str, accepted: InboxMessage) -> None:
        try:
            reply = await self._reply(lane, accepted)
        except NotNow as error:
            _log.info("command_waits", extra={"lane": lane, "why": str(error)})
            self._keep(self._insist(lane, accepted), accepted)
            return
        await self._answer(lane, accepted, reply)

    async def _answer(self, lane: str, accepted: InboxMessage, reply: Reply) -> None:
        source = accepted.message.source
        outcomes: list[Outcome] = []

        def draft(outcome: Outcome) -> Draft:
            outcomes.append(outcome)
            return Draft(
                dedupe=f"command:{accepted.id}",
                source=source,
                text=reply.render(outcome),
                kind="notice",
                answers=(accepted.message.event_id,),
                handover=self._deliveries.knows_repeats(source),
            )

        leased = await self._store.answer(
            lane, accepted.id, reply.effect, draft, owner=self._lanes.owner
        )
        for outcome in outcomes:
            if outcome.stopped is not None:
                self._lanes.cancel(lane, outcome.stopped)
            if reply.then is not None:
                reply.then(outcome)
        self._lanes.look_again()
        self._deliveries.hand_over(leased or [], source.platform)

    async def _insist(self, lane: str, accepted: InboxMessage) -> None:
        """Try again with pauses, until the platform does its part."""
        began, pause, told = time.monotonic(), _FIRST_PAUSE, False
        while True:
            patient = time.monotonic() - began < _TOLD_AFTER
            try:
                reply = await until_stored(partial(self._reply, lane, accepted, insists=patient))
            except NotNow as error:
                if not patient and not told:
                    told = True
                    await self._tell_why(lane, accepted, error)
            else:
                await until_stored(partial(self._answer, lane, accepted, reply))
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _tell_why(self, lane: str, accepted: InboxMessage, error: NotNow) -> None:
        source = accepted.message.source
        why = error_text(error, operator=is_operator(self._reach.owners, source))
        draft = Draft(
            dedupe=f"command:{accepted.id}:waits",
            source=source,
            text=f"That cannot be done just now, and is tried again by itself. {why}",
            kind="notice",
        )
        await until_stored(partial(self._store.post, lane, draft))
        self._deliveries.look_again(source.platform)

    def _keep(self, work: Coroutine[None, None, None], accepted: InboxMessage) -> None:
        task = asyncio.create_task(self._supervised(work), name=f"command-{accepted.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _supervised(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except StoreClosed:
            _log.info("command_left")
        except Exception:  # noqa: BLE001 - the supervisor: it is answered at the next start
            _log.exception("command_not_answered")

    async def _reply(self, lane: str, accepted: InboxMessage, *, insists: bool = False) -> Reply:
        name, argument = self._read(accepted.message)
        session = await self._store.session_of(lane)
        command = COMMANDS.get(name)
        if session is None:
            return Reply("That is no command; `/help` lists them.")
        call = CommandCall(
            id=accepted.id,
            argument=argument,
            lane=lane,
            source=accepted.message.source,
            session=session,
            running=self._lanes.turn_of(lane),
            reach=self._reach,
            insists=insists,
            later=accepted.message.later,
        )
        try:
            if self._reach.chats.is_archived(lane) and (command is None or command.uses_chat):
                return Reply(await self._archived(call))
            if not name:
                return Reply(f"That is no command; `{call.verb}help` lists them.")
            if command is None:
                return Reply(unknown(name, call.verb))
            return await command.run(call)
        except (StoreUnavailable, NotNow):
            raise
        except ParleyError as error:
            if (text := call.error_text(error)) != str(error):
                _log.warning("command_refused", extra={"command": name, "why": str(error)})
            return Reply(text)
        except Exception:  # noqa: BLE001 - supervisor: else it would be met again at every start
            _log.exception("command_failed", extra={"command": name, "lane": lane})
            return Reply("That command failed; whoever runs this agent finds why in its log.")

    async def _archived(self, call: CommandCall) -> str:
        chat = await self._store.chat_at(call.lane)
        label = f" ({chat.label})" if chat is not None else ""
        return f"This chat{label} is archived; `{call.verb}unarchive` opens it again."

    def _read(self, message: InboundMessage) -> tuple[str, str]:
        """The command's name and what follows it; a trigger of this profile begins afresh."""
        text = message.text.strip()
        policy = self._sessions.policy(message.source.platform)
        if is_trigger(policy, text) and text.casefold() != "/new":
            return "reset", ""
        return read_command(text)
