"""`parley doctor`: what is wrong here, and the exact command that mends it. It changes nothing."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli._shared import current_profile, print_json

if TYPE_CHECKING:
    from parley.cli._checks import Finding, Level
    from parley.profiles import Profile

__all__ = ["register"]

_MARKS: dict[Level, str] = {"ok": "✓", "note": "!", "fault": "✗"}
_PLAIN_MARKS: dict[Level, str] = {"ok": "+", "note": "!", "fault": "x"}
_COLOURS: dict[Level, str] = {"ok": "green", "note": "yellow", "fault": "red"}


def register(parent: typer.Typer) -> None:
    parent.command("doctor")(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Leave out the live call to the provider.")
    ] = False,
) -> None:
    """Check everything Parley stands on; say what is wrong and how to mend it.

    Ends with 1 when there is a fault. Nothing is changed.
    """
    findings = asyncio.run(_examine(current_profile(), offline=offline, aloud=not as_json))
    faults = sum(finding.level == "fault" for finding in findings)
    notes = sum(finding.level == "note" for finding in findings)
    if as_json:
        checks = [asdict(finding) for finding in findings]
        print_json({"ok": not faults, "faults": faults, "notes": notes, "checks": checks})
    else:
        typer.echo(f"\n{_summary(faults, notes)}")
    if faults:
        raise typer.Exit(1)


async def _examine(profile: Profile, *, offline: bool, aloud: bool) -> list[Finding]:
    from parley.cli._checks import examine

    findings: list[Finding] = []
    async for found in examine(profile, offline=offline):
        findings += found
        if aloud:
            for finding in found:
                _show(finding)
            sys.stdout.flush()
    return findings


def _show(finding: Finding) -> None:
    mark = (_MARKS if _can_show("✓✗→") else _PLAIN_MARKS)[finding.level]
    mark = typer.style(mark, fg=_COLOURS[finding.level])
    typer.echo(f"{mark} {finding.check}: {finding.what}")
    if finding.mend:
        typer.echo(f"    {'→' if _can_show('→') else '>'} {finding.mend}")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _summary(faults: int, notes: int) -> str:
    if not faults and not notes:
        return "All is well."
    counts = [
        f"{number} {noun if number == 1 else noun + 's'}"
        for number, noun in ((faults, "fault"), (notes, "note"))
        if number
    ]
    return f"{' and '.join(counts)}; each arrow leads to what mends it."
