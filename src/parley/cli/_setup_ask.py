"""The questions of `setup`, in plain words."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import typer

from parley.cli._setup_choice import Choice, with_variable
from parley.profiles import Profile

if TYPE_CHECKING:
    from parley.agent.providers.discover import Discovered

__all__ = ["ask"]


def ask(profile: Profile, *, to_stderr: bool) -> Choice:
    """Ask for a provider, its key and its model."""
    return _Questions(profile, to_stderr=to_stderr).ask()


class _Questions:
    def __init__(self, profile: Profile, *, to_stderr: bool) -> None:
        self._profile = profile
        self._to_stderr = to_stderr

    def ask(self) -> Choice:
        from parley.agent.providers.discover import discover, ports_here

        servers = asyncio.run(discover(ports_here(os.environ)))
        options = ["A small model on this machine (no key, works offline, but it is weak)"]
        options += [f"{server.kind}, running here at {server.base_url}" for server in servers]
        options += ["OpenAI", "Anthropic", "Another server that speaks OpenAI's protocol"]
        self._say("Who should answer?")
        picked = self._pick(options)
        if picked == 0:
            return Choice("local", self._local())
        if picked <= len(servers):
            return self._found(servers[picked - 1])
        if picked == len(options) - 1:
            return self._other()
        return self._known("openai" if picked == len(options) - 3 else "anthropic")

    def _local(self) -> str | None:
        from parley.agent.providers.local.weights import CATALOGUE
        from parley.cli._model_fetch import fetch_model, pick_model

        name = pick_model()
        if name is not None:
            fetch_model(CATALOGUE[name])
        return name

    def _known(self, name: str) -> Choice:
        choice = self._with_key(Choice(name), required=True)
        model = self._text("Model (Enter for the usual one)", default="")
        return Choice(name, model or None, None, choice.variable, choice.key)

    def _found(self, server: Discovered) -> Choice:
        model = self._model(server.models)
        return Choice(server.kind, model, server.base_url)

    def _other(self) -> Choice:
        address = self._text("Its address, up to and with /v1")
        name = self._text("A short name for it", default="server")
        choice = self._with_key(Choice(name, base_url=address), required=False)
        return Choice(name, self._text("Model"), address, choice.variable, choice.key)

    def _model(self, models: tuple[str, ...]) -> str:
        if not models:
            return self._text("Model")
        if len(models) == 1:
            return models[0]
        self._say("Which model?")
        return models[self._pick(list(models))]

    def _with_key(self, choice: Choice, *, required: bool) -> Choice:
        from parley.config import OPTIONAL_ENV_VARS, Secrets

        asked = with_variable(self._profile, choice, variable=None, key=None)
        variable = asked.variable or ""
        known = OPTIONAL_ENV_VARS.get(variable)
        held = Secrets(self._profile).get(variable) is not None
        if known is not None and "url" in known and not held:
            self._say(f"You get a key at {known['url']}")
        hint = "Enter keeps the one you have" if held else "" if required else "Enter for none"
        label = f"{known['prompt'] if known else 'API key'} (hidden{', ' if hint else ''}{hint})"
        while True:
            key = self._text(label, default="", hidden=True).strip()
            if key:
                return with_variable(self._profile, choice, variable=None, key=key)
            if held or not required:
                return choice
            self._say("A key is needed here; Ctrl-C leaves.")

    def _pick(self, options: list[str]) -> int:
        for number, option in enumerate(options, start=1):
            self._say(f"  {number}. {option}")
        while True:
            answer = self._text("Number", default="1").strip()
            if answer.isdecimal() and 1 <= int(answer) <= len(options):
                return int(answer) - 1
            self._say(f"A number from 1 to {len(options)} is wanted.")

    def _text(self, label: str, *, default: str | None = None, hidden: bool = False) -> str:
        answer = typer.prompt(
            label,
            default=default,
            hide_input=hidden,
            show_default=bool(default),
            err=self._to_stderr,
        )
        return str(answer).strip()

    def _say(self, text: str) -> None:
        typer.echo(text, err=self._to_stderr)
