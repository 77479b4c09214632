"""What a store remembers of people, whichever engine keeps it: facts, and how each came to be.

A fact has a *place*: the profile, one person, or one chat. It is used there and nowhere else. Every
change is a commit that can be shown and taken back; what is forgotten is gone from all of them.
The same promises hold as for the rest of the store: see `parley.storage.contract`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from parley.protocol import ChatMessage, SessionSource, Usage

__all__ = [
    "PROFILE",
    "Change",
    "ChangeAction",
    "Commit",
    "CommitKind",
    "Consolidation",
    "Edit",
    "Fact",
    "FactState",
    "Fold",
    "Forgotten",
    "Line",
    "MemoryStore",
    "NewFact",
    "Origin",
    "PlaceRecord",
    "Seen",
    "Tended",
    "View",
    "chat_place",
    "person_place",
]

PROFILE: Final = "profile"
"""The place of what everyone who talks with this profile may be told."""


def person_place(person: str) -> str:
    """Of one person, such as `telegram:99`."""
    return f"person:{person}"


def chat_place(chat: str) -> str:
    """Of one chat that several people read, such as `matrix:group:!room%3Aexample.org`."""
    return f"chat:{chat}"


# ── facts ─────────────────────────────────────────────────────────────────────────────────────

Origin: TypeAlias = Literal["learned", "tool", "command", "hand", "import"]
FactState: TypeAlias = Literal["current", "replaced", "removed"]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is remembered. `sources` are the entries of the transcript it came from.

    `person` is whose words it came from: they may see and remove it. Empty: an owner's doing.
    `said_at` is when it was said, `at` when it was last changed here. `outside` names what the
    agent had read, such as a web page, where the fact may come from that and not from the person.
    """

    id: int
    place: str
    kind: str
    text: str
    confidence: float
    origin: Origin
    person: str
    said_at: float
    at: float
    sources: tuple[int, ...] = ()
    session: str | None = None
    state: FactState = "current"
    replaced_by: int | None = None
    outside: str = ""


@dataclass(frozen=True, slots=True)
class NewFact:
    """A fact on its way in. It takes the place of those it `replaces`, unless they are newer.

    Where the same is known already, the two become one: sources and the higher confidence stay,
    and it is the person's own (without `outside`) when either was.
    """

    text: str
    kind: str = "note"
    confidence: float = 1.0
    sources: tuple[int, ...] = ()
    replaces: tuple[int, ...] = ()
    person: str = ""
    said_at: float | None = None
    """None: now."""
    outside: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of what is remembered in one place, all of it or nothing."""

    adds: tuple[NewFact, ...] = ()
    changes: Mapping[int, NewFact] | None = None
    """New words for a fact, which keeps its id; its earlier sources stay."""
    removes: tuple[int, ...] = ()
    """No longer so; undo brings them back. What must be gone for good is forgotten instead."""


# ── commits ───────────────────────────────────────────────────────────────────────────────────

CommitKind: TypeAlias = Literal[
    "learned",  # facts were taken from what was said
    "folded",  # a part of a conversation became a summary, and facts
    "archived",  # a part was put away as it is: no model could make anything of it
    "told",  # somebody asked for it in a conversation: a tool or a command
    "edited",  # by hand: a view, or the command line
    "imported",
    "forgot",
    "undid",
]
ChangeAction: TypeAlias = Literal["added", "merged", "changed", "replaced", "removed", "restored"]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one fact: as it was, and as it is since. None: it was not there, or went."""

    fact: int
    action: ChangeAction
    before: Fact | None
    after: Fact | None


