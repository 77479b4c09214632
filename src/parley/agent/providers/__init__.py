"""The providers: who turns a request into a model's reply, made from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from parley.agent.providers.base import Provider, ProviderError

if TYPE_CHECKING:
    from pathlib import Path

    from parley.agent.providers.local.pool import ModelPool
    from parley.config.settings import ProviderSettings, Settings

__all__ = ["build_provider", "is_local", "key_variable", "provider_names"]

_Kind: TypeAlias = Literal["openai", "anthropic", "local"]
Secret: TypeAlias = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    kind: _Kind
    base_url: str | None = None
    model: str | None = None


_BUILT_IN: Mapping[str, _BuiltIn] = {
    "local": _BuiltIn("local"),
    "openai": _BuiltIn("openai", "https://api.openai.com/v1", "gpt-5-mini"),
    "anthropic": _BuiltIn("anthropic", "https://api.anthropic.com", "claude-sonnet-4-5"),
}
# By the beginning of a model's name; the first that fits counts.
_CONTEXT_WINDOWS: tuple[tuple[str, int], ...] = (
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("claude-", 200_000),
)
_UNKNOWN_WINDOW = 32_768


def provider_names(settings: Settings) -> tuple[str, ...]:
    """Every name that may stand in `model.provider`: the built-in ones, then the settings' own."""
    return (*_BUILT_IN, *(name for name in settings.providers if name not in _BUILT_IN))


def is_local(settings: Settings, name: str | None) -> bool:
    """Whether the provider `name`, or else the one of the settings, is a model on this machine."""
    name = name or settings.model.provider
    entry, built_in = settings.providers.get(name), _BUILT_IN.get(name)
    return (entry is not None or built_in is not None) and _kind(entry, built_in) == "local"


def key_variable(settings: Settings, name: str) -> str:
    """The variable in `.env` that holds the key of provider `name`."""
    entry = settings.providers.get(name)
    if entry is not None and entry.key_env:
        return entry.key_env
    return name.upper().replace("-", "_") + "_API_KEY"


def build_provider(
    settings: Settings,
    secret: Secret,
    *,
    provider: str | None = None,
    model: str | None = None,
    log_dir: Path | None = None,
    local_models: ModelPool | None = None,
) -> Provider:
    """Make the provider that the settings, or `provider` and `model`, name.

    It asks again when a call fails for a passing reason, and the settings' fallbacks stand
    behind it. A local model is one of `local_models`; without them it is the provider's own, and
    logs into `log_dir`. Raises `ProviderError` when something is missing, with what to do about it.
    """
    name = provider or settings.model.provider
    if model is None and name == settings.model.provider:
        model = settings.model.name
    others = [other for other in dict.fromkeys(settings.model.fallback) if other != name]
    wanted = [(name, model), *((other, None) for other in others)]
    chain = [
        _build_one(
            settings, secret, name=one, model=its, log_dir=log_dir, local_models=local_models
        )
        for one, its in wanted
    ]
    if len(chain) == 1:
        return chain[0]
    from parley.agent.providers.fallback import FallbackProvider

    return FallbackProvider(chain)


def _build_one(
    settings: Settings,
    secret: Secret,
    *,
    name: str,
    model: str | None,
    log_dir: Path | None,
    local_models: ModelPool | None,
) -> Provider:
    entry = settings.providers.get(name)
    built_in = _BUILT_IN.get(name)
    if entry is None and built_in is None:
        raise _unknown(settings, name)
    kind = _kind(entry, built_in)
    if kind == "local":
        return _build_local(
            settings,
            model=model or (entry.model if entry else None),
            log_dir=log_dir,
            local_models=local_models,
        )
    return _build_remote(settings, secret, name=name, kind=kind, model=model)


def _kind(entry: ProviderSettings | None, built_in: _BuiltIn | None) -> _Kind:
    if entry is None or (built_in is not None and "kind" not in entry.model_fields_set):
        return built_in.kind if built_in is not None else "openai"
    return entry.kind


def _build_local(
    settings: Settings,
    *,
    model: str | None,
    log_dir: Path | None,
    local_models: ModelPool | None,
) -> Provider:
    from parley.agent.providers.local.provider import LocalProvider

    local = (
        settings.local if model is None else settings.local.model_copy(update={"weights": model})
    )
    return LocalProvider(local, pool=local_models, log_dir=log_dir)


def _build_remote(
    settings: Settings,
    secret: Secret,
    *,
    name: str,
    kind: Literal["openai", "anthropic"],
    model: str | None,
) -> Provider:
    from parley.agent.providers.addresses import is_nearby
    from parley.agent.providers.anthropic import AnthropicProvider
    from parley.agent.providers.openai import OpenAIProvider
    from parley.agent.providers.retry import RetryingProvider
    from parley.config.settings import ProviderSettings

    entry = settings.providers.get(name) or ProviderSettings()
    usual = _BUILT_IN.get(name) or _BuiltIn(kind)
    base_url = (entry.base_url or usual.base_url or "").strip()
    if not base_url:
        raise ProviderError(
            f"The provider {name} has no address: set it with "
            f"`parley config set providers.{name}.base_url URL`.",
            kind="refused",
        )
    chosen = model or entry.model or usual.model
    if not chosen:
        raise ProviderError(
            f"The provider {name} has no model: set one with "
            f"`parley config set providers.{name}.model MODEL` or `parley setup`.",
            kind="refused",
        )
    variable = key_variable(settings, name)
    key = (secret(variable) or "").strip() or None
    if key is None and not is_nearby(base_url):
        raise ProviderError(
            f"The provider {name} needs a key: run `parley setup`, or "
            f"`parley config set {variable}`.",
            kind="auth",
        )
    make = AnthropicProvider if kind == "anthropic" else OpenAIProvider
    return RetryingProvider(
        make(
            name,
            base_url=base_url,
            api_key=key,
            model=chosen,
            context_window=entry.context_window or _context_window(chosen),
            max_output_tokens=entry.max_output_tokens,
            temperature=entry.temperature,
            timeout_seconds=entry.timeout_seconds,
            offers_tools=entry.tools,
            key_variable=variable,
        )
    )


def _context_window(model: str) -> int:
    bare = model.rpartition("/")[2]
    known = (window for prefix, window in _CONTEXT_WINDOWS if bare.startswith(prefix))
    return next(known, _UNKNOWN_WINDOW)


def _unknown(settings: Settings, name: str) -> ProviderError:
    import difflib

    names = provider_names(settings)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
    return ProviderError(f"There is no provider named {name}: {meant}", kind="refused")
