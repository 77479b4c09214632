"""What is remembered in a place, edited as a page.

The editor gets a copy, and not the file itself: a gateway that runs may write that anew meanwhile.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from parley.cli._editor import opened_in_editor
from parley.cli._memory_home import BY, Asked, with_memory
from parley.cli._memory_options import there
from parley.cli._plain import one_line, plain
from parley.cli._shared import fail
from parley.memory.desk import diff_of
from parley.memory.view_text import Unclear, merge, render
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.cli._memory_home import Memory

__all__ = ["edit_page"]


def edit_page(fact: int | None, asked: Asked) -> None:
    """Open the page on which the fact is, or that of the place that was asked for."""

    async def prepare(memory: Memory) -> tuple[str, Path, str]:
        if fact is None:
            place = await memory.place(asked)
        else:
            place = (await memory.desk.fact(fact, await memory.everything())).place
        facts = await memory.store.facts([place])
        return place, memory.views.file_of(place), render(place, facts)

    place, view, before = there(with_memory(prepare, make=True))
    folder = Path(tempfile.mkdtemp(prefix="parley-"))  # for its owner alone
    copy = folder / view.name
    keep = False
    try:
        _write(copy, before)
        if (wrong := opened_in_editor(copy)) is not None:
            fail(f"{wrong[:-1]}; nothing was changed.")
        keep = copy.exists()
        _merge(place, before, _read(copy), copy)
        keep = False
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _merge(place: str, before: str, edited: str, copy: Path) -> None:
    async def take_in(memory: Memory) -> tuple[str, tuple[str, ...]]:
        """What changed, as a diff; and what of it was left out."""
        found = merge(before, edited, await memory.store.facts([place]))
        if found.is_empty:
            return "", found.problems
        commit = await memory.store.remember(
            place,
            found.edit,
            by=BY,
            origin="hand",
            kind="edited",
            note=f"{copy.name} was edited by hand",
        )
        await memory.merge()
        return diff_of(commit), found.problems

    try:
        diff, problems = there(with_memory(take_in, make=True))
    except ParleyError as error:
        why = one_line(str(error), longest=400).rstrip(".")
        reason = f", for {why}" if isinstance(error, Unclear) else f": {why}"
        fail(f"Nothing was changed{reason}; your page is kept in {copy}.")
    for problem in problems:
        typer.echo(f"parley: {one_line(problem, longest=400)}", err=True)
    typer.echo(f"{plain(diff).strip()}\nIt is remembered so." if diff else "Nothing changed.")


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        fail("The page was deleted in the editor; nothing was changed.")
    except (OSError, ValueError):
        fail(f"{file} is not UTF-8 text any more; nothing was changed.")
