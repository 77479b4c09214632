"""A command line that cannot be understood: one sentence that says what to type instead."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import typer

__all__ = ["UsageError", "usage_sentence"]

# Typer brings a click of its own or uses the installed one; this is the right class of either.
_bases: Final = typer.BadParameter.__mro__
UsageError: Final[type[Any]] = next(base for base in _bases if base.__name__ == "UsageError")

# What people type from habit, and the words that Parley may have for it.
_HABITS: Final = {
    "start": ("run",),
    "serve": ("run",),
    "up": ("run",),
    "ps": ("status", "list"),
    "info": ("status", "show", "list"),
    "ls": ("list",),
    "show": ("list", "get"),
    "new": ("create",),
    "make": ("create",),
    "add": ("create", "install"),
    "rm": ("remove", "delete", "revoke"),
    "delete": ("remove", "revoke"),
    "remove": ("delete", "revoke"),
    "uninstall": ("remove",),
    "get": ("install", "show"),
    "download": ("install",),
    "pull": ("install",),
    "fetch": ("install",),
    "select": ("use",),
    "switch": ("use",),
    "signin": ("login",),
    "signout": ("logout",),
}


def usage_sentence(error: Any) -> str:
    """What is wrong with the command line, and what would be right."""
    context = error.ctx
    path = context.command_path if context is not None else "parley"
    commands = getattr(context.command, "commands", None) if context is not None else None
    unknown = _unknown_word(error)
    if commands is not None and unknown is not None:
        return _unknown_command(path, unknown, list(commands))
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option:
        known = [name for each in context.command.params for name in each.opts] if context else []
        near = get_close_matches(option, known, n=1)
        more = f"did you mean {near[0]}?" if near else f"see `{path} --help`."
        return f"`{path}` has no option {option}; {more}"
    if type(error).__name__ == "MissingParameter" and error.param is not None:
        name = error.param.name.upper()
        wanted = name if error.param.param_type_name == "argument" else error.param.opts[0]
        return f"`{path}` needs {wanted}; see `{path} --help`."
    said = " ".join(str(error.format_message()).split()).rstrip(".")
    return f"{said}; see `{path} --help`."


def _unknown_word(error: Any) -> str | None:
    """The word that is no command; click has only the sentence for it."""
    said = str(error.message)
    return said.split("'")[1] if said.startswith("No such command '") else None


def _unknown_command(path: str, word: str, commands: list[str]) -> str:
    usual = [name for name in _HABITS.get(word, ()) if name in commands]
    near = usual or get_close_matches(word, commands, n=1)
    if near:
        return f"There is no `{path} {word}`; use `{path} {near[0]}`."
    return f"There is no `{path} {word}`; there are {', '.join(sorted(commands))}."
