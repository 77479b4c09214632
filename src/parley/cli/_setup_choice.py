"""What a person chose in `setup`: how to try it out, and how to save it whole."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parley.profiles import Profile

if TYPE_CHECKING:
    from parley.config.document import Value
    from parley.config.settings import Settings

__all__ = ["Choice", "save", "try_out", "with_variable"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A provider to use. `key` is new and goes into `.env` under `variable`."""

    provider: str
    model: str | None = None
    base_url: str | None = None
    variable: str | None = None
    key: str | None = None

    def __repr__(self) -> str:
        return f"Choice({self.provider})"


def with_variable(
    profile: Profile, choice: Choice, *, variable: str | None, key: str | None
) -> Choice:
    """The choice with a key, under `variable` or under the provider's usual name for it."""
    from parley.agent.providers import key_variable
    from parley.config import load_settings

    usual = key_variable(load_settings(profile), choice.provider)
    return replace(choice, variable=variable or usual, key=key)


def try_out(profile: Profile, choice: Choice) -> None:
    """Make one live call as the choice would. Raises `ParleyError` when it fails."""
    from parley.agent.providers import build_provider
    from parley.config import Secrets, preview

    secrets = Secrets(profile)
    settings = preview(profile, _changes(profile, choice))
    # A fallback that answers would hide that this one does not.
    alone = settings.model_copy(
        update={"model": settings.model.model_copy(update={"fallback": []})}
    )

    def secret(name: str) -> str | None:
        return choice.key if choice.key and name == choice.variable else secrets.get(name)

    async def call(settings: Settings) -> None:
        provider = build_provider(settings, secret, log_dir=profile.logs)
        try:
            await provider.check()
        finally:
            await provider.close()

    asyncio.run(call(alone))


def save(profile: Profile, choice: Choice) -> None:
    """Write the key and the settings: both, or neither."""
    from parley.config import Secrets, preview, set_values

    changes = _changes(profile, choice)
    preview(profile, changes)
    secrets = Secrets(profile)
    with _undisturbed(), secrets.restored_on_failure():
        if choice.key is not None and choice.variable is not None:
            secrets.set(choice.variable, choice.key)
        set_values(profile, changes)


def _changes(profile: Profile, choice: Choice) -> dict[str, Value]:
    from parley.agent.providers import key_variable
    from parley.config import ConfigError, preview
    from parley.config.settings import BUILT_IN_PROVIDERS, PROVIDER_NAME

    name = choice.provider
    if not PROVIDER_NAME.fullmatch(name):
        raise ConfigError("A provider's name has only letters, digits, `-` and `_`.")
    at = f"providers.{name}"
    changes: dict[str, Value] = {}
    if name == "local":
        if choice.base_url or choice.key:
            raise ConfigError("The local model has neither an address nor a key.")
        if choice.model:
            changes["local.weights"] = choice.model
    else:
        if choice.base_url:
            _require_address(choice.base_url)
            changes[f"{at}.base_url"] = choice.base_url.rstrip("/")
        elif name not in BUILT_IN_PROVIDERS and name not in preview(profile, {}).providers:
            raise ConfigError(f"Give the address of {name} as well: `--base-url URL`.")
        if choice.model:
            changes[f"{at}.model"] = choice.model
        if choice.variable and choice.variable != key_variable(preview(profile, {}), name):
            changes[f"{at}.key_env"] = choice.variable
    # The provider's own model counts from now on, not one that was set for another provider.
    return {**changes, "model.provider": name, "model.name": None}


def _require_address(base_url: str) -> None:
    from urllib.parse import urlsplit

    from parley.config import ConfigError

    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError("The address must be like `http://127.0.0.1:8000/v1`.")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until both files are written, or neither."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
