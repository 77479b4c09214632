"""Calls that wait for a person's word. Questions are rows: a restart neither loses nor repeats one.

An answer counts when it comes from the person that the turn answers, or from an owner; for what
is owner-level, from an owner alone. It counts for the exact call that was shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from parley.agent.calls import NOBODY
from parley.agent.hands import Asking
from parley.agent.question_text import render_question
from parley.gateway.approval_records import record_answer, record_question, record_use
from parley.gateway.lanes import RunningTurn
from parley.gateway.owners import Owners
from parley.gateway.persist import until_stored
from parley.profiles import Profile
from parley.protocol import ApprovalAsked, SessionSource, person_of
from parley.sessions.key import parse_session_key
from parley.storage.contract import Claim
from parley.storage.hands import HandsStore, Question, QuestionState, Scope

__all__ = ["SAFETY_TRIGGERS", "Answer", "Approvals", "TurnAsk", "digest_of"]

SAFETY_TRIGGERS = ("email-send", "file-delete", "social-post")

_DENIED = "The person did not allow this."
_EXPIRED = "No answer came in time, so this was not done."
_OWNER_ONLY = "Only an owner of this agent may allow this, and nobody here is one."
_CHANGED = "What this would do is not what was asked about any more: call it anew."

Tell = Callable[[Question, SessionSource, str], Awaitable[None]]


def digest_of(asking: Asking) -> str:
    """A name for one exact call as it was shown: what it will do, and its arguments to the letter.

    What was harmless enough for anyone to allow is another call once only an owner may.
    """
    call = asking.call
    shown = [call.name, dict(call.arguments), asking.what, asking.owner]
    shown += [asking.binding, *asking.reasons]
    told = json.dumps(shown, sort_keys=True, default=str)
    return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """The question that somebody's word is for, or why it is for none."""

    question: Question | None = None
    refused: str = ""


class _Known:
    """Nobody needs to be asked: the answer is known."""

    event: ApprovalAsked | None = None

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal

    async def decided(self) -> str:
        return self._refusal


class _Pending:
    """One question whose turn waits for the answer."""

    def __init__(self, approvals: Approvals, question: Question, event: ApprovalAsked) -> None:
        self.question = question
        self.event: ApprovalAsked | None = event
        self._approvals = approvals
        self._answer: asyncio.Future[QuestionState] = asyncio.get_running_loop().create_future()

    async def decided(self) -> str:
        left = max(0.0, self.question.expires_at - time.time())
        try:
            async with asyncio.timeout(left):
                state = await self._answer
        except TimeoutError:
            if await self._approvals.settle(self.question, "expired"):
                self._approvals.record("approval.expired", self.question)
                return _EXPIRED
            state = await self._approvals.state_of(self.question)  # a word at the last moment
        finally:
            self._approvals.forget(self)
        if state != "allowed":
            return _DENIED
        return await self._approvals.use(self.question)

    def answer(self, state: QuestionState) -> None:
        if not self._answer.done():
            self._answer.set_result(state)


