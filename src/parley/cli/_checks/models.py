"""Who answers: the provider, its key, one live call; and the model on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from parley.cli._checks.answering import who_answers
from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground

if TYPE_CHECKING:
    from parley.agent.providers.base import ProviderError
    from parley.config.settings import Settings

__all__ = ["check_local_model", "check_providers", "is_local", "weights_of"]

_ANSWERS_WITHIN = 30.0
_WAIT_HELPS = ("timeout", "rate_limited", "overloaded")


async def check_providers(ground: Ground, *, offline: bool) -> list[Finding]:
    """Build every provider of the chain and, unless `offline`, ask each of them one thing.

    Where a remote agent answers they do not matter.
    """
    settings = ground.settings
    if settings is None:
        return [note("provider", "not looked at while the settings cannot be used.")]
    if "agent" not in who_answers(settings):
        return []
    names = list(dict.fromkeys([settings.model.provider, *settings.model.fallback]))
    found = await asyncio.gather(
        *(_check_one(ground, settings, name, offline=offline) for name in names)
    )
    return list(found)


def check_local_model(ground: Ground) -> list[Finding]:
    """That the model on this machine can be loaded, when it is one that answers."""
    settings = ground.settings
    if settings is None:
        return [note("local model", "not looked at while the settings cannot be used.")]
    if "agent" not in who_answers(settings):
        return [ok("local model", "is not in use: a remote agent answers.")]
    names = (settings.model.provider, *settings.model.fallback)
    used = [name for name in names if is_local(settings, name)]
    if not used:
        return [ok("local model", f"is not in use: {settings.model.provider} answers.")]
    return [_local(weights_of(settings, name)) for name in used]


async def _check_one(ground: Ground, settings: Settings, name: str, *, offline: bool) -> Finding:
    from parley.agent.providers import build_provider
    from parley.agent.providers.base import ProviderError

    chosen = settings.model.name if name == settings.model.provider else None
    # A fallback that answers would hide that this one does not.
    alone = settings.model.model_copy(update={"provider": name, "name": chosen, "fallback": []})
    stands_in = name != settings.model.provider
    try:
        provider = build_provider(settings.model_copy(update={"model": alone}), ground.secret)
    except ProviderError as error:
        return fault("provider", str(error), _mend(error, settings, name))
    called = f"{name} · {provider.model}"
    try:
        if is_local(settings, name) and _local(weights_of(settings, name)).level == "fault":
            return note("provider", f"{called} is not asked: the local model is not ready.")
        if offline:
            return ok("provider", f"{called} is set up{_key(ground, settings, name)}; not asked.")
        async with asyncio.timeout(_ANSWERS_WITHIN):
            await provider.check()
    except ProviderError as error:
        level = note if stands_in else fault
        return level("provider", str(error), _mend(error, settings, name))
    except TimeoutError:
        level = note if stands_in else fault
        return level("provider", f"{called} has not answered in time.", "parley doctor")
    finally:
        await provider.close()
    return ok("provider", f"{called} answers{_key(ground, settings, name)}.")


def _mend(error: ProviderError, settings: Settings, name: str) -> str:
    from parley.agent.providers import key_variable

    if error.kind in _WAIT_HELPS:
        return "parley doctor"
    if error.kind != "auth":
        return "parley setup"
    variable = key_variable(settings, name)
    above = f"unset {variable} && " if os.environ.get(variable, "").strip() else ""
    return f"{above}parley config set {variable}"


def _key(ground: Ground, settings: Settings, name: str) -> str:
    from parley.agent.providers import key_variable

    variable = key_variable(settings, name)
    if is_local(settings, name) or ground.secret(variable) is None:
        return ""
    place = "the environment" if os.environ.get(variable, "").strip() else ".env"
    return f", with {variable} from {place}"


def is_local(settings: Settings, name: str) -> bool:
    """Whether this provider is a model on this machine."""
    entry = settings.providers.get(name)
    if entry is None or (name == "local" and "kind" not in entry.model_fields_set):
        return name == "local"
    return entry.kind == "local"


def weights_of(settings: Settings, name: str) -> str:
    """The weights that a local provider of this name uses."""
    entry = settings.providers.get(name)
    named = settings.model.name if name == settings.model.provider else None
    return named or (entry.model if entry else None) or settings.local.weights


def _local(weights: str) -> Finding:
    from parley.agent.providers.local.install import is_installed
    from parley.agent.providers.local.runtime import has_runtime
    from parley.agent.providers.local.weights import CATALOGUE, find_weights, installed_file
    from parley.protocol import ParleyError

    if not has_runtime():
        what = "xllamacpp, which runs it, is not installed."
        return fault("local model", what, "parley model install runtime")
    model = CATALOGUE.get(weights)
    if model is not None and installed_file(model).exists() and not is_installed(model):
        what = f"the weights of {weights} are not whole."
        return fault("local model", what, f"parley model install {weights}")
    try:
        found = find_weights(weights)
    except ParleyError as error:
        mend = f"parley model install {weights}" if model else "parley model use smollm2"
        return fault("local model", str(error), mend)
    size = Path(found.path).stat().st_size / 1_000_000
    return ok("local model", f"{found.label} is installed ({size:,.0f} MB).")
