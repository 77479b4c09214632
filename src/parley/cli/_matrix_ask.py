"""The questions of `parley matrix login`, and what is read from standard input instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, TypeAlias

import typer

from parley.cli._shared import fail

__all__ = ["Way", "ask", "ask_hidden", "at_terminal", "pick_way", "read_line"]

Way: TypeAlias = Literal["password", "token", "sso"]

_LABELS: dict[Way, str] = {
    "password": "with its password",
    "sso": "with single sign-on, in a browser",
    "token": "with an access token that you have",
}


def at_terminal() -> bool:
    return sys.stdin.isatty()


def read_line(what: str) -> str:
    """One line of standard input."""
    line = sys.stdin.readline().rstrip("\r\n")
    if not line.strip():
        fail(f"Nothing came on standard input where the {what} was expected.")
    return line


def ask(label: str, *, default: str | None = None) -> str:
    answer = typer.prompt(label, default=default, show_default=bool(default), err=True)
    return str(answer).strip()


def ask_hidden(label: str, *, empty: bool = False) -> str:
    """Something that nobody beside may read; `empty`: Enter alone is an answer."""
    default = "" if empty else None
    answer = typer.prompt(label, default=default, hide_input=True, show_default=False, err=True)
    return str(answer)


def pick_way(offered: Sequence[Way]) -> Way:
    """How to log in, of the ways that the homeserver offers."""
    if len(offered) == 1:
        return offered[0]
    typer.echo("How shall it log in?", err=True)
    for number, way in enumerate(offered, start=1):
        typer.echo(f"  {number}. {_LABELS[way]}", err=True)
    while True:
        answer = ask("Number", default="1")
        if answer.isdecimal() and 1 <= int(answer) <= len(offered):
            return offered[int(answer) - 1]
        typer.echo(f"A number from 1 to {len(offered)} is wanted.", err=True)
