"""`parley memory add | edit | forget | export | import | undo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli._memory_options import (
    Chat,
    Person,
    ProfileFacts,
    are_ids,
    terminal_width,
    there,
)
from parley.cli._plain import escaped, one_line, plain
from parley.cli._shared import fail
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parley.cli._memory_home import Memory
    from parley.memory.desk import Imported
    from parley.storage.memory import Commit, Fact, Forgotten

__all__ = ["register"]

_LONGEST = 400
_MOST_TOLD = 10


def register(app: typer.Typer) -> None:
    app.command("add")(add)
    app.command("edit")(edit)
    app.command("forget")(forget)
    app.command("export")(export)
    app.command("import")(import_)
    app.command("undo")(undo)


def add(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="What to remember.")],
    *,
    person: Person = None,
    chat: Chat = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Such as preference, person or note.")
    ] = "note",
) -> None:
    """Remember something: for everyone here, or of one person or chat."""
    from parley.cli._memory_home import BY, Asked, with_memory
    from parley.cli._memory_view import place_words

    asked = Asked(person, chat)

    async def change(memory: Memory) -> tuple[Fact, Mapping[str, str]]:
        place = await memory.place(asked)
        added = await memory.desk.add(
            place, " ".join(words), kind=kind, by=BY, person="", origin="hand"
        )
        await memory.merge()
        return added, await memory.names()

    fact, names = there(with_memory(change, make=True))
    typer.echo(f"{fact.id}  {one_line(fact.text, longest=_LONGEST)}")
    typer.echo(f"Remembered of {place_words(fact.place, names)}.")


def edit(
    fact: Annotated[
        int | None,
        typer.Argument(
            metavar="ID", help="A fact; its whole file without WORDS.", callback=are_ids
        ),
    ] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="What it says from now on.")
    ] = None,
    *,
    person: Person = None,
    chat: Chat = None,
) -> None:
    """Say a fact anew, or open your editor on all that is remembered.

    Without an ID, --person or --chat it is the profile's.
    """
    from parley.cli._memory_edit import edit_page
    from parley.cli._memory_home import Asked

    asked = Asked(person, chat)
    if fact is not None and not asked.is_all:
        fail("Give an ID, or --person or --chat, not both.")
    if fact is not None and words:
        _say_anew(fact, " ".join(words))
    else:
        edit_page(fact, asked)


def _say_anew(id: int, words: str) -> None:
    from parley.cli._memory_home import BY, with_memory

    async def change(memory: Memory) -> tuple[Fact, Fact]:
        whose = await memory.everything()
        before = await memory.desk.fact(id, whose)
        after = await memory.desk.change(id, words, whose, by=BY, origin="hand")
        await memory.merge()
        return before, after

    before, after = there(with_memory(change))
    typer.echo(f"{after.id}  {one_line(after.text, longest=_LONGEST)}")
    typer.echo(f"Before: {one_line(before.text, longest=_LONGEST)}")


def forget(
    facts: Annotated[
        list[int] | None,
        typer.Argument(metavar="ID", help="What `list` shows first.", callback=are_ids),
    ] = None,
    *,
    person: Person = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="All that is remembered of the --person.")
    ] = False,
    words: Annotated[
        bool, typer.Option("--words", help="Also blank the messages it came from.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget facts for good.

    They leave the log, the files, the index and the summaries too, and do not come back.
    """
    from parley.cli._memory_home import BY, EVERY_STATE, Asked, with_memory
    from parley.cli._memory_view import as_list, forgotten_words

    if (person is not None) is not everything or bool(facts) is everything:
        fail("Give the ids of what to forget, or `--person PERSON --everything`.")
    asked = Asked(person)

    async def find(memory: Memory) -> tuple[list[Fact], Mapping[str, str]]:
        if everything:
            found = await memory.facts(await memory.parts(asked), EVERY_STATE)
        else:
            whose = await memory.everything()
            found = [await memory.desk.fact(id, whose) for id in dict.fromkeys(facts or ())]
        return found, await memory.names()

    async def remove(memory: Memory) -> Forgotten:
        whose = await memory.everything()
        gone = await memory.desk.forget([fact.id for fact in found], whose, by=BY, words=words)
        await memory.merge()
        return gone

    found, names = there(with_memory(find))
    if not found:
        typer.echo("Nothing is remembered of them.")
        return
    if not yes:
        typer.echo(as_list(found, names, width=terminal_width()), nl=False)
        _must_mean_it(len(found), words=words)
    typer.echo(forgotten_words(there(with_memory(remove))))


def _must_mean_it(count: int, *, words: bool) -> None:
    if not sys.stdin.isatty():
        fail("Say that you mean it with --yes: what is forgotten cannot be brought back.")
    what = "this" if count == 1 else f"these {count:,}"
    also = " and blank the messages" if words else ""
    if not typer.confirm(f"Forget {what}{also}, for good?"):
        typer.echo("Nothing was forgotten.")
        raise typer.Exit(1)


def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="`-` or none: to stdout.")
    ] = None,
    *,
    person: Person = None,
    chat: Chat = None,
    profile_facts: ProfileFacts = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write what is remembered as JSON, for `import`."""
    from parley.cli._memory_home import Asked, with_memory
    from parley.cli._private_file import write_private

    asked = Asked(person, chat, profile_facts)

    async def find(memory: Memory) -> dict[str, object]:
        return await memory.desk.export(await memory.parts(asked))

    document = there(with_memory(find))
    text = escaped(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"
    if file is None or str(file) == "-":
        typer.echo(text, nl=False)
        return
    write_private(file.expanduser(), text, force=force)
    typer.echo(f"What is remembered is in {file}.")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; `-`: stdin.")],
) -> None:
    """Remember what was exported. What is known already becomes one with it."""
    from parley.cli._memory_home import BY, with_memory

    document = _read_document(file)

    async def change(memory: Memory) -> Imported:
        try:
            loaded = await memory.desk.load(document, by=BY)
        except ParleyError as error:  # which may tell of several faults, a line each
            raise ParleyError(one_line(str(error), longest=_LONGEST)) from error
        await memory.merge()
        return loaded

    loaded = there(with_memory(change, make=True))
    for problem in loaded.problems[:_MOST_TOLD]:
        typer.echo(f"parley: {one_line(problem, longest=_LONGEST)}", err=True)
    refused = len(loaded.problems)
    left_out = f", {refused:,} left out" if refused else ""
    typer.echo(f"Imported: {loaded.added:,} new, {loaded.known:,} known already{left_out}.")


def _read_document(file: Path) -> object:
    try:
        if str(file) == "-":
            return json.loads(sys.stdin.read())
        return json.loads(file.expanduser().read_text(encoding="utf-8-sig"))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}.")
    except (ValueError, RecursionError):
        fail(f"{file} is not JSON; give a file that `parley memory export` wrote.")


def undo(
    commit: Annotated[
        int, typer.Argument(metavar="ID", help="What `log` shows first.", callback=are_ids)
    ],
) -> None:
    """Take a change back. What was changed again since stays, and what was forgotten stays gone."""
    from parley.cli._memory_home import BY, with_memory
    from parley.memory.desk import diff_of

    async def change(memory: Memory) -> tuple[Commit, str]:
        undone = await memory.desk.undo(commit, await memory.everything(), by=BY)
        await memory.merge()
        return undone, diff_of(undone)

    undone, diff = there(with_memory(change))
    if diff:
        typer.echo(plain(diff).strip("\n"))
    typer.echo(f"Change {commit} is taken back, by change {undone.id}.")
