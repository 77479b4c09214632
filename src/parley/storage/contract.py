"""What a store promises, whichever engine keeps it: see `docs/architecture.md`, "Lanes".

A store keeps the rows of one profile. Every call that writes is durable when it returns, and every
call that belongs to a running turn is fenced: it raises `LeaseLost` when that turn is no longer
the one its lane is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from parley.protocol import (
    Attachment,
    ChatMessage,
    InboundMessage,
    ParleyError,
    SessionSource,
    Usage,
    person_of,
)
from parley.storage.hands import HandsStore, Job, Payer, Scope, Work
from parley.storage.items import ItemStore, ResponseItems
from parley.storage.memory import MemoryStore
from parley.storage.people import PeopleStore

__all__ = [
    "Claim",
    "Committed",
    "Delivery",
    "DeliveryState",
    "Draft",
    "Effect",
    "Entry",
    "InboxKind",
    "InboxMessage",
    "Job",
    "LeaseLost",
    "NewSession",
    "Nothing",
    "Outcome",
    "RateLimit",
    "Recall",
    "Receipt",
    "RequestEvent",
    "RequestRecord",
    "RequestState",
    "ResumeSession",
    "RetryTurn",
    "Said",
    "SessionRecord",
    "SetModel",
    "SetTitle",
    "Settle",
    "StopTurn",
    "Stopped",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreHealth",
    "StoreUnavailable",
    "TurnEnd",
    "TurnResult",
    "UndoTurn",
    "Withdrawn",
    "Work",
]


class StoreError(ParleyError):
    """The store cannot be opened or used."""


class StoreUnavailable(StoreError):
    """The store cannot be used just now, such as on a full disk; later it may."""


class StoreClosed(ParleyError):
    """The store was closed; nothing more can be asked of it."""


class LeaseLost(ParleyError):
    """This turn is no longer the one its lane runs: stopped, replaced, or taken by another."""


# ── in ────────────────────────────────────────────────────────────────────────────────────────

InboxKind: TypeAlias = Literal["message", "command"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a submitted message."""

    state: Literal["queued", "duplicate", "rate_limited", "refused"]
    inbox_id: int = 0
    retry_after: float = 0.0
    fresh: bool = False
    """The last session of the lane was over: a new one was begun for this message."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket: so many messages at once, so many a second after that."""

    capacity: float
    per_second: float


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """An accepted message."""

    id: int
    message: InboundMessage


@dataclass(frozen=True, slots=True)
class Claim:
    """A lane's turn, held by one owner. `attempt` is above 1 when it resumes."""

    lane: str
    owner: str
    epoch: int
    generation: int
    turn: int
    attempt: int
    session: str
    source: SessionSource
    messages: tuple[InboxMessage, ...]
    more: bool = False
    """Whether further messages waited behind it when it was claimed."""
    told: int = 0
    """How many messages just before it were told by its program, and answered by no turn."""

    @property
    def payer(self) -> Payer:
        """Whom its tokens are counted for: a delegated task works for whoever delegated it."""
        request = self.messages[0].message.request if self.messages else None
        if request is not None and request.behalf is not None:
            return Payer(request.behalf.user, request.behalf.session)
        return Payer(person_of(self.source), self.session)


# ── the transcript ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a transcript; `person` is who spoke in its turn."""

    id: int
    turn: int
    message: ChatMessage
    at: float
    person: str = ""


