"""`parley model`: which models run on this machine, and which of them answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from parley.cli._model_fetch import megabytes
from parley.cli._shared import current_profile, fail, print_json
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["register"]

app = typer.Typer(
    help="Install, choose and remove models that run on this machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Name = Annotated[str, typer.Argument(help="A name that `parley model list` shows.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="model")


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the models that can be installed, which are, and which one answers."""
    from parley.agent.providers.local.hub import RECOMMENDED, hub_files
    from parley.agent.providers.local.install import is_installed
    from parley.agent.providers.local.weights import CATALOGUE, installed_file

    with _one_sentence():
        chosen = _chosen(current_profile())
        rows: list[dict[str, object]] = [
            {
                "name": model.name,
                "title": model.title,
                "installed": is_installed(model),
                "in_use": model.name == chosen,
                "size": model.size,
                "download_size": model.download_size,
                "tools": model.tools,
                "context_tokens": model.context_window,
                "licence": model.licence,
                "note": model.note,
                "file": str(installed_file(model)),
            }
            for model in CATALOGUE.values()
        ]
    if chosen is not None and chosen not in CATALOGUE:
        rows.append(_file_row(Path(chosen).expanduser()))
    for reference, path in hub_files():
        if str(path) != chosen:
            rows.append({**_file_row(path), "name": str(reference), "in_use": False})
    if as_json:
        print_json(rows)
        return
    for row in rows:
        mark = "*" if row["in_use"] else " "
        state = "installed" if row["installed"] else "not installed"
        size = megabytes(int(str(row["size"])))
        typer.echo(f"{mark} {row['name']:<10} {state:<14} {size:>8}  {row['title']}: {row['note']}")
    typer.echo("* answers now" if chosen is not None else "No local model answers now.")
    typer.echo("From a model hub, with `parley model install`, by the memory of your machine:")
    for one in RECOMMENDED:
        typer.echo(f"  {one.memory_gb:>2} GB  {megabytes(one.size)}  {one.reference}")


@app.command("install")
def install(
    name: Annotated[
        str,
        typer.Argument(
            help="A name that `parley model list` shows, hf:OWNER/REPO[/FILE], runtime."
        ),
    ],
) -> None:
    """Fetch a model, and what runs it. An interrupted install goes on where it stopped.

    `runtime` alone is what runs them, for a .gguf file of yours.
    """
    from parley.agent.providers.local.hub import parse_reference
    from parley.agent.providers.local.weights import catalogued
    from parley.cli._checks.finding import quoted
    from parley.cli._model_fetch import fetch_from_hub, fetch_model, fetch_runtime

    with _one_sentence():
        if name == "runtime":
            is_new = fetch_runtime()
            typer.echo(f"The runtime is {'installed' if is_new else 'already installed'}.")
            return
        if (wanted := parse_reference(name)) is not None:
            path = fetch_from_hub(wanted)
            typer.echo(f"It is installed. To let it answer: parley model use {quoted(path)}")
            return
        model = catalogued(name)
        if fetch_model(model):
            typer.echo(f"{model.name} is installed ({megabytes(model.size)}).")
        else:
            typer.echo(f"{model.name} is already installed.")
        chosen = _chosen(current_profile())
    if chosen != model.name:
        typer.echo(f"To let it answer: parley model use {model.name}")


@app.command("use")
def use(
    weights: Annotated[str, typer.Argument(help="A model's name, or a .gguf file.")],
) -> None:
    """Let a model on this machine answer from now on."""
    from parley.agent.providers.local.weights import CATALOGUE, find_weights
    from parley.config.edit import set_values
    from parley.config.schema import env_name

    with _one_sentence():
        name = weights.strip()
        if name not in CATALOGUE:
            # Kept whole: the gateway may run in another directory.
            name = str(Path(name).expanduser().absolute())
            if not Path(name).exists() and "/" not in weights and not weights.endswith(".gguf"):
                known = ", ".join(CATALOGUE)
                fail(f"There is no model or file called {weights!r}: the models are {known}.")
        find_weights(name)
        set_values(current_profile(), {"local.weights": name, "model.provider": "local"})
    typer.echo(f"{name} answers from now on; a running gateway takes it at its next start.")
    for setting in ("local.weights", "model.provider"):
        variable = env_name(setting.split("."))
        if os.environ.get(variable, "").strip():
            typer.echo(f"Note: `{variable}` in the environment is above it.", err=True)


@app.command("remove")
def remove(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a model's weights from this machine."""
    from parley.agent.providers.local.hub import installed_hub_file, parse_reference
    from parley.agent.providers.local.install import is_installed, uninstall
    from parley.agent.providers.local.weights import catalogued

    with _one_sentence():
        if (reference := parse_reference(name)) is not None:
            path = installed_hub_file(reference)
            if not reference.file or not path.is_file():
                fail(f"{reference} is not installed; `parley model list` shows what is.")
            if not yes and not (sys.stdin.isatty() and typer.confirm(f"Remove {path}?")):
                fail(f"Confirm with --yes: `parley model remove {reference} --yes`.")
            path.unlink()
            typer.echo(f"{reference} is removed.")
            return
        model = catalogued(name, "remove")
        if is_installed(model) and not yes:
            if not sys.stdin.isatty():
                fail(f"Say that you mean it: `parley model remove {model.name} --yes`.")
            question = f"Remove {model.title} ({megabytes(model.size)})?"
            if not typer.confirm(question):
                raise typer.Exit(1)
        removed = uninstall(model)
        chosen = _chosen(current_profile())
    typer.echo(f"{model.name} is removed." if removed else f"{model.name} was not installed.")
    if removed and chosen == model.name:
        typer.echo("It was the one that answers: choose another with `parley model use`.", err=True)


def _chosen(profile: Profile) -> str | None:
    """What `local.weights` says, when the local model is the one that answers."""
    from parley.config.load import load_settings

    settings = load_settings(profile)
    provider = settings.model.provider
    own = settings.providers.get(provider)
    is_local = provider == "local" or (own is not None and own.kind == "local")
    return settings.local.weights if is_local else None


def _file_row(path: Path) -> dict[str, object]:
    there = path.is_file()
    return {
        "name": path.stem,
        "title": str(path),
        "installed": there,
        "in_use": True,
        "size": path.stat().st_size if there else 0,
        "note": "a file of yours" if there else "the file is missing",
        "file": str(path),
    }


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Whatever a person can do something about ends the command with its sentence."""
    try:
        yield
    except ParleyError as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("Stopped; the same command goes on from here.")
