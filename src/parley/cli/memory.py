"""`parley memory list | search | show | why | log`, and what changes it: `_memory_changes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli import _memory_changes
from parley.cli._memory_options import (
    NOTHING_YET,
    AsJson,
    Chat,
    FactId,
    Limit,
    Person,
    ProfileFacts,
    are_ids,
    print_json,
    terminal_width,
    there,
)
from parley.cli._plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parley.cli._memory_home import Memory
    from parley.cli._memory_view import Reasons
    from parley.storage.memory import Commit, Fact

__all__ = ["register"]

_MOST_COMMITS = 1_000

app = typer.Typer(help="See and change what is remembered, and why.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="memory")


@app.command("list")
def list_(
    *,
    person: Person = None,
    chat: Chat = None,
    profile_facts: ProfileFacts = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also what was replaced or is no longer so.")
    ] = False,
    limit: Limit = 200,
    as_json: AsJson = False,
) -> None:
    """Show what is remembered, by where it is used. With a limit, the newest."""
    from parley.cli._memory_home import EVERY_STATE, Asked, with_memory
    from parley.cli._memory_records import fact_record
    from parley.cli._memory_view import as_list

    asked = Asked(person, chat, profile_facts)
    states = EVERY_STATE if every else EVERY_STATE[:1]

    async def find(memory: Memory) -> tuple[list[Fact], Mapping[str, str]]:
        return await memory.facts(await memory.parts(asked), states), await memory.names()

    facts, names = with_memory(find) or ([], {})
    newest = {fact.id for fact in sorted(facts, key=lambda fact: (fact.at, fact.id))[-limit:]}
    shown = [fact for fact in facts if fact.id in newest]
    if as_json:
        print_json([fact_record(fact) for fact in shown])
    elif not shown:
        typer.echo(NOTHING_YET if asked.is_all else "Nothing is remembered there.")
    else:
        typer.echo(as_list(shown, names, width=terminal_width()), nl=False)
        if len(shown) < len(facts):
            typer.echo(f"\n{len(facts) - len(shown):,} older ones are not shown; -n shows more.")


@app.command("search")
def search(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help="What it is about.")],
    *,
    person: Person = None,
    chat: Chat = None,
    profile_facts: ProfileFacts = False,
    limit: Limit = 10,
    as_json: AsJson = False,
) -> None:
    """Find what is remembered by its words, the best first."""
    from parley.cli._memory_home import Asked, with_memory
    from parley.cli._memory_records import fact_record
    from parley.cli._memory_view import as_list

    asked = Asked(person, chat, profile_facts)

    async def find(memory: Memory) -> tuple[list[Fact], Mapping[str, str]]:
        found = [
            fact
            for whose in await memory.parts(asked)
            for fact in await memory.desk.search(" ".join(words), whose, limit=limit)
        ]
        return found[:limit], await memory.names()

    facts, names = with_memory(find) or ([], {})
    if as_json:
        print_json([fact_record(fact) for fact in facts])
    elif not facts:
        typer.echo("Nothing that is remembered holds these words.")
    else:
        typer.echo(as_list(facts, names, width=terminal_width()), nl=False)


@app.command("show")
def show(fact: FactId, as_json: AsJson = False) -> None:
    """Show all of one fact, and what it replaced."""
    from parley.cli._memory_home import with_memory
    from parley.cli._memory_records import fact_record
    from parley.cli._memory_view import as_fact

    async def find(memory: Memory) -> tuple[Reasons, Mapping[str, str]]:
        return await _reasons(memory, fact, commits=False), await memory.names()

    reasons, names = there(with_memory(find))
    if as_json:
        replaced = [fact_record(old) for old in reasons.replaced]
        print_json(fact_record(reasons.fact) | {"replaced": replaced})
    else:
        shown = as_fact(reasons.fact, reasons.replaced, names, width=terminal_width())
        typer.echo(shown, nl=False)


@app.command("why")
def why(fact: FactId, as_json: AsJson = False) -> None:
    """Show the messages a fact came from, and what made it."""
    from parley.cli._memory_home import with_memory
    from parley.cli._memory_records import reasons_record
    from parley.cli._memory_view import as_reasons

    async def find(memory: Memory) -> tuple[Reasons, Mapping[str, str]]:
        return await _reasons(memory, fact), await memory.names()

    reasons, names = there(with_memory(find))
    if as_json:
        print_json(reasons_record(reasons))
        return
    for piece in as_reasons(reasons, names, width=terminal_width()):
        typer.echo(piece, nl=False)


_memory_changes.register(app)


@app.command("log")
def log(
    commit: Annotated[
        int | None,
        typer.Argument(metavar="ID", help="Show what this one changed.", callback=are_ids),
    ] = None,
    *,
    person: Person = None,
    chat: Chat = None,
    profile_facts: ProfileFacts = False,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Made from this session; the id's beginning."),
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show what changed, the newest first; with an ID, that change as a diff."""
    from parley.cli._memory_home import Asked, with_memory
    from parley.cli._memory_records import commit_record
    from parley.cli._memory_view import as_log
    from parley.cli._named import session_named
    from parley.memory.desk import diff_of

    asked = Asked(person, chat, profile_facts)

    async def find(memory: Memory) -> tuple[list[Commit], Mapping[str, str]]:
        places = None if asked.is_all else (await memory.place(asked),)
        of = None if session is None else (await session_named(memory.store, session)).id
        found = await memory.store.commits(places=places, session=of, limit=limit)
        return found, await memory.names()

    async def find_one(memory: Memory) -> tuple[Commit, str, Mapping[str, str]]:
        found = await memory.desk.commit(number, await memory.everything())
        return found, diff_of(found), await memory.names()

    if commit is not None:
        number, width = commit, terminal_width()
        one, diff, names = there(with_memory(find_one))
        if as_json:
            print_json(commit_record(one, whole=True))
        else:
            typer.echo(as_log([one], names, width=width), nl=False)
            typer.echo("\n" + (plain(diff).strip("\n") or "No words of it are left to show."))
        return
    commits, names = with_memory(find) or ([], {})
    if as_json:
        print_json([commit_record(each) for each in commits])
    elif not commits:
        typer.echo(NOTHING_YET if asked.is_all and session is None else "Nothing changed there.")
    else:
        typer.echo(as_log(commits, names, width=terminal_width()), nl=False)


async def _reasons(memory: Memory, fact: int, *, commits: bool = True) -> Reasons:
    from parley.cli._memory_view import Reasons

    found = await memory.desk.why(fact, await memory.everything())
    titles: dict[str, str] = {}
    if found.fact.session is not None:
        for record in await memory.store.find_sessions(found.fact.session):
            titles[record.id] = record.title or ""
    return Reasons(
        found.fact,
        found.versions,
        found.sources,
        await _commits_of(memory, found.fact) if commits else (),
        titles,
    )


async def _commits_of(memory: Memory, fact: Fact) -> list[Commit]:
    """Those that made it what it is, the oldest first."""
    return (await memory.store.commits(fact=fact.id, limit=_MOST_COMMITS))[::-1]
