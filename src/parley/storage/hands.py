"""What a store keeps for an agent's hands, whichever engine keeps it.

Background work, questions to people and what they granted, spending, plans, notes, and search.
The same promises hold as for the rest of the store: see `parley.storage.contract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from parley.protocol import ChatMessage, InboundMessage, SessionSource

if TYPE_CHECKING:
    from parley.storage.contract import Delivery, Draft

__all__ = [
    "Conversation",
    "FoundEntry",
    "Grant",
    "HandsStore",
    "Job",
    "JobRecord",
    "Limit",
    "Overrun",
    "Payer",
    "Question",
    "QuestionState",
    "Reservation",
    "Scope",
    "Spent",
    "Work",
    "WorkKind",
    "WorkState",
]


# ── background work ───────────────────────────────────────────────────────────────────────────

WorkKind: TypeAlias = Literal["process", "task"]
WorkState: TypeAlias = Literal["running", "done", "failed", "stopped", "lost"]


@dataclass(frozen=True, slots=True)
class Work:
    """Something that runs for a session, beyond the turn that began it.

    `generation` is that of the lane when it began. `notify`: its end is told to `source`.
    """

    id: str
    kind: WorkKind
    lane: str
    session: str
    generation: int
    source: SessionSource
    notify: bool
    body: Mapping[str, Any]
    state: WorkState = "running"
    result: Mapping[str, Any] | None = None
    at: float = 0.0
    ended_at: float | None = None


# ── questions to people ───────────────────────────────────────────────────────────────────────

Scope: TypeAlias = Literal["once", "session", "always"]
QuestionState: TypeAlias = Literal["waiting", "allowed", "used", "denied", "expired", "gone"]


@dataclass(frozen=True, slots=True)
class Question:
    """Whether one exact call may be made. `call` names that call for ever; it is asked once.

    `used`: it was allowed, and the call may have begun since.
    """

    id: str
    call: str
    lane: str
    session: str
    turn: int
    person: str
    """Who may answer, `platform:user`; an owner always may."""
    owner: bool
    """Only an owner may."""
    tool: str
    digest: str
    """Of the tool and its exact arguments."""
    what: str
    expires_at: float
    once: str = ""
    """Why a yes holds for this call only; empty where it may hold for longer."""
    state: QuestionState = "waiting"
    by: str | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Grant:
    """This exact call needs no further word: of this person, in `session` or in all of theirs."""

    id: int
    scope: Literal["session", "always"]
    session: str | None
    person: str
    tool: str
    what: str
    at: float


# ── spending ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Payer:
    """Whom a turn's tokens are counted for, beside the profile."""

    user: str
    session: str


@dataclass(frozen=True, slots=True)
class Limit:
    """What may be spent from `since` until `until` by the profile, a user or a session.

    Money is in millionths.
    """

    whose: Literal["profile", "user", "session"]
    period: Literal["day", "month"]
    since: float
    until: float
    tokens: int | None = None
    micros: int | None = None
    plan: str | None = None
    """The name of the plan that says so. It is used up when all of it is spent: the call before
    that may go beyond it, whatever it may cost."""


@dataclass(frozen=True, slots=True)
class Spent:
    tokens: int = 0
    micros: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one model call may cost at most, held until its turn tells what it did cost.

    `input_tokens` is the part that is spent as soon as the call is made.
    """

    turn: int
    payer: Payer
    owner: str
    provider: str
    model: str
    input_tokens: int
    tokens: int
    micros: int


@dataclass(frozen=True, slots=True)
class Overrun:
    """The limit that a call would break, and what is left of it."""

    limit: Limit
    spent: Spent


# ── time ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Job:
    """A message that submits itself: once `at` a time, `every` so many seconds, or by `cron`."""

    id: str
    lane: str
    message: InboundMessage
    at: float | None = None
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class JobRecord:
    job: Job
    next_at: float


# ── what was said ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """A line of a transcript that a search found."""

    id: int
    session: str
    title: str | None
    lane: str
    role: str
    at: float
    excerpt: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A place where a person has spoken: the source of their newest turn there."""

    lane: str
    session: str
    title: str | None
    source: SessionSource
    at: float