class Approvals:
    """The questions of one profile's turns. `tell` shows one where the surface does not itself."""

    def __init__(
        self,
        store: HandsStore,
        owners: Owners,
        *,
        tell: Tell,
        patience: float = 600.0,
        safety: Mapping[str, bool] | None = None,
        profile: Profile | None = None,
    ) -> None:
        self._profile = profile
        self._store = store
        self._owners = owners
        self._tell = tell
        self._patience = patience
        self._safety = dict(safety or {})
        self._waiting: dict[str, dict[str, _Pending]] = {}

    async def ask(
        self, claim: Claim, source: SessionSource, asking: Asking, *, people: Collection[str] = ()
    ) -> _Known | _Pending:
        """The question about one call of this turn, which may have been answered before.

        `people` speak in the turn: what one of them settled for themselves is not settled for all.
        """
        person, digest = person_of(source), digest_of(asking)
        if not await self._is_needed(claim, asking, digest, {person, *people}):
            return _Known()
        if asking.owner and source.chat_type == "dm" and not self._owners.owns(source):
            return _Known(_OWNER_ONLY)
        now = time.time()
        question = await until_stored(
            partial(
                self._store.put_question,
                Question(
                    id=f"appr_{secrets.token_hex(6)}",
                    call=asking.name,
                    lane=claim.lane,
                    session=claim.session,
                    turn=claim.turn,
                    person=person,
                    owner=asking.owner,
                    tool=asking.call.name,
                    digest=digest,
                    what=asking.what,
                    once=asking.once,
                    expires_at=now + self._patience,
                    at=now,
                ),
            )
        )
        if question.digest != digest:  # settings may have changed while the gateway was away
            await self.settle(question, "gone")
            return _Known(_CHANGED)
        if question.state == "allowed":
            return _Known(await self.use(question))
        if question.state == "used":
            return _Known()
        if question.state != "waiting":
            return _Known(_EXPIRED if question.state == "expired" else _DENIED)
        text = render_question(asking.what, asking.reasons, asking.once)
        event = ApprovalAsked(asking.call, text, id=question.id, lasting=not asking.once)
        pending = _Pending(self, question, event)
        self._waiting.setdefault(claim.lane, {})[question.id] = pending
        if question.at == now:
            self.record("approval.asked", question, asking.reasons)
        await self._tell(question, source, text)
        return pending

    async def without_asking(self, claim: Claim, asking: Asking) -> _Known:
        """Where nobody can be asked: only what the person has settled beforehand may be done."""
        payer = claim.payer
        whose = replace(claim, session=payer.session)
        needed = await self._is_needed(whose, asking, digest_of(asking), {payer.user})
        return _Known(NOBODY if needed else "")

    async def _is_needed(
        self, claim: Claim, asking: Asking, digest: str, people: Collection[str]
    ) -> bool:
        for person in people:
            # A switch of their own is for what they may allow themselves.
            switch = None if asking.owner else asking.trigger
            if switch is not None and not await self.is_on(person, switch):
                continue
            if asking.once or not await self._store.is_granted(
                session=claim.session, person=person, tool=asking.call.name, digest=digest
            ):
                return True
        return False

    async def is_on(self, person: str, trigger: str) -> bool:
        """Whether this person wants to be asked about what falls under a trigger."""
        own = await self._store.person_setting(person, f"safety.{trigger}")
        return self._safety.get(trigger, True) if own is None else own != "off"

    async def is_open(self, name: str) -> bool:
        """Whether this call was asked about and never begun, whatever the answer was."""
        question = await self._store.question_of(name)
        return question is not None and question.state != "used"

    def asked_of(self, lane: str, person: str) -> str | None:
        """The id of the one question that waits there, if it is this person's to answer."""
        waiting = self._waiting.get(lane)
        if waiting is None or len(waiting) != 1:
            return None
        [pending] = waiting.values()
        return pending.question.id if pending.question.person == person else None

    async def find(self, lane: str, *, by: str, owner: bool, approval: str | None = None) -> Answer:
        """The question of that id, or the one that waits there, if theirs is the word on it."""
        waiting = await self._store.questions(lane)
        if approval is None and len(waiting) > 1:
            # Nobody knows which of them the person has read last.
            named = (f"- `{each.id}`: {each.what.partition(chr(10))[0]}" for each in waiting)
            return Answer(
                refused="\n".join(["Several questions wait; name one by its id:", *named])
            )
        found = next((each for each in waiting if approval in (None, each.id)), None)
        if found is None and owner and approval is not None:
            found = await self._in_the_same_room(lane, approval)
        if found is None:
            return Answer()
        if found.owner and not owner:
            return Answer(refused="Only an owner of this agent may answer that.")
        if by != found.person and not owner:
            return Answer(refused="That question is for whoever asked, and for owners.")
        return Answer(found)

    async def _in_the_same_room(self, lane: str, approval: str) -> Question | None:
        """Where everyone in a group has a conversation of their own, an owner answers in all."""
        found = await self._store.question(approval)
        if found is None or found.state != "waiting" or found.expires_at <= time.time():
            return None
        return found if _room_of(found.lane) == _room_of(lane) else None

    async def decide(
        self,
        lane: str,
        *,
        allowed: bool,
        by: str,
        owner: bool,
        approval: str | None = None,
        scope: Scope = "once",
    ) -> Answer:
        """Somebody's word on a question."""
        found = await self.find(lane, by=by, owner=owner, approval=approval)
        if found.question is None:
            return found
        id, state = found.question.id, _state(allowed)
        settle = partial(self._store.settle_question, id, state, by=by, scope=scope)
        if not await until_stored(settle):
            return Answer()
        self.settled(found.question, allowed=allowed, by=by, scope=scope)
        return found

    def settled(self, question: Question, *, allowed: bool, by: str, scope: Scope) -> None:
        """The word on it is stored: the turn that waits for it goes on."""
        record_answer(self._profile, question, allowed=allowed, by=by, scope=scope)
        pending = self._waiting.get(question.lane, {}).get(question.id)
        if pending is not None:
            pending.answer(_state(allowed))

    def waiting(self, lane: str) -> tuple[ApprovalAsked, ...]:
        """What the turn that runs there has asked."""
        return tuple(
            pending.event
            for pending in self._waiting.get(lane, {}).values()
            if pending.event is not None
        )

    def asked(self, lane: str) -> tuple[tuple[int, ApprovalAsked], ...]:
        """The same, each with the number of its turn."""
        waiting = self._waiting.get(lane, {}).values()
        return tuple((each.question.turn, each.event) for each in waiting if each.event is not None)

    async def settle(self, question: Question, state: QuestionState) -> bool:
        return await until_stored(partial(self._store.settle_question, question.id, state))

    async def state_of(self, question: Question) -> QuestionState:
        found = await self._store.question(question.id)
        return "gone" if found is None else found.state

    async def use(self, question: Question) -> str:
        """The call is about to begin: from here on nobody can say that it never did.

        Returns why it may not, where that cannot be recorded.
        """
        refusal = await record_use(self._profile, question)
        if not refusal:
            await until_stored(partial(self._store.use_answer, question.id))
        return refusal

    def record(self, kind: str, question: Question, reasons: Sequence[str] = ()) -> None:
        record_question(kind, self._profile, question, reasons)

    def turn_over(self, claim: Claim) -> None:
        """Nobody waits here any more; a turn that was cut off asks again when it is resumed."""
        for pending in tuple(self._waiting.get(claim.lane, {}).values()):
            if pending.question.turn == claim.turn:
                self.forget(pending)

    async def withdraw(self, claim: Claim) -> None:
        """What the turn asked before it was cut off is not asked any more."""
        for question in await self._store.questions(claim.lane):
            if question.turn == claim.turn:
                await self.settle(question, "gone")
                self.record("approval.withdrawn", question)

    def forget(self, pending: _Pending) -> None:
        question = pending.question
        here = self._waiting.get(question.lane, {})
        if here.get(question.id) is pending:
            del here[question.id]
        if not here:
            self._waiting.pop(question.lane, None)


class TurnAsk:
    """How one turn asks: bound to its claim and its person. `asks`: somebody is there to answer."""

    def __init__(
        self, approvals: Approvals, running: RunningTurn, source: SessionSource, *, asks: bool
    ) -> None:
        self._approvals = approvals
        self._running = running
        self._source = source
        self._asks = asks

    async def __call__(self, asking: Asking) -> _Known | _Pending:
        running = self._running
        if not self._asks:
            return await self._approvals.without_asking(running.claim, asking)
        return await self._approvals.ask(running.claim, self._source, asking, people=running.people)

    async def is_open(self, name: str) -> bool:
        return await self._approvals.is_open(name)

    async def withdraw(self) -> None:
        await self._approvals.withdraw(self._running.claim)


def _room_of(lane: str) -> object:
    """The group that a conversation is held in; a direct chat is a room of its own."""
    name = parse_session_key(lane)
    return lane if name.chat_type == "dm" else (name.platform, name.chat_type, name.chat_id)


def _state(allowed: bool) -> Literal["allowed", "denied"]:
    return "allowed" if allowed else "denied"
