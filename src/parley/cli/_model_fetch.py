"""Fetch a local model and what runs it: when asked to, or on the first start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from parley.cli._model_progress import shown_progress
from parley.cli._shared import fail
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from pathlib import Path

    from parley.agent.providers.local.hub import HubReference
    from parley.agent.providers.local.weights import LocalModel
    from parley.config.settings import Settings
    from parley.profiles import Profile

__all__ = [
    "fetch_from_hub",
    "fetch_model",
    "fetch_runtime",
    "may_ask",
    "megabytes",
    "offer_missing_model",
    "pick_model",
]

_BETTER, _SMALLEST = "qwen", "smollm2"


def fetch_runtime() -> bool:
    """Install what runs local models; False when it is there already."""
    from parley.agent.providers.local.runtime import has_runtime
    from parley.agent.providers.local.runtime_install import install_runtime

    if has_runtime():
        return False
    with shown_progress("Installing what runs local models") as progress:
        install_runtime(progress=progress)
    return True


def fetch_model(model: LocalModel) -> bool:
    """Install a model and what runs it; False when both are there already."""
    from parley.agent.providers.local.install import install, is_installed

    is_new = fetch_runtime()
    if is_installed(model):
        return is_new
    with shown_progress(f"Installing {model.title}") as progress:
        install(model, progress=progress)
    return True


def fetch_from_hub(reference: HubReference) -> Path:
    """Install a model of the hub, and what runs it; returns its file."""
    from parley.agent.providers.local.hub import find_file, install_from_hub

    file = find_file(reference)
    fetch_runtime()
    with shown_progress(f"Installing {file.reference.file}") as progress:
        return install_from_hub(file, progress=progress)


def offer_missing_model(profile: Profile, settings: Settings, *, fetch_unasked: bool) -> Settings:
    """Where a local model should answer and is missing: let the person choose, and fetch it.

    Without a terminal nobody can be asked: `fetch_unasked` then fetches the smallest model, where
    it is the one that should answer. Returns the settings to go on with.
    """
    from parley.gateway.home import holder_of

    missing = _missing_model(settings)
    if missing is None or holder_of(profile) is not None:
        return settings
    name: str | None = missing
    if may_ask():
        name = pick_model() if missing == _SMALLEST else missing
    elif not fetch_unasked or missing != _SMALLEST:
        return settings
    if name is None:
        return settings
    from parley.agent.providers.local.weights import CATALOGUE
    from parley.config import load_settings, set_values

    try:
        fetch_model(CATALOGUE[name])
    except KeyboardInterrupt:
        fail(f"Stopped; `parley model install {name}` goes on from here.", code=130)
    except ParleyError as error:
        if not may_ask():
            raise
        typer.echo(str(error), err=True)  # commands work without a model
        return settings
    if name == missing:
        return settings

    set_values(profile, {"local.weights": name, "model.provider": "local"})
    return load_settings(profile)


def may_ask() -> bool:
    """Whether a person is there to answer a question on stderr."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def pick_model() -> str | None:
    """Ask on stderr which local model to fetch; None for none."""
    from parley.agent.providers.local.weights import CATALOGUE

    models = [CATALOGUE[_BETTER], CATALOGUE[_SMALLEST]]
    typer.echo("Which model should answer on this machine?", err=True)
    for number, model in enumerate(models, start=1):
        needs = f"{megabytes(model.download_size)} to fetch, {megabytes(model.memory)} of memory"
        typer.echo(f"  {number}. {model.title}: {model.note} ({needs})", err=True)
    last = len(models) + 1
    typer.echo(f"  {last}. None now; `parley setup` lets another one answer", err=True)
    usual = 1 if _has_room_for(models[0]) else 2
    while True:
        answer = typer.prompt("Number", default=str(usual), err=True).strip()
        if answer.isdecimal() and 1 <= int(answer) <= last:
            return None if int(answer) == last else models[int(answer) - 1].name
        typer.echo(f"Type a number from 1 to {last}.", err=True)


def megabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def _missing_model(settings: Settings) -> str | None:
    """The catalogued model that should answer and cannot, if there is one."""
    from parley.cli._checks.answering import who_answers
    from parley.cli._checks.models import is_local, weights_of

    provider = settings.model.provider
    if "agent" not in who_answers(settings) or not is_local(settings, provider):
        return None
    from parley.agent.providers.local.install import is_installed
    from parley.agent.providers.local.runtime import has_runtime
    from parley.agent.providers.local.weights import CATALOGUE

    model = CATALOGUE.get(weights_of(settings, provider))
    if model is None or (is_installed(model) and has_runtime()):
        return None
    return model.name


def _has_room_for(model: LocalModel) -> bool:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return True
    return total >= model.memory * 1.5