@dataclass(frozen=True, slots=True)
class Commit:
    """One change of what is remembered. `first` and `last` are the entries it was made from.

    `folded` is where the window of its session began before and since; `summary` what stood for
    the folded part before and since. A list of commits leaves `changes` out.
    """

    id: int
    kind: CommitKind
    place: str
    at: float
    by: str
    """A person, a model's name, or `owner`."""
    note: str
    session: str | None = None
    first: int | None = None
    last: int | None = None
    folded: tuple[int, int] | None = None
    summary: tuple[str, str] | None = None
    undone_by: int | None = None
    added: int = 0
    removed: int = 0
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What went for good: how many facts of which kinds, and how many messages were blanked."""

    commit: Commit
    facts: tuple[int, ...]
    kinds: Mapping[str, int]
    messages: int = 0


# ── tending ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Seen:
    """How a session was when it was looked at: what was made from that holds only while it is so.

    `tend_at` is when it was last put in line, None when it is not in line. `in_turn`: a turn ran,
    of which nothing could be seen yet.
    """

    revision: int
    learned: int
    folded: int
    tend_at: float | None
    in_turn: bool = False


@dataclass(frozen=True, slots=True)
class Tended:
    """A session as housekeeping sees it. `key` is its lane.

    Facts were taken from its entries up to `seen.learned`. The `summary` stands for all entries
    before `seen.folded`; prompts begin at `window_start`, which is behind it where a part was cut
    in a hurry. `last` is its newest entry. `place` is where it is remembered, where that was noted
    with it (note `memory`); `source` and `person` are of its newest turn. `outside` names sources
    of text before the window that nobody in the conversation wrote.
    """

    id: str
    key: str
    source: SessionSource
    person: str
    place: str | None
    provider: str | None
    model: str | None
    window_start: int
    last: int
    summary: str
    seen: Seen
    outside: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of a transcript, and who spoke in its turn."""

    id: int
    turn: int
    message: ChatMessage
    at: float
    person: str


@dataclass(frozen=True, slots=True)
class Fold:
    """The window moves: later prompts begin with the entry `keep_from`, behind the `summary`."""

    keep_from: int
    summary: str


@dataclass(frozen=True, slots=True)
class Consolidation:
    """What was made of a part of a session. It is stored whole, and once, or not at all.

    `forgets` are facts that the people in it took back for good. `learned` is how far facts are
    taken now; `usage` the model calls it cost. With `cut` prompts begin with that entry, and the
    part before it is still to be folded. `outside` names sources of text in the part that nobody
    in the conversation wrote.
    """

    session: str
    place: str
    seen: Seen
    kind: Literal["learned", "folded", "archived"]
    learned: int
    facts: tuple[NewFact, ...] = ()
    forgets: tuple[int, ...] = ()
    fold: Fold | None = None
    cut: int | None = None
    first: int | None = None
    last: int | None = None
    by: str = ""
    note: str = ""
    usage: tuple[Usage, ...] = ()
    outside: str = ""


# ── places ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class View:
    """A file of ours as it was last written: what a person changed in it since is their edit."""

    text: str
    version: int


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """A place where something is, or was, remembered. `version` is raised by every change."""

    place: str
    facts: int
    version: int
    view_version: int
    """Of the version that the view shows; -1 when none was written."""


