"""Write docs/reference/ from the code: `python -m docs.generate`. A test fails when they differ."""

from __future__ import annotations

import json
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from parley.cli import VERBS, build_command
from parley.config.env import OPTIONAL_ENV_VARS, EnvVar
from parley.config.schema import Leaf, Section, Table, env_name, leaves, spot_at
from parley.config.settings import Settings

__all__ = ["REFERENCE", "main", "pages"]

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- Made from the code by `python -m docs.generate`: change it there. -->\n"
_WIDTH = 80


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")


def pages() -> dict[str, str]:
    """Every page of the reference, by its file name."""
    made = {"cli.md": _commands(), "settings.md": _settings(), "environment.md": _environment()}
    return {name: "\n".join([_MADE, *lines]).rstrip() + "\n" for name, lines in made.items()}


# ── commands ──


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "What `--help` says of each. Scripts find exit codes in [operations](../operations.md).\n"
    command = build_command(VERBS)
    yield from _command(
        typer.Context(
            command, info_name="parley", terminal_width=_WIDTH, **command.context_settings
        )
    )


def _command(context: typer.Context) -> Iterator[str]:
    yield f"## {context.command_path}\n"
    yield f"```text\n{context.command.get_help(context).rstrip()}\n```\n"
    if isinstance(context.command, TyperGroup):
        for name, below in context.command.commands.items():
            yield from _command(
                typer.Context(below, info_name=name, parent=context, terminal_width=_WIDTH)
            )


# ── settings ──


def _settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "What `config.yaml` may hold; [configuration](../configuration.md) says how to change it."
    yield "A variable in the last column, in the environment or in `.env`, is above the file.\n"
    yield from _section(Settings, ())


def _section(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    fields = {(*path, name): field for name, field in _fields(model).items()}
    yield from _table({at: fields[at] for at in fields if isinstance(spot_at(at), Leaf)})
    for at, field in fields.items():
        match spot_at(at):
            case Section(model=below):
                yield f"## {'.'.join(at)}\n"
                if words := _first_words(below):
                    yield f"{words}\n"
                yield from _section(below, at)
            case Table(model=below):
                yield f"## {'.'.join(at)}.NAME\n"
                yield f"{_first_words(below)} NAME is {field['description']}.\n"
                yield from _section(below, (*at, "NAME"))
            case Leaf() as leaf if (listed := _listed(leaf)) is not None:
                yield f"## Each of {'.'.join(at)}\n"
                yield f"{_first_words(listed)}\n"
                yield from _table({(name,): inside for name, inside in _fields(listed).items()})


def _fields(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """What the schema says of each field, with its default unless it has to be given."""
    told: dict[str, dict[str, Any]] = model.model_json_schema()["properties"]
    for name, field in model.model_fields.items():
        if not field.is_required():
            told[name]["default"] = field.get_default(call_default_factory=True)
    return told


def _table(rows: dict[tuple[str, ...], dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    heads = ["setting", "wants", "default", "what it is", "variable"]
    if not any(map(_variable_of, rows)):
        heads.pop()
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for path, field in rows.items():
        cells = [cell.replace("|", "\\|") for cell in _cells(path, field)]
        yield f"| {' | '.join(cells[: len(heads)])} |"
    yield ""


def _cells(path: tuple[str, ...], field: dict[str, Any]) -> Iterator[str]:
    default, variable = field.get("default"), _variable_of(path)
    yield f"`{'.'.join(path)}`"
    yield _wants(field)
    if "default" not in field:
        yield "required"
    else:
        yield "" if default in (None, [], {}) else f"`{_as_yaml(default)}`"
    yield str(field.get("description", ""))
    yield f"`{variable}`" if variable else ""


def _variable_of(path: tuple[str, ...]) -> str | None:
    """The variable above this setting; not every setting can be said in one."""
    leaf = dict(leaves(["NAME"])).get(path)
    return None if leaf is None or leaf.is_mapping or _listed(leaf) else env_name(path)


def _listed(leaf: Leaf) -> type[BaseModel] | None:
    """What is in the list, where it has settings of its own."""
    inside = typing.get_args(leaf.field.annotation)[:1]
    return next(
        (kind for kind in inside if isinstance(kind, type) and issubclass(kind, BaseModel)), None
    )


def _wants(field: dict[str, Any]) -> str:
    """The type in words, with its bounds."""
    if "anyOf" in field:
        field = next(kind for kind in field["anyOf"] if kind["type"] != "null")
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    words = {
        "string": "text",
        "boolean": "`true` or `false`",
        "integer": "a whole number",
        "number": "a number",
        "array": "a list",
        "object": "names with values",
    }[field["type"]]
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f"{words}, {low:.15g} to {high:.15g}"
    return f"{words}, {low:.15g} or more" if low is not None else words


def _as_yaml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value) if isinstance(value, str) else json.dumps(value)


def _first_words(model: type[BaseModel]) -> str:
    return " ".join((model.__dict__.get("__doc__") or "").split())


# ── environment ──


def _environment() -> Iterator[str]:
    yield "# Environment variables\n"
    yield "Keys may stand in the environment or in `.env` of the profile's home; the environment"
    yield "wins. It belongs to [one profile](../profiles.md#what-is-kept-apart); every other has"
    yield "its `.env` alone. Most [settings](settings.md) have a variable as well.\n"
    categories = dict.fromkeys(variable["category"] for variable in OPTIONAL_ENV_VARS.values())
    for category in categories:
        yield f"## {category.capitalize()}\n"
        yield "| variable | what it is | secret |"
        yield "|---|---|---|"
        for name, variable in OPTIONAL_ENV_VARS.items():
            if variable["category"] == category:
                yield _variable(name, variable)
        yield ""


def _variable(name: str, variable: EnvVar) -> str:
    where = f" [Get one]({variable['url']})." if "url" in variable else ""
    secret = "yes" if variable["password"] else "no"
    return f"| `{name}` | {variable['description']}{where} | {secret} |"


if __name__ == "__main__":
    main()
