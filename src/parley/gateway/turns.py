"""One turn from claim to commit: read what was said, let the backend answer, journal its steps."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Literal

from parley.backends.base import Backend, Turn
from parley.gateway.delivery import Deliveries
from parley.gateway.lanes import RunningTurn
from parley.gateway.live import Live, TurnEnded, TurnStarted
from parley.gateway.persist import until_stored
from parley.gateway.recall import Memories
from parley.gateway.tally import Tally
from parley.profiles import Profile
from parley.protocol import (
    ChatMessage,
    Failed,
    Final,
    HistoryTrimmed,
    StepTaken,
    TextDelta,
    TextReset,
    TurnEvent,
    Usage,
)
from parley.sessions.context import clear_session_vars, set_session_vars
from parley.storage.contract import Draft, LeaseLost, Store, TurnEnd

__all__ = ["TurnRunner"]

_log = logging.getLogger("parley.turns")

_MOST_ATTEMPTS = 20


class TurnRunner:
    """Answers the turns of one profile with one backend."""

    def __init__(
        self,
        profile: Profile,
        *,
        store: Store,
        backend: Backend,
        live: Live,
        deliveries: Deliveries,
        steers: bool,
        tally: Tally,
    ) -> None:
        self._profile = profile
        self._store = store
        self._memories = Memories(store)
        self._backend = backend
        self._live = live
        self._deliveries = deliveries
        self._steers = steers
        self._tally = tally

    async def __call__(self, running: RunningTurn) -> None:
        claim = running.claim
        self._tell(running, TurnStarted(resumed=claim.attempt > 1))
        stopped = True
        try:
            if claim.attempt > _MOST_ATTEMPTS:
                sentence = "I gave up on this message: the gateway ended each time I tried."
                await self._finish(running, Failed(sentence, cause="too many attempts"))
            else:
                await self._answer(running)
            stopped = False
        finally:
            self._tell(running, TurnEnded(stopped=stopped))

    async def _answer(self, running: RunningTurn) -> None:
        turn = await self._read(running)
        source = turn.source
        tokens = set_session_vars(
            async_delivery=turn.async_delivery,
            profile=self._profile.name,
            platform=source.platform,
            chat_id=source.chat_id,
            thread_id=source.thread_id,
            user_id=source.user_id,
            session_key=turn.session_key,
            session_id=turn.session_id,
        )
        try:
            ending = await self._follow(running, turn)
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - supervisor: a backend's fault ends its turn only
            _log.exception("backend_crashed", extra={"turn": turn.id, "lane": turn.session_key})
            sentence = "Something went wrong inside Parley; the log has the details."
            ending = Failed(sentence, cause=repr(error))
        finally:
            clear_session_vars(tokens)
        await self._finish(running, ending)

    async def _read(self, running: RunningTurn) -> Turn:
        claim = running.claim
        remembered = await self._memories.of(claim)
        # Whose turn it is was decided at admission; its row may be older than the profile's name.
        source = replace(claim.source, profile=self._profile.name)
        surface = self._deliveries.surface(source)

        async def steer() -> tuple[ChatMessage, ...]:
            if not self._steers:
                return ()
            return tuple(
                ChatMessage("user", taken.message.text, attachments=taken.message.attachments)
                for taken in await running.absorb()
            )

        return Turn(
            id=claim.turn,
            attempt=claim.attempt,
            profile=self._profile,
            session_key=claim.lane,
            session_id=claim.session,
            source=source,
            history=remembered.history,
            progress=tuple(entry.message for entry in remembered.progress),
            provider=remembered.provider,
            model=remembered.model,
            async_delivery=surface is not None and surface.supports_async_delivery,
            steer=steer,
            check=running.check,
        )

    async def _follow(self, running: RunningTurn, turn: Turn) -> Final | Failed:
        """Take the backend's events as they come; each step is durable before the next."""
        async with aclosing(self._backend.run(turn)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        running.said += text
                    case TextReset():
                        running.said = ""
                    case StepTaken(messages=messages, usage=usage):
                        await running.step(messages, usage)
                        self._count(usage)
                        running.said = ""
                    case HistoryTrimmed(keep_from=keep_from):
                        move = partial(self._store.move_window, turn.session_id, keep_from)
                        await until_stored(move)
                    case Final() | Failed():
                        return event
                    case _:
                        pass
                self._tell(running, event)
        return Failed("The agent ended without an answer; please try again.", cause="no final")

    async def _finish(self, running: RunningTurn, ending: Final | Failed) -> None:
        claim = running.claim
        if isinstance(ending, Failed):
            _log.warning(
                "turn_failed", extra={"turn": claim.turn, "lane": claim.lane, "cause": ending.cause}
            )
            said = ChatMessage("assistant", ending.sentence, note="failed")
            end = TurnEnd(
                "failed", (said,), (self._draft(running, ending.sentence, "error"),), ending.usage
            )
        else:
            said = ChatMessage("assistant", ending.text)
            draft = self._draft(running, ending.text, "reply")
            end = TurnEnd("done", (said,), (draft,), ending.usage)
        leased = await running.commit(end)
        self._count(ending.usage)
        if isinstance(ending, Failed):
            self._tally.failed += 1
        else:
            self._tally.answered += 1
        self._deliveries.hand_over(leased, claim.source.platform)

    def _count(self, usage: Usage | None) -> None:
        if usage is not None:
            self._tally.input_tokens += usage.input_tokens
            self._tally.output_tokens += usage.output_tokens

    def _draft(self, running: RunningTurn, text: str, kind: Literal["reply", "error"]) -> Draft:
        claim = running.claim
        return Draft(
            dedupe=f"turn:{claim.turn}",
            source=claim.source,
            text=text,
            kind=kind,
            answers=tuple(taken.message.event_id for taken in running.messages),
            handover=self._deliveries.knows_repeats(claim.source),
        )

    def _tell(self, running: RunningTurn, event: TurnEvent | TurnStarted | TurnEnded) -> None:
        claim = running.claim
        self._live.publish(claim.lane, claim.turn, claim.source, event)