class HandsStore(Protocol):
    """The part of a store that tools stand on."""

    # background work
    async def begin_work(self, work: Work) -> bool:
        """Until `end_work` its session is not over by itself. False: this id is there already.

        What was given up as `lost` runs again.

        Raises `StoreError` when its lane has no such session.
        """

    async def work(self, id: str) -> Work | None: ...
    async def works(
        self, *, session: str | None = None, lane: str | None = None, running: bool = True
    ) -> list[Work]:
        """Oldest first; with `running` False those too that have ended."""

    async def end_work(
        self, id: str, state: WorkState, result: Mapping[str, Any] | None = None
    ) -> bool:
        """The work is over, which is a use of its session; False when it was before."""

    async def is_running(self, turn: int) -> bool:
        """Whether a turn is under way, or is to be resumed."""

    async def owed(self, lane: str) -> int:
        """How much may still be said in a lane without being asked: work whose end is told, what
        came by itself and is not answered yet, replies on their way.
        """

    async def is_under_way(self, lane: str) -> bool:
        """Whether a turn runs in a lane, or is to be resumed there."""

    async def prune_work(self, before: float) -> int:
        """Forget what ended before that time, and what was asked and decided before it."""

    # questions and grants
    async def put_question(self, question: Question) -> Question:
        """Store it; when its call was asked about before, that question as it stands."""

    async def question(self, id: str) -> Question | None: ...
    async def question_of(self, call: str) -> Question | None: ...
    async def questions(self, lane: str) -> list[Question]:
        """Those that wait in a lane, oldest first."""

    async def settle_question(
        self, id: str, state: QuestionState, *, by: str | None = None, scope: Scope = "once"
    ) -> bool:
        """Decide it, once; an `allowed` one of a wider scope leaves a grant, unless a yes
        holds for that call only. False: it was decided before.

        Once it has expired it can be neither allowed nor denied. A stopped turn's are `gone`.
        """

    async def use_answer(self, id: str) -> bool:
        """The call that was allowed is about to begin; False when it was not, or has before."""

    async def is_granted(self, *, session: str, person: str, tool: str, digest: str) -> bool: ...
    async def grants(self, person: str) -> list[Grant]: ...
    async def revoke_grants(self, person: str, id: int | None = None) -> int:
        """Take back one of this person's, or all of them; count them."""

    # spending
    async def reserve(self, reservation: Reservation, limits: Sequence[Limit]) -> Overrun | None:
        """Hold what a call may cost, unless that would break one of the limits.

        A turn holds one call: the next takes the place of the one before. It is let go when its
        turn journals a usage or ends. What a dead owner held, and what a turn held that was
        stopped or released, is counted as spent: its `input_tokens`, in proportion of its money.
        Raises `LeaseLost` when this owner does not run that turn.
        """

    async def spent(self, payer: Payer, limits: Sequence[Limit]) -> list[Spent]:
        """What is spent and held of each limit."""

    # time
    async def schedule(self, job: Job) -> None: ...
    async def unschedule(self, job_id: str, *, lane: str | None = None) -> bool: ...
    async def jobs(self, lane: str) -> list[JobRecord]:
        """What is planned for a lane, the next one first."""

    async def jobs_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[JobRecord]:
        """The next jobs of lanes that begin so, `after` the time and id of another."""

    # what was said
    async def post(
        self, lane: str, draft: Draft, *, said: ChatMessage | None = None, owner: str | None = None
    ) -> list[Delivery]:
        """Put a message into the outbox of a lane's session outside of its turns, once.

        With `said` it stands in the transcript too. Raises `StoreError` when there is no such lane.
        """

    async def index_entries(self, limit: int = 500) -> bool:
        """Take up to `limit` new entries into the search index; whether more are left."""

    async def search_entries(
        self, query: str, *, person: str | None = None, lane: str | None = None, limit: int = 10
    ) -> list[FoundEntry]:
        """Lines that hold all words of the query, or words that begin so; best first.

        With `person` only of the turns they took part in, and of `lane`; of either alone too.
        """

    async def conversation_at(self, lane: str) -> Conversation | None:
        """The one in this lane, if anyone has spoken there."""

    async def conversations(self, person: str | None, *, limit: int = 50) -> list[Conversation]:
        """Where this person has spoken, or anyone, newest first."""

    # notes and settings
    async def note(self, session: str, name: str) -> str | None: ...
    async def put_note(self, session: str, name: str, value: str | None) -> None:
        """Keep something small with a session; it goes with it.

        Raises `StoreError` when there is no such session.
        """

    async def person_setting(self, person: str, name: str) -> str | None: ...
    async def put_person_setting(self, person: str, name: str, value: str | None) -> None: ...