class MemoryStore(Protocol):
    """The part of a store that memory stands on."""

    # tending
    async def untended(
        self,
        now: float,
        *,
        limit: int = 50,
        without: Collection[str] = (),
        behind: Tended | None = None,
    ) -> list[Tended]:
        """Sessions in line by `now`, longest waiting first, without those `without` (ids).

        With `behind`, only those that wait behind this one in line.

        What it costs depends on how many it finds, and not on how many are stored. A session is
        put in line when a turn begins in it. Those of delegated tasks never are.
        """

    async def tended(self, session: str) -> Tended | None: ...
    async def put_off(self, session: str, seen: Seen, until: float | None) -> bool:
        """Out of line (None), or back in line then; False when a turn began since it was seen.

        It does not leave the line while a turn runs in its lane, nor if one ran when it was seen:
        there is more to do.
        """

    async def remember_at(self, session: str, turn: int, place: str) -> None:
        """From this turn on a session is remembered there (its note `memory`); empty: nowhere.

        What was said before, and not learned from yet, was for another place: it is left out.
        """

    async def lines(
        self, session: str, *, after: int, upto: int | None = None, most_bytes: int = 4_000_000
    ) -> list[Line]:
        """Entries behind `after` up to and with `upto`, of turns that are over and not undone, in
        the order of a prompt; so many as `most_bytes` of their words, at least one turn's.
        """

    async def consolidate(self, made: Consolidation) -> Commit | None:
        """Store it in one transaction; None, and nothing is stored, when the session is not as it
        was `seen`, or a turn runs in its lane.

        Facts whose words look like those that were forgotten after they were said are left out,
        as are those without a source behind `seen.learned`. The session stays in line; an empty
        one of kind `learned` moves the offset and leaves no commit behind but returns one.
        """

    async def count_calls(self, session: str, usage: Sequence[Usage]) -> None:
        """Model calls that were made for a session, and that nothing came of."""

    # facts
    async def remember(
        self,
        place: str,
        edit: Edit,
        *,
        by: str,
        origin: Origin,
        kind: CommitKind = "told",
        note: str = "",
        dedupe: str | None = None,
        turn: int | None = None,
    ) -> Commit:
        """Change what is remembered in a place, once under `dedupe`: then the commit of that time.

        With `turn`, what people said in it is the source of what is added or changed. Ids that
        are not current facts of this place are a `StoreError`.
        """

    async def facts(
        self,
        places: Sequence[str],
        *,
        person: str | None = None,
        states: Sequence[FactState] = ("current",),
        limit: int | None = None,
    ) -> list[Fact]:
        """What is remembered there, oldest first; with `person`, only from their words."""

    async def fact(self, id: int) -> Fact | None: ...
    async def versions_of(self, fact: int) -> list[Fact]:
        """The facts that this one replaced, directly or not, oldest first."""

    async def sources_of(self, fact: int) -> list[Line]:
        """The messages it came from that are still there, oldest first."""

    async def search_facts(
        self, query: str, places: Sequence[str], *, person: str | None = None, limit: int = 10
    ) -> list[Fact]:
        """Current facts that hold words of the query, or words that begin so: best first.

        Those that hold all of them come before those that hold some.
        """

    async def forget(
        self,
        facts: Sequence[int],
        *,
        by: str,
        words: bool = False,
        person: str | None = None,
        dedupe: str | None = None,
    ) -> Forgotten:
        """Remove facts for good, with all they replaced, from every commit, index and summary.

        With `words` the messages they came from are blanked too. A note of how much went stays.
        With `person`, only what came from their words goes, and only their messages are blanked.
        """

    async def is_forgotten(self, place: str, text: str) -> bool:
        """Whether this was forgotten there, and not asked for again since."""

    # commits
    async def commits(
        self,
        *,
        places: Sequence[str] | None = None,
        session: str | None = None,
        fact: int | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[Commit]:
        """The newest first, without their changes; of a session, or of one fact."""

    async def commit_of(self, id: int) -> Commit | None:
        """With its changes."""

    async def undo_commit(self, id: int, *, by: str) -> Commit | None:
        """Take it back, and be the commit that did; None when it is undone already or cannot be.

        A fact that was changed since stays as it is. The window of a fold goes back when nothing
        was folded in its session since; facts are not taken from that part again.
        """

    # places and their views
    async def place_versions(self, places: Sequence[str]) -> tuple[int, ...]:
        """0 where nothing was ever remembered."""

    async def places(self, *, unwritten: bool = False) -> list[PlaceRecord]:
        """Where something is remembered; `unwritten`: only where a view is behind, by an index."""

    async def view(self, place: str) -> View | None: ...
    async def put_view(self, place: str, view: View) -> None: ...

    # vectors, where a model for them is installed
    async def unembedded(self, model: str, *, limit: int = 200) -> list[tuple[int, str]]:
        """Current facts without a vector of this model: ids and words."""

    async def put_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None: ...
    async def vectors(self, model: str, places: Sequence[str]) -> list[tuple[int, bytes]]: ...
