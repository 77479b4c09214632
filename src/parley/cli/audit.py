"""`parley audit`: read the audit log, follow it, and check that its chain is whole."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Annotated

import typer

from parley.cli._shared import asked_profile, current_profile, fail, print_json

__all__ = ["register"]

_SPAN = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(parent: typer.Typer) -> None:
    parent.command("audit")(audit)


def audit(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with each record as it is written.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the chain of hashes of the whole log.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="HASH", help="With --verify: a head that you noted elsewhere."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="30m, 12h, 7d, or 2031-01-31[T09:00]."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="LIST", help="Such as approval, tool.called or key."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line a record.")] = False,
) -> None:
    """Show what was done here, by whom and from where; the newest records, the last one last.

    With --profile only those of that profile.
    """
    from parley.audit import audit_folder
    from parley.audit.reading import RecordFilter, follow_records, newest_records
    from parley.cli._audit_view import as_json_record, as_line

    folder = audit_folder(current_profile())
    if head is not None and not verify:
        fail("`--head` belongs to `--verify`: parley audit --verify --head HASH", code=2)
    if verify:
        _verify(head, as_json=as_json)
        return
    kinds = tuple(word.strip() for word in (kind or "").split(",") if word.strip())
    wanted = RecordFilter(asked_profile(), kinds, _moment(since))

    show = as_json_record if as_json else as_line
    newest = newest_records(folder, RecordFilter(), 1)
    records = newest_records(folder, wanted, limit)
    for record in records:
        typer.echo(show(record))
    if not records and not follow and not as_json:
        typer.echo("Nothing is recorded." if kinds or since else "Nothing is recorded yet.")
    if follow:
        after = max((each.number for each in (*newest, *records)), default=0)
        for record in follow_records(folder, wanted, after):
            typer.echo(show(record))


def _verify(head: str | None, *, as_json: bool) -> None:
    from parley.audit import audit_folder
    from parley.audit.verify import verify_log
    from parley.cli._audit_view import as_report, verdict_record

    folder = audit_folder(current_profile())
    verdict = verify_log(folder, noted=head)
    if as_json:
        print_json(verdict_record(verdict, folder))
    else:
        typer.echo(as_report(verdict, folder, noted=head is not None), nl=False)
    if not verdict.ok:
        raise typer.Exit(1)


def _moment(text: str | None) -> float | None:
    """The moment that `30m`, `12h`, `7d` ago or a date and time here means."""
    if text is None:
        return None
    if span := _SPAN.fullmatch(text.strip().lower()):
        return time.time() - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        fail("--since wants a span such as 30m, 12h or 7d, or a date such as 2031-01-31.", code=2)
