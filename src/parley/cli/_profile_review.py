"""Review of what an import held back: shown in full, and confirmed item by item."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from typing import Final

import typer

from parley.cli._plain import escaped
from parley.cli._shared import print_json
from parley.profiles import Profile
from parley.storage.quarantine import HeldItem, Quarantine

__all__ = ["ask", "decide", "show_held"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:#@-]+")
_WIDEST: Final = 32


def show_held(profile: Profile, *, as_json: bool = False, always: bool = False) -> None:
    """List what waits; nothing is said when nothing does, unless that was asked for."""
    items = Quarantine(profile).items()
    if as_json:
        print_json([{"item": item.name, "kind": item.kind, "what": item.what} for item in items])
    elif items:
        typer.echo("Held back, for it would run, open, send or spend:")
        width = min(max(len(_shown(item.name)) for item in items), _WIDEST)
        for item in items:
            typer.echo(f"  {_shown(item.name):<{width}}  {escaped(item.what)}")
        typer.echo(f"Confirm what you want of it: parley profile review {profile.name}")
    elif always:
        typer.echo(f"Nothing of `{profile.name}` is held back.")


def ask(profile: Profile) -> None:
    """On a terminal: ask about each item. Only a plain yes confirms one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    quarantine = Quarantine(profile)
    chosen: list[HeldItem] = []
    items = quarantine.items()
    for item in items:
        typer.echo(f"\n{_shown(item.name)}\n  {escaped(item.what)}")
        answer = typer.prompt("Allow it? (yes / no / quit)", default="no").strip().lower()
        if answer in {"q", "quit"}:
            break
        if answer in {"y", "yes"}:
            chosen.append(item)
    if chosen:
        quarantine.allow(chosen)
    if items:
        _say_allowed(profile, chosen)


def decide(
    profile: Profile,
    allowed: Sequence[str],
    dropped: Sequence[str],
    *,
    allow_all: bool,
    drop_all: bool,
) -> None:
    """Confirm and remove what was named; all names must be right before anything is done."""
    quarantine = Quarantine(profile)
    removed = quarantine.find(dropped)
    chosen = quarantine.find(allowed)
    others = [item for item in quarantine.items() if item not in (*removed, *chosen)]
    if allow_all:
        chosen += others
    elif drop_all:
        removed += others
    chosen = [item for item in chosen if item not in removed]
    if chosen:
        quarantine.allow(chosen)
        _say_allowed(profile, chosen)
    if removed:
        quarantine.drop(removed)
        typer.echo(f"Removed: {_listed(removed)}")


def _say_allowed(profile: Profile, chosen: Collection[HeldItem]) -> None:
    if not chosen:
        typer.echo(f"Nothing was confirmed; see it again: parley profile review {profile.name}")
        return
    typer.echo(f"Confirmed: {_listed(chosen)}")
    typer.echo("A gateway that serves it now goes by that from its next start on.")


def _listed(items: Collection[HeldItem]) -> str:
    return ", ".join(_shown(item.name) for item in items)


def _shown(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else escaped(json.dumps(name))
