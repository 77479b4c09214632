"""`--profile NAME`, on every command: said before the verb, after it, or at the end."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from parley.cli._shared import choose_profile
from parley.profiles import scan_profiles
from parley.protocol import ParleyError

__all__ = ["add_everywhere", "profile_names"]


def profile_names(incomplete: str) -> list[str]:
    """Names for the shell to complete."""
    try:
        found = scan_profiles(report=lambda _: None)
    except (ParleyError, OSError):
        return []
    return [profile.name for profile in found if profile.name.startswith(incomplete)]


def _chosen(value: str | None) -> str | None:
    if value is not None:
        choose_profile(value.strip())
    return value


def _bare(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Work on this profile.",
            callback=_chosen,
            expose_value=False,
            autocompletion=profile_names,
        ),
    ] = None,
) -> None: ...


def add_everywhere(command: object) -> None:
    """Give the option to a command and to all below it."""
    bare = typer.Typer(add_completion=False)
    bare.command()(_bare)
    [option] = [each for each in get_command(bare).params if each.name == "profile"]
    _add(command, option)


def _add(command: object, option: object) -> None:
    if isinstance(command, TyperCommand | TyperGroup):
        command.params.append(option)  # type: ignore[arg-type]
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _add(below, option)
