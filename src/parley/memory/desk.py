"""What may be done with what is remembered, and by whom: each sees and removes only their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from parley import audit
from parley.memory.diff import diff_of
from parley.memory.document import Told, as_document, read_document
from parley.memory.views import Views
from parley.memory.wording import OUTSIDE_CONFIDENCE, kind_named, worded
from parley.protocol import ParleyError
from parley.storage.memory import (
    PROFILE,
    Change,
    Commit,
    CommitKind,
    Edit,
    Fact,
    FactState,
    Forgotten,
    Line,
    MemoryStore,
    NewFact,
    Origin,
)
from parley.storage.wording import normal_form

__all__ = ["Imported", "MemoryDesk", "Searcher", "Whose", "Why", "diff_of"]

_KINDS: Final[dict[Origin, CommitKind]] = {
    "learned": "learned",
    "tool": "told",
    "command": "told",
    "hand": "edited",
    "import": "imported",
}
_AT_ONCE: Final = 500
_EVER: Final[tuple[FactState, ...]] = ("current", "replaced", "removed")


@dataclass(frozen=True, slots=True)
class Whose:
    """What somebody may see and change: in these places, what came from this person's words.

    Without a person it is everything in these places.
    """

    places: tuple[str, ...]
    person: str | None = None

    def has(self, fact: Fact) -> bool:
        return fact.place in self.places and self.person in (None, fact.person)


@dataclass(frozen=True, slots=True)
class Why:
    """A fact, those it replaced, and the messages it came from: oldest first."""

    fact: Fact
    versions: list[Fact]
    sources: list[Line]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a document: how many facts were new, how many known, and what was left out."""

    added: int = 0
    known: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = f"{self.added} new, {self.known} known already."
        return "\n".join((told, *self.problems))


class Searcher(Protocol):
    """Finds facts, best first."""

    async def __call__(
        self, query: str, places: Sequence[str], person: str | None, limit: int
    ) -> list[Fact]: ...


