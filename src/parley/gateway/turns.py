"""One turn from claim to commit: read what was said, let the backend answer, journal its steps."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Literal

from parley.agent.budget import Budget, Purse
from parley.agent.person import UserSettings
from parley.agent.prompt import unanswered_calls
from parley.agent.taint import sources_named
from parley.backends.base import Backend, Turn
from parley.gateway.approvals import Approvals, TurnAsk
from parley.gateway.chats import Chats
from parley.gateway.delivery import Deliveries
from parley.gateway.failures import failure_for, is_operator
from parley.gateway.hands import Lender
from parley.gateway.lanes import RunningTurn
from parley.gateway.live import Live, TurnEnded, TurnStarted
from parley.gateway.memory import Remembering
from parley.gateway.owners import Owners
from parley.gateway.people import People, settings_in
from parley.gateway.persist import until_stored
from parley.gateway.recall import Histories, Remembered
from parley.gateway.tally import Tally
from parley.memory.places import NOWHERE, Places
from parley.profiles import Profile
from parley.protocol import (
    Attachment,
    ChatMessage,
    Failed,
    Final,
    HistoryEntry,
    HistoryTrimmed,
    SessionSource,
    StepTaken,
    TextDelta,
    TextReset,
    TurnEvent,
    Usage,
)
from parley.sessions.context import bound_turn
from parley.storage.contract import Draft, LeaseLost, Store, StoreClosed, StoreError, TurnEnd

__all__ = ["TurnRunner"]

_log = logging.getLogger("parley.turns")

_MOST_ATTEMPTS = 20
_EARLIER = "earlier messages of others here"
_TOLD = "what others told here"


class TaintedAnswers:
    """Answers to programs that were made of outside text, the newest few thousand.

    A program that keeps a conversation itself tells it again with each request, without the
    results of our tools: by these answers it is known where they came from.
    """

    def __init__(self, *, most: int = 4_096) -> None:
        self._sources: OrderedDict[bytes, str] = OrderedDict()
        self._most = most

    def note(self, turn: Turn, said: Sequence[ChatMessage], text: str) -> None:
        messages = (*(entry.message for entry in turn.history), *said)
        outside = sources_named(messages, before=turn.outside)
        if not outside:
            return
        steps = [each.text for each in said if each.role == "assistant"]
        # A program sees the texts of several steps as one.
        for told in {_digest(text), _digest("".join((*steps, text)))}:
            self._sources[told] = outside
            self._sources.move_to_end(told)
        while len(self._sources) > self._most:
            self._sources.popitem(last=False)

    def marked(self, history: Sequence[HistoryEntry]) -> tuple[HistoryEntry, ...]:
        """The history with the sources of those answers in it."""
        return tuple(map(self._marked, history)) if self._sources else tuple(history)

    def _marked(self, entry: HistoryEntry) -> HistoryEntry:
        message = entry.message
        if message.role != "assistant" or message.outside or not message.text:
            return entry
        outside = self._sources.get(_digest(message.text))
        return (
            entry if outside is None else replace(entry, message=replace(message, outside=outside))
        )


def _digest(text: str) -> bytes:
    """Of the text without white space: answers are trimmed, and their steps joined."""
    return hashlib.sha256("".join(text.split()).encode(errors="surrogatepass")).digest()


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
        approvals: Approvals,
        lender: Lender,
        people: People,
        owners: Owners,
        chats: Chats,
        budget: Budget,
        memory: Remembering | None,
        steers: bool,
        tally: Tally,
    ) -> None:
        self._profile = profile
        self._store = store
        self._histories = Histories(store)
        self._memory = memory
        self._backend = backend
        self._live = live
        self._deliveries = deliveries
        self._approvals = approvals
        self._lender = lender
        self._people = people
        self._owners = owners
        self._chats = chats
        self._budget = budget
        self._steers = steers
        self._tally = tally
        self._tainted = TaintedAnswers()

    async def __call__(self, running: RunningTurn) -> None:
        claim = running.claim
        self._tell(running, TurnStarted(resumed=claim.attempt > 1))
        ended = TurnEnded(stopped=True)
        try:
            if claim.attempt > _MOST_ATTEMPTS:
                sentence = "I gave up on this message: the gateway ended each time I tried."
                ending: Final | Failed = Failed(
                    sentence, cause="too many attempts", public=sentence
                )
            else:
                ending = await self._answer(running)
            ending = await self._finish(running, ending)
            ended = TurnEnded(ending=ending, usage=running.usage)
            if self._memory is not None:
                self._memory.turn_over(running, ending.usage)
        finally:
            running.known.set()
            self._approvals.turn_over(claim)
            if ended.stopped and self._lender.lanes.is_draining:
                ended = replace(ended, goes_on=True)
            self._tell(running, ended)

    async def _answer(self, running: RunningTurn) -> Final | Failed:
        claim, payer = running.claim, running.claim.payer
        theirs = await self._people.settings_of(payer.user)
        purse = Purse(
            self._store,
            self._budget,
            payer=payer,
            turn=claim.turn,
            owner=claim.owner,
            plan=theirs.plan,
        )
        try:
            turn = await self._read(running, purse, theirs)
        finally:
            running.known.set()
        bound = bound_turn(
            turn.source,
            async_delivery=turn.async_delivery,
            session_key=turn.session_key,
            session_id=turn.session_id,
            memory_key=turn.request.memory_key if turn.request is not None else None,
        )
        try:
            with bound:
                ending = await self._follow(running, turn, purse)
                running.chosen = (turn.provider, turn.model)
                return ending
        except (LeaseLost, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - supervisor: a backend's fault ends its turn only
            _log.exception("backend_crashed", extra={"turn": turn.id, "lane": turn.session_key})
            sentence = "Something went wrong inside Parley; the log has the details."
            return Failed(sentence, cause=repr(error))

    async def _read(self, running: RunningTurn, purse: Purse, theirs: UserSettings) -> Turn:
        claim, memory, request = running.claim, self._memory, running.request
        # Whose turn it is was decided at admission; its row may be older than the profile's name.
        source = replace(claim.source, profile=self._profile.name)
        places = NOWHERE if memory is None else memory.places(claim.lane, source, request)
        remembered = await self._histories.of(claim, places.read)
        surface = self._deliveries.surface(source)
        # Of a new session without a key there is nothing to note.
        noted = request is not None and source.platform == "api"
        if memory is not None and noted and (places.write or remembered.history):
            await memory.note_place(claim, places)
        asks = surface is not None and surface.can_ask if request is None else request.can_ask

        async def steer() -> tuple[ChatMessage, ...]:
            if request is not None or not (self._steers or running.listens):
                return ()
            absorbed = await running.absorb()
            running.listens = False
            return tuple(taken.message.as_said() for taken in absorbed)

        remembers = "" if memory is None else await memory.block(places, remembered.versions)
        progress = tuple(entry.message for entry in remembered.progress)
        hands = self._lender.to(running, source, asks=asks)
        hands.memory = None if memory is None else memory.hand(running, places)
        if claim.attempt > 1:
            await hands.listen_again(unanswered_calls(progress))
        history = remembered.history
        if claim.told:
            history = self._tainted.marked(history)
        return Turn(
            id=claim.turn,
            attempt=claim.attempt,
            profile=self._profile,
            session_key=claim.lane,
            session_id=claim.session,
            source=source,
            history=history,
            progress=progress,
            provider=remembered.provider,
            model=remembered.model,
            async_delivery=(
                surface is not None
                and surface.supports_async_delivery
                and (request is None or request.later)
                and all(taken.message.later for taken in running.messages)
            ),
            steer=steer,
            check=running.check,
            request=request,
            ask=TurnAsk(self._approvals, running, source, asks=asks),
            hands=hands,
            purse=purse if purse.is_limited else None,
            sends_files=surface is not None and surface.sends_files,
            person=settings_in(claim.lane, claim.source, theirs),
            summary=remembered.summary,
            memory=remembers,
            thread=partial(self._chats.thread, claim.lane, claim.session, source),
            told=request.earlier[-claim.told :] if request is not None and claim.told else (),
            times_undone=partial(self._store.times_undone, claim.session),
            outside=self._outside(source, remembered, places),
            strangers=self._strangers(source, history),
        )

    def _strangers(self, source: SessionSource, history: Sequence[HistoryEntry]) -> frozenset[str]:
        """In an owner's turn: the others in the conversation, who own nothing here."""
        if not self._owners.owns(source):
            return frozenset()
        people = {entry.person for entry in history if entry.person}
        return frozenset(each for each in people if not self._owners.is_operator(each))

    def _outside(self, source: SessionSource, remembered: Remembered, places: Places) -> str:
        """The sources of text in the prompt, before the history, that is not their own."""
        found = [remembered.outside]
        if source.chat_type != "dm" and self._owners.owns(source):
            found += [_EARLIER] if remembered.summary else []
            told_by = () if self._memory is None else self._memory.people_of(places)
            found += [_TOLD] if any(not self._owners.is_operator(each) for each in told_by) else []
        return ", ".join(each for each in found if each)

    async def _follow(self, running: RunningTurn, turn: Turn, purse: Purse) -> Final | Failed:
        """Take the backend's events as they come; each step is durable before the next."""
        said = list(turn.progress)
        async with aclosing(self._backend.run(turn)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text, outside=outside):
                        running.said.append(text)
                        running.outside = outside
                    case TextReset():
                        running.said.clear()
                    case StepTaken(messages=messages, usage=usage):
                        usage = None if usage is None else purse.priced(usage)
                        await running.step(messages, usage)
                        said += messages
                        self._count(running, usage)
                        running.said.clear()
                    case HistoryTrimmed(keep_from=keep_from) if keep_from:
                        running.trimmed = True
                        await self._move_window(turn, keep_from)
                    case Final(usage=usage) | Failed(usage=usage):
                        if turn.request is not None and isinstance(event, Final):
                            self._tainted.note(turn, said, event.text)
                        return event if usage is None else replace(event, usage=purse.priced(usage))
                    case _:
                        pass
                self._tell(running, event)
        sentence = "The agent ended without an answer; please try again."
        return Failed(sentence, cause="no final", public=sentence)

    async def _move_window(self, turn: Turn, keep_from: int) -> None:
        """What leaves the prompt may have left its words in later answers: its sources stay."""
        outside = sources_named(e.message for e in turn.history if e.id < keep_from)
        move = partial(self._store.move_window, turn.session_id, keep_from, outside=outside)
        await until_stored(move)

    async def _finish(self, running: RunningTurn, ending: Final | Failed) -> Final | Failed:
        """Store how the turn ended; returns what is stored, as whoever asked is told it."""
        ending = self._told(running, ending)
        try:
            await self._commit(running, ending)
        except (LeaseLost, StoreError, StoreClosed):
            raise
        except Exception as error:  # noqa: BLE001 - asked again, the model would cost as much again
            _log.exception("answer_not_stored", extra={"turn": running.claim.turn})
            sentence = "The answer could not be stored; the log has the details."
            ending = self._told(running, Failed(sentence, cause=repr(error)))
            await self._commit(running, ending)
        return ending

    def _told(self, running: RunningTurn, ending: Final | Failed) -> Final | Failed:
        if not isinstance(ending, Failed):
            return ending
        claim, request = running.claim, running.request
        told = {"turn": claim.turn, "lane": claim.lane, "kind": ending.kind}
        _log.warning(
            "turn_failed", extra={**told, "cause": ending.cause, "sentence": ending.sentence}
        )
        operator = is_operator(self._owners, claim.source, request)
        return failure_for(ending, operator=operator, program=request is not None)

    async def _commit(self, running: RunningTurn, ending: Final | Failed) -> None:
        claim = running.claim
        if isinstance(ending, Failed):
            said = ChatMessage("assistant", ending.sentence, note="failed")
            drafts = self._drafts(running, ending.sentence, "error")
            end = TurnEnd("failed", (said,), drafts, ending.usage)
        else:
            said = ChatMessage(
                "assistant",
                ending.text,
                tool_calls=ending.calls,
                attachments=ending.attachments,
                outside=ending.outside,
            )
            drafts = self._drafts(running, ending.text, "reply", ending.attachments)
            end = TurnEnd("done", (said,), drafts, ending.usage)
        leased = await running.commit(end)
        self._count(running, ending.usage)
        if isinstance(ending, Failed):
            self._tally.failed += 1
        else:
            self._tally.answered += 1
        if drafts:
            self._deliveries.hand_over(leased, claim.source.platform)

    def _count(self, running: RunningTurn, usage: Usage | None) -> None:
        if usage is not None:
            running.add_usage(usage)
            self._tally.input_tokens += usage.input_tokens
            self._tally.output_tokens += usage.output_tokens

    def _drafts(
        self,
        running: RunningTurn,
        text: str,
        kind: Literal["reply", "error"],
        attachments: tuple[Attachment, ...] = (),
    ) -> tuple[Draft, ...]:
        """What goes out later; a program that asked takes its answer from the turn's end."""
        claim = running.claim
        if running.request is not None:
            return ()
        draft = Draft(
            dedupe=f"turn:{claim.turn}",
            source=claim.source,
            text=text,
            kind=kind,
            answers=running.answers,
            handover=self._deliveries.knows_repeats(claim.source),
            attachments=attachments,
        )
        return (draft,)

    def _tell(self, running: RunningTurn, event: TurnEvent | TurnStarted | TurnEnded) -> None:
        claim = running.claim
        self._live.publish(
            *(claim.lane, claim.turn, claim.source, event, running.request),
            session=claim.session,
            answers=running.answers,
        )
