"""`parley config`: read, change and check the settings of a profile."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from parley.cli._shared import current_profile, fail, print_json
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["register"]

app = typer.Typer(
    help="Read, change and check the settings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="config")


@app.command("get")
def get(
    path: Annotated[
        str | None, typer.Argument(help="A setting such as gateway.port; all of them if left out.")
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Show a setting, a section, or all settings with their defaults. Secrets are never shown."""
    from parley.config import Redactor, Secrets, get_value, load_settings
    from parley.config.env import belongs_in_env_file

    profile = current_profile()
    with _one_sentence():
        secrets = Secrets(profile)
        if path is not None and belongs_in_env_file(path):
            is_set = secrets.get(path) is not None
            if as_json:
                print_json({"name": path, "set": is_set})
            else:
                _say("set" if is_set else "not set")
            return
        value: object
        if path is None:
            value = load_settings(profile).model_dump(mode="json")
        else:
            value = get_value(profile, path)
        value = Redactor(secrets.values()).value(value)
    if as_json:
        print_json(value)
    else:
        _say(_as_text(value))


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_(
    path: Annotated[str, typer.Argument(help="A setting such as gateway.port, or NAME_API_KEY.")],
    value: Annotated[
        str | None,
        typer.Argument(
            help="The value; a list with commas. A key is better left out: it is asked."
        ),
    ] = None,
) -> None:
    """Change a setting in config.yaml, or put a key into .env."""
    from parley.config import set_value
    from parley.config.env import OPTIONAL_ENV_VARS, belongs_in_env_file
    from parley.config.schema import env_name

    profile = current_profile()
    with _one_sentence():
        if belongs_in_env_file(path):
            _set_secret(profile, path, value)
            return
        if path in OPTIONAL_ENV_VARS:
            fail(f"`{path}` is read from the environment; set it in your shell.")
        if value is None:
            fail(f"Give the value as well: `parley config set {path} VALUE`.")
        written = set_value(profile, path, value)
    _say(f"{path} = {'null' if written is None else _as_text(written)}")
    variable = env_name(path.split("."))
    if os.environ.get(variable, "").strip():
        typer.echo(f"Note: `{variable}` in the environment is above it.", err=True)


@app.command("unset")
def unset(
    path: Annotated[str, typer.Argument(help="A setting or section, or NAME_API_KEY.")],
) -> None:
    """Give a setting its default again, or take a key out of .env."""
    from parley.config import Secrets, unset_value
    from parley.config.env import belongs_in_env_file

    profile = current_profile()
    with _one_sentence():
        if belongs_in_env_file(path):
            changed = Secrets(profile).unset(path)
        else:
            changed = unset_value(profile, path)
    _say(f"{path} is unset." if changed else f"{path} was not set.")


@app.command("path")
def path_() -> None:
    """Print where config.yaml is."""
    _say(str(current_profile().config_file))


@app.command("check")
def check(as_json: _AsJson = False) -> None:
    """Check config.yaml, .env and the environment; every fault is listed."""
    from parley.config import ConfigError, load_settings
    from parley.config.errors import shown

    profile = current_profile()
    faults: tuple[str, ...] = ()
    try:
        load_settings(profile)
    except ConfigError as error:
        faults = tuple(fault.sentence for fault in error.faults)
    if as_json:
        print_json({"file": str(profile.config_file), "ok": not faults, "faults": list(faults)})
    else:
        for sentence in faults:
            typer.echo(f"parley: {sentence}", err=True)
        if not faults and profile.config_file.exists():
            _say(f"{shown(profile.config_file)} is fine.")
        elif not faults:
            _say(f"{shown(profile.config_file)} does not exist: every setting has its default.")
    if faults:
        raise typer.Exit(1)


def _set_secret(profile: Profile, name: str, value: str | None) -> None:
    from parley.config import Secrets
    from parley.config.errors import shown

    if value is None and sys.stdin.isatty():
        value = typer.prompt(name, hide_input=True, err=True)
    elif value is None or value == "-":
        value = sys.stdin.readline()
    if not value.strip():
        fail(f"`{name}` needs a value.")
    Secrets(profile).set(name, value)
    _say(f"{name} is saved in {shown(profile.env_file)}.")


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Whatever a person can do something about ends the command with its sentence."""
    try:
        yield
    except ParleyError as error:
        fail(str(error))


def _as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and not any(isinstance(item, dict) for item in value):
        return ", ".join(map(_as_text, value))
    if isinstance(value, dict | list):
        from ruamel.yaml import YAML

        yaml = YAML(typ="rt")
        yaml.width = 10_000
        text = io.StringIO()
        yaml.dump(value, text)
        return text.getvalue().rstrip("\n")
    return str(value)


def _say(text: str) -> None:
    typer.echo(text)
