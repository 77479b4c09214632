"""`parley sessions list | show | export | delete`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from parley import audit
from parley.cli._named import session_named
from parley.cli._plain import escaped, one_line
from parley.cli._private_file import write_private
from parley.cli._shared import current_profile, fail
from parley.protocol import ParleyError, count

if TYPE_CHECKING:
    from parley.profiles import Profile
    from parley.storage.contract import Entry, SessionRecord, Store

__all__ = ["register"]

T = TypeVar("T")

_NONE_YET = "There are no sessions yet; begin one with: parley chat"

app = typer.Typer(help="Look at, keep and remove what was said.", no_args_is_help=True)


class Format(StrEnum):
    md = "md"
    json = "json"


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="sessions")


def _known_ids(incomplete: str) -> list[tuple[str, str]]:
    """Ids for the shell to complete; whatever goes wrong, a shell is not the place to say so."""

    async def find(store: Store) -> list[SessionRecord]:
        return await store.find_sessions(incomplete.strip())

    try:
        found = asyncio.run(_with_store(current_profile(), find)) or []
    except (ParleyError, OSError):
        return []
    return [(record.id, one_line(record.title or record.lane, longest=60)) for record in found]


_Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A session's id, or the beginning of it.", autocompletion=_known_ids
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: _AsJson = False,
) -> None:
    """Show the sessions, the last used one first. `*` marks those that a chat goes on with."""
    from parley.cli._transcript import as_list, session_record

    async def find(store: Store) -> list[SessionRecord]:
        found = await store.sessions(limit=10 * limit)
        return [record for record in found if record.turns or record.title][:limit]

    records = asyncio.run(_with_store(current_profile(), find)) or []
    if as_json:
        _print_json([session_record(record) for record in records])
    elif not records:
        typer.echo(_NONE_YET)
    else:
        typer.echo(as_list(records), nl=False)


@app.command("show")
def show(session: _Id, as_json: _AsJson = False) -> None:
    """Show all that was said in a session, without what was undone."""
    from parley.cli._transcript import as_record, as_text

    record, entries = _read(session)
    if as_json:
        _print_json(as_record(record, entries))
        return
    for piece in as_text(record, entries):
        typer.echo(piece, nl=False)


@app.command("export")
def export(
    session: _Id,
    kind: Annotated[
        Format, typer.Option("--format", "-f", help="Markdown to read, or JSON with everything.")
    ] = Format.md,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, not to stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write all that was said in a session, without what was undone."""
    from parley.cli._transcript import as_markdown, as_record

    record, entries = _read(session)
    audit.record("session.exported", session=record.id, messages=len(entries))
    if kind is Format.json:
        text = json.dumps(as_record(record, entries), ensure_ascii=False, indent=2)
        text = escaped(text) + "\n"
    else:
        text = "".join(as_markdown(record, entries))
    if output is None or str(output) == "-":
        typer.echo(text, nl=False)
        return
    write_private(output.expanduser(), text, force=force)
    typer.echo(f"Session {record.id} is in {output} ({count(len(entries), 'message')}).")


@app.command("delete")
def delete(
    session: _Id,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a session and all that was said in it, for good."""
    profile = current_profile()

    async def find(store: Store) -> SessionRecord:
        return await session_named(store, session)

    async def remove(store: Store) -> bool:
        return await store.delete_session(record.id)

    record = _found(asyncio.run(_with_store(profile, find)), session)
    if not yes:
        if not sys.stdin.isatty():
            fail(f"Say that you mean it: `parley sessions delete {record.id} --yes`.")
        title = one_line(record.title or "", longest=60)
        named = f"{record.id} ({title})" if title else record.id
        if not typer.confirm(
            f"Delete session {named} with {count(record.turns, 'turn')}, for good?"
        ):
            typer.echo("Nothing was deleted.")
            raise typer.Exit(1)
    if not asyncio.run(_with_store(profile, remove)):
        fail(_why_not_deleted(profile, record))
    audit.record("session.deleted", session=record.id)
    typer.echo(f"Session {record.id} is deleted.")


def _why_not_deleted(profile: Profile, record: SessionRecord) -> str:
    from parley.gateway.home import holder_of

    async def find(store: Store) -> list[SessionRecord]:
        return await store.find_sessions(record.id)

    if not asyncio.run(_with_store(profile, find)):
        return f"Session {record.id} is gone: it was deleted just now."
    if holder_of(profile) is None:
        return (
            f"Session {record.id} has a turn that was broken off and goes on when Parley starts; "
            "let `parley gateway run` finish it, then try again."
        )
    return (
        f"Session {record.id} is being answered; wait for the reply, or send /stop in its chat, "
        "then try again."
    )


def _read(prefix: str) -> tuple[SessionRecord, list[Entry]]:
    async def read(store: Store) -> tuple[SessionRecord, list[Entry]]:
        record = await session_named(store, prefix)
        return record, await store.transcript(record.id, whole=True)

    return _found(asyncio.run(_with_store(current_profile(), read)), prefix)


async def _with_store(profile: Profile, work: Callable[[Store], Awaitable[T]]) -> T | None:
    """What `work` finds in the store; None when there is no store yet."""
    from parley.cli._stored import stored

    async with stored(profile) as store:
        return None if store is None else await work(store)


def _found(value: T | None, prefix: str) -> T:
    if value is None:
        fail(f"There is no session {one_line(prefix, longest=40)}: none has been begun here yet.")
    return value


def _print_json(value: object) -> None:
    """JSON for scripts that does no harm on a terminal either."""
    typer.echo(escaped(json.dumps(value, ensure_ascii=False)))