@dataclass(frozen=True, slots=True)
class Recall:
    """What a turn needs of its session: who was chosen to answer, and what was said.

    With `since`, only the entries after that one, when what was before them still holds.
    `summary` stands for what was said before the first of them; `versions` are those of the
    places that were asked for. `outside` names sources of text that nobody in the conversation
    wrote, and that stood before the window.
    """

    provider: str | None
    model: str | None
    revision: int
    entries: tuple[Entry, ...]
    whole: bool
    summary: str = ""
    versions: tuple[int, ...] = ()
    outside: str = ""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A conversation: what a list of them shows. `current` says its lane would go on with it.

    `updated_at` is its last use: when a turn began or ended in it, a command changed it, or work
    in the background ended.
    """

    id: str
    lane: str
    title: str | None
    provider: str | None
    model: str | None
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    created_at: float
    updated_at: float
    current: bool


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended, and what it leaves behind."""

    state: Literal["done", "failed"]
    messages: tuple[ChatMessage, ...] = ()
    outbox: tuple[Draft, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a turn has said so far; it is kept when that very turn is ended.

    `outside` is that of the `ChatMessage` it becomes.
    """

    turn: int
    text: str
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a stop found. `turn` is None when nothing ran."""

    turn: int | None
    dropped: int
    generation: int


# ── out ───────────────────────────────────────────────────────────────────────────────────────

DeliveryState: TypeAlias = Literal["waiting", "sending", "sent", "unsure", "dead"]


@dataclass(frozen=True, slots=True)
class Draft:
    """A reply on its way into the outbox. `dedupe` names it for ever."""

    dedupe: str
    source: SessionSource
    text: str
    kind: Literal["reply", "notice", "error"] = "reply"
    answers: tuple[str, ...] = ()
    """The platform's ids of the messages this answers."""
    handover: bool = False
    """The surface knows a repeat: the reply is leased at once, without a second write."""
    attachments: tuple[Attachment, ...] = ()
    """Files that go with it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A reply that waits for its surface to confirm it."""

    id: int
    lane: str
    turn: int | None
    dedupe: str
    source: SessionSource
    text: str
    kind: str
    answers: tuple[str, ...]
    state: DeliveryState
    attempts: int
    at: float
    session: str = ""
    """Made up by chance: no other profile has it, and a rename leaves it as it is."""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit leaves to do: replies handed over to be sent, and whether more waits."""

    handed: tuple[Delivery, ...]
    more: bool


# ── what a slash command changes ──────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Nothing:
    """The command only answers."""


@dataclass(frozen=True, slots=True)
class StopTurn:
    drop_queued: bool = False
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class NewSession:
    said: Said | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class ResumeSession:
    session: str
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class UndoTurn:
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class RetryTurn:
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class SetTitle:
    title: str


@dataclass(frozen=True, slots=True)
class SetModel:
    provider: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Settle:
    """A person's word on a question that waits; `refused` when it does not wait any more."""

    question: str
    state: Literal["allowed", "denied"]
    by: str
    scope: Scope = "once"


Effect: TypeAlias = (
    Nothing
    | StopTurn
    | NewSession
    | ResumeSession
    | UndoTurn
    | RetryTurn
    | SetTitle
    | SetModel
    | Settle
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command's effect found when it was applied."""

    stopped: int | None = None
    dropped: int = 0
    undone: tuple[str, ...] = ()
    """The words of the person in the turn that was undone; empty when there was none."""
    session: SessionRecord | None = None
    refused: bool = False


# ── requests of programs ──────────────────────────────────────────────────────────────────────

RequestState: TypeAlias = Literal["queued", "running", "stopping", "done", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request of a program that outlives its connection, and what became of it.

    Once it has ended and `expires_at` has passed, it is there no more.
    """

    id: str
    kind: str
    """`run`, `response` or `chat`."""
    owner: str
    """Whose it is: the name of the API key."""
    lane: str
    dedupe: str
    """The name its message is submitted under."""
    state: RequestState
    body: Mapping[str, Any]
    """What the surface keeps of what was asked."""
    result: Mapping[str, Any] | None
    key: str | None
    """Under which the program may ask again: one request has it."""
    fingerprint: str | None
    """Of the body that came with the key."""
    expires_at: float | None
    created_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """One line of a request's log. The first has the number 1."""

    number: int
    kind: str
    data: Mapping[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What became of a message. Without a turn it waits, or was dropped, or was deleted.

    A turn that was undone counts as stopped, and nothing of it is left.
    """

    state: Literal["queued", "running", "done", "failed", "stopped", "dropped"]
    turn: int | None = None
    session: str | None = None
    messages: tuple[ChatMessage, ...] = ()
    """What the turn added to the transcript, in order, beginning with what was asked."""
    usage: Usage | None = None
    """The sums of its model calls; provider and model are those of the last one."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What was given up: a message that waited, or the turn that ran for it, or nothing."""

    dropped: bool = False
    turn: int | None = None


# ── time ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """Counts of what is under way, the replies nobody can be sure of, and what is wrong.

    `fault` is why the last write failed, in a sentence, until one works again. Where nothing can
    be read either, nothing is counted.
    """

    queued: int
    running: int
    undelivered: int
    unsure: tuple[Delivery, ...] = field(default=())
    dead: tuple[Delivery, ...] = field(default=())
    fault: str | None = None


class Store(HandsStore, PeopleStore, MemoryStore, ItemStore, Protocol):
    """Everything durable of one profile."""

    on_notice: Callable[[str], None] | None
    """Told of a platform when `claim` or `absorb` left a notice in its outbox."""

    # in
    async def submit(
        self,
        lane: str,
        dedupe: str,
        message: InboundMessage,
        *,
        kind: InboxKind = "message",
        user: str | None = None,
        not_before: float | None = None,
        fresh_before: float | None = None,
        notice: Callable[[SessionRecord], Draft] | None = None,
    ) -> Receipt:
        """Accept a message, once.

        When its lane is quiet and the session there was last used before `fresh_before`, the
        message begins a new one, unless work runs in the background for the old. A `notice` of
        the new session then leaves ahead of the reply, as `reset:<the new session's id>`.
        """

    async def allow(self, user: str, cost: float = 1.0) -> float | None:
        """None when allowed (and counted), else how many seconds to wait."""

    # lanes
    async def claim(self, owner: str, limit: int, platforms: Sequence[str]) -> list[Claim]:
        """Take up to `limit` ready lanes of these platforms, longest waiting first.

        A message with a `report` whose session or generation is gone begins no turn: its notice
        goes into the outbox, as `report:<the name it was submitted under>`. So does `absorb`.
        """

    async def recover(self, owner: str) -> int:
        """Take the turns of dead owners back into the queues; count the lanes.

        What they had reserved for model calls is counted as spent. Background work is left as it
        is: whoever serves it finds out what became of it.
        """

    async def check(self, claim: Claim) -> None: ...
    async def peek(self, claim: Claim) -> int:
        """How many messages wait behind this turn."""

    async def behind(self, claim: Claim) -> tuple[InboxMessage, ...]:
        """Those of them that `absorb` would take, left where they are."""

    async def absorb(self, claim: Claim) -> tuple[InboxMessage, ...]:
        """Take the messages that wait behind this turn into it, and into the transcript.

        Up to the first that came in by another account: the turn's reply goes to one. Only what
        the same person says: the turn is theirs, and they pay for it. The request of a program
        has a turn of its own, which takes in nothing.
        """

    async def step(
        self, claim: Claim, messages: Sequence[ChatMessage], usage: Usage | None = None
    ) -> None: ...
    async def commit(self, claim: Claim, end: TurnEnd) -> Committed:
        """End the turn in one transaction."""

    async def release(self, claim: Claim) -> None:
        """Give the turn back unfinished: the next owner resumes it from its last step."""

    async def stop(
        self,
        lane: str,
        *,
        drop_queued: bool = False,
        said: Said | None = None,
        turn: int | None = None,
    ) -> Stopped:
        """Raise the generation and end the running turn, keeping what it had `said`.

        With `turn`, only when it is that one: a fresher one is left alone.
        """

    # commands
    async def pending_commands(self) -> list[tuple[str, InboxMessage]]: ...
    async def answer(
        self,
        lane: str,
        inbox_id: int,
        effect: Effect,
        reply: Callable[[Outcome], Draft],
        *,
        owner: str | None = None,
    ) -> list[Delivery] | None:
        """Apply the effect, store the reply, and be done, once; None when it was done before."""

    # transcripts and sessions
    async def session_of(self, lane: str) -> SessionRecord | None: ...
    async def transcript(self, session: str, *, whole: bool = False) -> list[Entry]:
        """The session's entries from where its window starts, without undone turns."""

    async def recall(
        self, session: str, *, revision: int = -1, since: int = 0, places: Sequence[str] = ()
    ) -> Recall:
        """The transcript as a prompt needs it; at the same `revision` only what came `since`."""

    async def times_undone(self, session: str) -> int:
        """How many turns of the session were taken back by `/undo` or `/retry`."""

    async def move_window(self, session: str, keep_from: int, *, outside: str = "") -> None:
        """Prompts begin with that entry; `outside` as in `Recall`, of what was before it."""

    async def sessions(
        self, *, lane: str | None = None, limit: int = 50, before: float | None = None
    ) -> list[SessionRecord]: ...
    async def sessions_under(
        self, lanes: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> list[SessionRecord]:
        """The newest sessions of lanes that begin so, `after` the last use and id of another."""

    async def find_sessions(self, prefix: str, *, lane: str | None = None) -> list[SessionRecord]:
        """Sessions whose id begins with `prefix`."""

    async def delete_session(self, session: str, *, requests: bool = True) -> bool:
        """Remove a session and all that was said in it; False when it is running.

        It is while a turn of it runs, or work in the background. Requests whose turns were in
        it go with it, or with `requests` False stay with their results.
        """

    # requests of programs
    async def open_request(
        self, record: RequestRecord, items: ResponseItems | None = None
    ) -> tuple[RequestRecord, bool]:
        """Store it, unless its key or its id is there already: then that one, and False.

        With the `items` of one that has ended.
        """

    async def request(self, id: str) -> RequestRecord | None: ...
    async def mark_request(self, id: str, state: Literal["queued", "running", "stopping"]) -> bool:
        """What it is doing; False when it has ended, or is not there."""

    async def finish_request(
        self,
        id: str,
        state: Literal["done", "failed", "stopped"],
        result: Mapping[str, Any] | None,
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        items: ResponseItems | None = None,
    ) -> list[RequestEvent] | None:
        """The end of it, once: state, result, the last events and the items in one transaction.

        None when it had ended before, or is not there.
        """

    async def delete_request(self, id: str) -> bool:
        """Remove it and its log; False when it is not there."""

    async def add_request_events(
        self, id: str, events: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> list[RequestEvent]:
        """Append to its log, numbered without a gap; nothing when it has ended or is not there."""

    async def request_events(
        self, id: str, *, after: int = 0, limit: int = 500
    ) -> list[RequestEvent]:
        """Its log behind the event `after`, so many at a time."""

    async def last_request_event(self, id: str) -> int:
        """The number of the newest line in its log; 0 when there is none."""

    async def open_requests(self) -> list[RequestRecord]:
        """Those that have not ended, oldest first."""

    async def prune_requests(self, now: float) -> int:
        """Remove some hundreds of those that are there no more; 0 when there are none left."""

    async def turn_result(self, dedupe: str) -> TurnResult | None:
        """What became of the message submitted under this name; None when none was."""

    async def withdraw(self, lane: str, dedupe: str, *, said: Said | None = None) -> Withdrawn:
        """Whoever asked is gone: drop the message if it waits, else end its turn if that runs.

        The turn is ended as by `stop`. Another turn of the lane is left alone.
        """

    async def drop_unwaited(self) -> int:
        """Give up every message and turn whose request is not `lasting`; count them.

        For the start: whoever waited for them waited at a process that is gone.
        """

    # out
    async def resume_sends(self, platform: str, owner: str, *, repeats: bool) -> None:
        """Take up what a dead owner was sending there, when the platform is served again.

        It goes out once more where `repeats` are known as such; elsewhere it may have arrived,
        so it becomes `unsure`.
        """

    async def lease_deliveries(self, platform: str, owner: str, limit: int) -> list[Delivery]:
        """The oldest unsent reply of each lane and account of a platform, if it is due."""

    async def next_delivery_at(self, platform: str) -> float | None: ...
    async def delivered(self, delivery: int, platform_id: str | None = None) -> bool:
        """The surface confirmed it; returns whether more of its conversation waits."""

    async def retry_delivery(self, delivery: int, after: float | None, why: str) -> None:
        """Try again in `after` seconds; None parks it until `unpark`."""

    async def abandon_delivery(
        self, delivery: int, state: Literal["unsure", "dead"], why: str
    ) -> None: ...
    async def unpark(self, lane: str) -> int: ...

    # time
    async def tick(self) -> float | None:
        """Submit what is due; returns when to look again, None when nothing is planned."""

    # itself
    async def adopt(self, namespace: str) -> int:
        """Rename every lane `agent:<other>:…` to this namespace; count them. Two become one.

        For the start, before anything is claimed. Names of another form are left alone.
        """

    async def health(self) -> StoreHealth: ...
    async def close(self) -> None: ...
