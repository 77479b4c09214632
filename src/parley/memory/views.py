"""The files in which people read and edit what is remembered, kept in step with the store.

A hand's edit is what differs between a file and its *base*: the text that was last written there,
which the store keeps. It is taken into the store before the file is written again. Writing takes
three steps: the store notes the new text beside the base, the file is replaced, the new text
becomes the base. Whoever is stopped in between leaves a file that is one of the two texts, or a
hand's edit of one of them; both are compared then, and nothing is taken for an edit that is in
either.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from parley.config.errors import shown
from parley.memory.view_files import Stamp, ViewFiles
from parley.memory.view_text import Merged, Unclear, is_newer, merge, render
from parley.memory.wording import flat
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE, MemoryStore, View

__all__ = ["Views"]

# No page has it in it: all white space of a fact is a single space.
_BETWEEN: Final = "\f"
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class _Looked:
    """A file whose edits are in the store, and the texts that were written there before."""

    text: str | None
    stamp: Stamp
    bases: tuple[str, ...]
    version: int
    problems: tuple[str, ...]
    is_unclear: bool

    @property
    def may_be(self) -> tuple[str, ...]:
        """What the file may be an edit of. Without any, an empty page: nothing was removed."""
        if self.text is not None and self.text in self.bases:
            return (self.text,)
        return self.bases or ("",)


class Views:
    """Every place's file beneath one folder. One is read or written at a time."""

    def __init__(self, folder: Path, store: MemoryStore) -> None:
        self._files = ViewFiles(folder)
        self._store = store
        self._looked: dict[str, Stamp] = {}
        self._unclear: dict[str, str] = {}
        self._turn = asyncio.Lock()

    def file_of(self, place: str) -> Path:
        return self._files.path(place)

    async def sync(self) -> list[str]:
        """Take in what hands changed, then write what is behind; what went wrong, in sentences."""
        places = [record.place for record in await self._store.places()]
        problems: list[str] = []
        for place in await asyncio.to_thread(self._touched, places):
            problems += await self._tried(self._renew, place)
        for record in await self._store.places(unwritten=True):
            problems += await self._tried(self._renew, record.place)
        return list(dict.fromkeys((*problems, *self._unclear.values())))

    async def merge_place(self, place: str) -> list[str]:
        """Take in what a hand changed in the file of this place."""
        return await self._tried(self._take_in, place)

    async def write_place(self, place: str, *, even_if_unclear: bool = False) -> list[str]:
        """Write the file anew, a hand's edit merged before; without facts there is no file.

        A file that does not say what its hand meant is left as it is, unless `even_if_unclear`:
        what was forgotten must not stay in it.
        """
        return await self._tried(self._overwrite if even_if_unclear else self._renew, place)

    def _touched(self, places: list[str]) -> list[str]:
        """Where a file is not as it was when it was last looked at. Blocks.

        The profile's may be there before anything is remembered.
        """
        if PROFILE not in places and self._files.stamp(PROFILE) is not None:
            places = [PROFILE, *places]
        return [
            place
            for place in places
            if place not in self._looked or self._files.stamp(place) != self._looked[place]
        ]

    async def _tried(self, step: Callable[[str], Awaitable[list[str]]], place: str) -> list[str]:
        """One place that cannot be read or written does not keep the others from it."""
        async with self._turn:
            try:
                return await step(place)
            except ParleyError as error:
                return [str(error)]

    async def _take_in(self, place: str) -> list[str]:
        return list((await self._look(place)).problems)

    async def _renew(self, place: str) -> list[str]:
        return await self._write(place, even_if_unclear=False)

    async def _overwrite(self, place: str) -> list[str]:
        return await self._write(place, even_if_unclear=True)

    async def _look(self, place: str) -> _Looked:
        """Read a file and take in what a hand changed."""
        text, stamp = await asyncio.to_thread(self._files.read, place)
        view = await self._store.view(place)
        bases = tuple(view.text.split(_BETWEEN)) if view is not None else ()
        version = view.version if view is not None else -1
        problems: tuple[str, ...] = ()
        self._unclear.pop(place, None)
        if text is not None and text not in bases:
            try:
                problems = await self._merge(place, bases, text, version)
            except Unclear as error:
                problems = (self._left(place, error),)
                self._unclear[place] = problems[0]
        self._looked[place] = stamp
        return _Looked(text, stamp, bases, version, problems, place in self._unclear)

    async def _merge(
        self, place: str, bases: tuple[str, ...], text: str, version: int
    ) -> tuple[str, ...]:
        file = self.file_of(place)
        facts = await self._store.facts([place])
        # In a thread: a long page takes a while.
        merged = await asyncio.to_thread(merge, bases, text, facts)
        merged = await self._without_forgotten(place, await self._without_gone(place, merged))
        if not merged.is_empty:
            # Stopped behind this, the same edit is found again: it is made once.
            digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            await self._store.remember(
                place,
                merged.edit,
                by="owner",
                origin="hand",
                kind="edited",
                note=f"{file.name} was edited by hand",
                dedupe=f"view:{place}:{version}:{digest}",
            )
        return tuple(f"{shown(file)}: {problem}" for problem in merged.problems)

    async def _without_forgotten(self, place: str, merged: Merged) -> Merged:
        """An editor that was opened before something was forgotten does not bring it back."""
        gone = {
            words: number
            for words, number in merged.numbers.items()
            if await self._store.is_forgotten(place, words)
        }
        if not gone:
            return merged
        adds = tuple(new for new in merged.edit.adds if new.text not in gone)
        told = (
            f"Line [{number}] was forgotten meanwhile; without its number it is remembered again."
            for number in gone.values()
        )
        edit = replace(merged.edit, adds=adds)
        return replace(merged, edit=edit, problems=(*merged.problems, *told))

    async def _without_gone(self, place: str, merged: Merged) -> Merged:
        """Nor does it bring back what was removed or replaced since, where it was not touched."""
        gone: set[str] = set()
        for words, number in merged.numbers.items():
            fact = await self._store.fact(number)
            if fact is None or fact.place != place or not is_newer(fact, merged.as_of):
                continue
            if flat(fact.text) == words:
                gone.add(words)
        adds = tuple(new for new in merged.edit.adds if new.text not in gone)
        return replace(merged, edit=replace(merged.edit, adds=adds))

    async def _write(self, place: str, *, even_if_unclear: bool) -> list[str]:
        problems: list[str] = []
        for _ in range(_TRIES):
            looked = await self._look(place)
            problems += looked.problems
            if looked.is_unclear and not even_if_unclear:
                return problems
            # The version first: what changes behind it makes the file behind again.
            (version,) = await self._store.place_versions([place])
            facts = await self._store.facts([place])
            text = render(place, facts) if facts else None
            base = text or ""
            if looked.text != text:
                both = _BETWEEN.join((*looked.may_be, base))
                await self._store.put_view(place, View(both, looked.version))
                if not await asyncio.to_thread(self._put, place, text, looked.stamp):
                    continue
                self._looked.pop(place, None)
                self._unclear.pop(place, None)
            if looked.text != text or looked.bases != (base,) or looked.version != version:
                await self._store.put_view(place, View(base, version))
            return problems
        return [*problems, f"{shown(self.file_of(place))} keeps changing; it is written later."]

    def _put(self, place: str, text: str | None, seen: Stamp) -> bool:
        if text is None:
            return self._files.remove(place, seen=seen)
        return self._files.replace(place, text, seen=seen)

    def _left(self, place: str, error: Unclear) -> str:
        return (
            f"{shown(self.file_of(place))} was left as it is, for {error}; "
            "put that right, or delete the file to have it written anew."
        )