class MemoryDesk:
    """Where people and programs ask for what is remembered, and change it.

    What is not theirs and what is not there are told apart by no answer. What cannot be done is a
    `ParleyError`.
    """

    def __init__(
        self, store: MemoryStore, *, views: Views | None = None, search: Searcher | None = None
    ) -> None:
        self._store = store
        self._views = views
        self._search = search

    # ── looking ──

    async def listing(self, whose: Whose, *, limit: int | None = None) -> list[Fact]:
        return await self._store.facts(whose.places, person=whose.person, limit=limit)

    async def all_there_ever_was(self, whose: Whose) -> list[Fact]:
        """Also what is no longer so: it is kept to be taken back."""
        return await self._store.facts(whose.places, person=whose.person, states=_EVER)

    async def search(self, query: str, whose: Whose, *, limit: int = 10) -> list[Fact]:
        if self._search is not None:
            return await self._search(query, whose.places, whose.person, limit)
        return await self._store.search_facts(query, whose.places, person=whose.person, limit=limit)

    async def fact(self, id: int, whose: Whose) -> Fact:
        fact = await self._theirs(id, whose)
        if fact is None:
            raise ParleyError(f"There is no fact {id} here.")
        return fact

    async def why(self, id: int, whose: Whose) -> Why:
        fact = await self.fact(id, whose)
        versions = [each for each in await self._store.versions_of(id) if whose.has(each)]
        sources = await self._store.sources_of(id)
        return Why(
            fact, versions, [line for line in sources if whose.person in (None, line.person)]
        )

    # ── changing ──

    async def add(
        self,
        place: str,
        text: str,
        *,
        kind: str = "note",
        by: str,
        person: str,
        origin: Origin,
        dedupe: str | None = None,
        turn: int | None = None,
        outside: str = "",
    ) -> Fact:
        """The fact as it is now: a new one, or the one that said the same."""
        new = _from_outside(NewFact(worded(text), kind=kind_named(kind), person=person), outside)
        edit = Edit(adds=(new,))
        commit = await self._remember(place, edit, by, origin, dedupe=dedupe, turn=turn)
        for change in commit.changes:
            if change.action in ("added", "merged"):
                return await self._as_it_is(change.fact)
        form = normal_form(new.text)
        for fact in await self._store.facts([place]):
            if normal_form(fact.text) == form:
                return fact
        raise ParleyError("That was forgotten since; say it again to have it remembered.")

    async def change(
        self,
        id: int,
        text: str,
        whose: Whose,
        *,
        by: str,
        origin: Origin,
        kind: str | None = None,
        dedupe: str | None = None,
        turn: int | None = None,
        outside: str = "",
    ) -> Fact:
        """Other words for a fact; where those are known already it becomes one with them."""
        fact = await self.fact(id, whose)
        named = fact.kind if kind is None else kind_named(kind)
        new = _from_outside(NewFact(worded(text), kind=named, person=fact.person), outside)
        edit = Edit(changes={id: new})
        await self._remember(fact.place, edit, by, origin, dedupe=dedupe, turn=turn)
        return await self._as_it_is(id)

    async def forget(
        self,
        ids: Sequence[int],
        whose: Whose,
        *,
        by: str,
        words: bool = False,
        dedupe: str | None = None,
    ) -> Forgotten:
        """Remove facts for good, from the views at once; all of them or none."""
        ids = list(dict.fromkeys(ids))
        found = [fact for id in ids if (fact := await self._theirs(id, whose)) is not None]
        missing = sorted({*ids} - {fact.id for fact in found})
        if missing and (found or dedupe is None):
            raise ParleyError(f"There is no fact {missing[0]} here.")
        places = {fact.place for fact in found}
        # What a hand wrote about them goes with them.
        await self._merge_views(places)
        gone = await self._store.forget(
            [fact.id for fact in found],
            by=by,
            words=words,
            person=whose.person,
            dedupe=dedupe,
        )
        await self._write_views({*places, *(p for p in whose.places if p == gone.commit.place)})
        if not gone.facts:
            named = f"fact {missing[0]}" if missing else "such thing"
            raise ParleyError(f"There is no {named} here.")
        audit.record(
            "memory.forgotten", who=_who(by), facts=list(gone.facts), messages=gone.messages
        )
        return gone

    # ── commits ──

    async def log(self, whose: Whose, *, limit: int = 50) -> list[Commit]:
        """The newest first. Of a person, those that changed something of theirs."""
        if whose.person is None:
            return await self._store.commits(places=whose.places, limit=limit)
        kept: list[Commit] = []
        before: int | None = None
        while len(kept) < limit:
            found = await self._store.commits(places=whose.places, limit=100, before=before)
            for listed in found:
                commit = await self._store.commit_of(listed.id)
                if commit is not None and _touches(commit, whose):
                    kept.append(replace(_part(commit, whose), changes=()))
            if len(found) < 100:
                break
            before = found[-1].id
        return kept[:limit]

    async def commit(self, id: int, whose: Whose) -> Commit:
        """With its changes; of a person, with those of theirs."""
        commit = await self._store.commit_of(id)
        # One that was made in several places is an owner's.
        is_here = commit is not None and (commit.place or PROFILE) in whose.places
        if commit is None or not is_here or not _touches(commit, whose):
            raise ParleyError(f"There is no change {id} here.")
        return commit if whose.person is None else _part(commit, whose)

    async def undo(self, id: int, whose: Whose, *, by: str) -> Commit:
        """Take a change back; what was changed again since stays as it is."""
        shown = await self.commit(id, whose)
        if shown.undone_by is not None:
            raise ParleyError(f"Change {id} was taken back already, by change {shown.undone_by}.")
        if shown.kind == "forgot":
            raise ParleyError("What was forgotten is gone for good.")
        if shown.kind == "undid":
            raise ParleyError(f"Change {id} took another one back, and stays; say it anew instead.")
        commit = await self._store.commit_of(id)
        if whose.person is not None and (commit is None or not _is_all_of(commit, whose)):
            raise ParleyError(f"Change {id} is not yours alone, so only an owner can take it back.")
        undone = await self._store.undo_commit(id, by=by)
        if undone is None:
            raise ParleyError(f"Change {id} cannot be taken back: nothing of it is left as it was.")
        audit.record("memory.undone", who=_who(by), change=id)
        return undone

    # ── elsewhere ──

    async def export(self, whose: Whose | Sequence[Whose]) -> dict[str, object]:
        """A document of all that is theirs, for `load`."""
        parts = [whose] if isinstance(whose, Whose) else whose
        facts = {fact.id: fact for part in parts for fact in await self.listing(part)}
        audit.record("memory.exported", facts=len(facts))
        return as_document(facts.values())

    async def load(
        self, document: object, place_for: Callable[[str], str] | None = None, *, by: str
    ) -> Imported:
        """Remember what a document tells, each in the place that `place_for` gives.

        What is known is left as it is, so that the same document can be loaded again.
        """
        told, problems = read_document(document)
        by_place: dict[str, list[Told]] = {}
        for each in told:
            place = each.place if place_for is None else place_for(each.place)
            by_place.setdefault(place, []).append(each)
        added = 0
        for place, facts in by_place.items():
            forms = {normal_form(fact.text) for fact in await self._store.facts([place])}
            new: dict[str, NewFact] = {}
            for each in facts:
                form = normal_form(each.fact.text)
                if form not in forms:
                    new.setdefault(form, each.fact)
            adds = tuple(new.values())
            for start in range(0, len(adds), _AT_ONCE):
                edit = Edit(adds=adds[start : start + _AT_ONCE])
                await self._remember(place, edit, by, "import")
            added += len(new)
        return Imported(added, len(told) - added, tuple(problems))

    # ── within ──

    async def _theirs(self, id: int, whose: Whose) -> Fact | None:
        fact = await self._store.fact(id)
        return fact if fact is not None and whose.has(fact) else None

    async def _as_it_is(self, id: int) -> Fact:
        """A fact, or what took its place."""
        fact = await self._store.fact(id)
        while fact is not None and fact.replaced_by is not None:
            fact = await self._store.fact(fact.replaced_by)
        if fact is None:
            raise ParleyError("That was forgotten since; say it again to have it remembered.")
        return fact

    async def _remember(
        self,
        place: str,
        edit: Edit,
        by: str,
        origin: Origin,
        *,
        dedupe: str | None = None,
        turn: int | None = None,
    ) -> Commit:
        kind = _KINDS[origin]
        commit = await self._store.remember(
            place, edit, by=by, origin=origin, kind=kind, dedupe=dedupe, turn=turn
        )
        # What it says is not repeated here, where nobody could forget it.
        audit.record("memory.changed", who=_who(by), way=origin, change=commit.id, place=place)
        return commit

    async def _merge_views(self, places: set[str]) -> None:
        if self._views is not None:
            for place in sorted(places):
                await self._views.merge_place(place)

    async def _write_views(self, places: set[str]) -> None:
        """What cannot be written now is behind, and told and tried again by the next sync."""
        if self._views is not None:
            for place in sorted(places):
                await self._views.write_place(place, even_if_unclear=True)


def _who(by: str) -> str:
    """For the audit log: `owner` is whoever is at the command line."""
    return "" if by == "owner" else by


def _from_outside(new: NewFact, outside: str) -> NewFact:
    """What the agent may have read somewhere is less sure than what a person says."""
    return replace(new, outside=outside, confidence=OUTSIDE_CONFIDENCE) if outside else new


def _of(change: Change, whose: Whose) -> bool:
    return any(fact is not None and whose.has(fact) for fact in (change.before, change.after))


def _touches(commit: Commit, whose: Whose) -> bool:
    return whose.person in (None, commit.by) or any(_of(each, whose) for each in commit.changes)


def _is_all_of(commit: Commit, whose: Whose) -> bool:
    return commit.folded is None and all(_of(each, whose) for each in commit.changes)


def _part(commit: Commit, whose: Whose) -> Commit:
    """Without what others said, and without the summary of what they all said."""
    changes = tuple(each for each in commit.changes if _of(each, whose))
    return replace(commit, summary=None, changes=changes)
