"""From the settings to a provider, and a sentence for whatever is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from parley.agent.providers import build_provider, key_variable, provider_names
from parley.agent.providers.base import ErrorKind, Provider, ProviderError
from parley.config.settings import Settings
from tests.agent.providers.builders import ask, failure, final
from tests.servers.scripted_model import Reply, ScriptedModel

KEYS = {"OPENAI_API_KEY": "sk-a", "ANTHROPIC_API_KEY": " sk-b\n", "MY_BOX_API_KEY": "sk-c"}


def build(
    settings: Mapping[str, Any],
    *,
    keys: Mapping[str, str] = KEYS,
    provider: str | None = None,
    model: str | None = None,
) -> Provider:
    parsed = Settings.model_validate(settings)
    return build_provider(parsed, keys.get, provider=provider, model=model)


def refusal(settings: Mapping[str, Any], *, keys: Mapping[str, str] = KEYS) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        build(settings, keys=keys)
    return caught.value


def box(address: str, **more: Any) -> dict[str, Any]:
    return {"my-box": {"base_url": address, "model": "m", **more}}


@pytest.mark.parametrize(
    ("name", "window"), [("openai", 400_000), ("anthropic", 200_000)], ids=["openai", "anthropic"]
)
def test_a_built_in_provider_needs_only_its_key(name: str, window: int) -> None:
    provider = build({"model": {"provider": name}})
    assert (provider.label, provider.context_window) == (name, window)
    assert provider.model


def test_the_model_is_the_one_asked_for_then_the_settings_then_the_provider_s_own() -> None:
    settings = {
        "model": {"provider": "openai", "name": "gpt-4o"},
        "providers": {"anthropic": {"model": "claude-x", "context_window": 1000}},
    }
    assert build(settings).model == "gpt-4o"
    assert build(settings).context_window == 128_000
    assert build(settings, model="o3").model == "o3"
    other = build(settings, provider="anthropic")
    assert (other.model, other.context_window) == ("claude-x", 1000)


async def test_a_named_provider_sends_its_own_key() -> None:
    async with ScriptedModel() as server:
        provider = build({"providers": box(server.base_url)}, provider="my-box")
        assert (await final(provider)).usage.provider == "my-box"
        assert server.requests[0].headers["Authorization"] == "Bearer sk-c"


async def test_the_key_may_be_in_another_variable() -> None:
    async with ScriptedModel() as server:
        providers = box(server.base_url, key_env="OTHER")
        await final(build({"providers": providers}, keys={"OTHER": "sk-d"}, provider="my-box"))
        assert server.requests[0].headers["Authorization"] == "Bearer sk-d"


async def test_a_server_on_this_machine_needs_no_key() -> None:
    async with ScriptedModel() as server:
        await final(build({"providers": box(server.base_url)}, keys={}, provider="my-box"))
        assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    "address",
    ["http://localhost:1/v1", "http://[::1]:1/v1", "http://192.168.1.5/v1", "http://box/v1"],
)
def test_a_server_nearby_needs_no_key(address: str) -> None:
    assert build({"providers": box(address)}, keys={}, provider="my-box").label == "my-box"


async def test_anthropic_elsewhere_still_speaks_its_own_format() -> None:
    async with ScriptedModel(lambda _: Reply(status=400)) as server:
        providers = {"anthropic": {"base_url": server.base_url}}
        provider = build({"providers": providers}, provider="anthropic")
        with pytest.raises(ProviderError):
            [_ async for _ in provider.stream(ask())]
        await provider.close()
    assert server.requests[0].path == "/v1/messages"
    assert server.requests[0].headers["x-api-key"] == "sk-b"


async def test_a_passing_fault_is_tried_again() -> None:
    async with ScriptedModel() as server:
        provider = build({"providers": box(server.base_url)}, provider="my-box")
        request = ask("[[status 429 retry-after 0 times 1]]")
        assert (await final(provider, request)).text.startswith("echo:")
        assert server.total == 2


async def test_the_fallbacks_of_the_settings_stand_behind() -> None:
    async with ScriptedModel(lambda _: Reply(status=401)) as bad, ScriptedModel() as good:
        settings = {
            "model": {"provider": "bad", "fallback": ["bad", "my-box", "my-box"]},
            "providers": {**box(good.base_url), "bad": {"base_url": bad.base_url, "model": "x"}},
        }
        reply = await final(build(settings))
    assert (reply.usage.provider, reply.usage.model) == ("my-box", "m")
    assert (bad.total, good.total) == (1, 1)


async def test_each_fallback_is_asked_once() -> None:
    async with ScriptedModel(lambda _: Reply(status=401)) as bad:
        settings = {
            "model": {"provider": "my-box", "fallback": ["other", "my-box", "other"]},
            "providers": {**box(bad.base_url), "other": {"base_url": bad.base_url, "model": "x"}},
        }
        assert "(other)" in str(await failure(build(settings)))
        assert bad.total == 2


def test_without_any_settings_the_local_model_answers() -> None:
    assert build({}, keys={}).label == "local"
    assert build({}, keys={}, model="weights/small.gguf").model == "small"


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"model": {"provider": "opena"}}, "refused", ["opena", "did you mean openai?"]),
        ({"model": {"provider": "zzz"}}, "refused", ["local, openai, anthropic"]),
        ({"model": {"provider": "openai", "fallback": ["mybox"]}}, "refused", ["mybox"]),
        (
            {"model": {"provider": "my-box"}, "providers": {"my-box": {"model": "m"}}},
            "refused",
            ["providers.my-box.base_url"],
        ),
        (
            {"model": {"provider": "x"}, "providers": {"x": {"base_url": "http://localhost/v1"}}},
            "refused",
            ["providers.x.model", "parley setup"],
        ),
    ],
)
def test_what_is_missing_is_said(
    settings: Mapping[str, Any], kind: ErrorKind, words: list[str]
) -> None:
    error = refusal(settings)
    assert error.kind == kind
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("keys", [{}, {"OPENAI_API_KEY": "  "}])
def test_a_missing_key_is_named(keys: dict[str, str]) -> None:
    error = refusal({"model": {"provider": "openai"}}, keys=keys)
    assert error.kind == "auth"
    assert "OPENAI_API_KEY" in str(error)
    assert "parley setup" in str(error)


def test_the_names_are_the_built_in_ones_and_the_settings_own() -> None:
    settings = Settings.model_validate({"providers": {**box("http://x/v1"), "openai": {}}})
    assert provider_names(settings) == ("local", "openai", "anthropic", "my-box")
    assert key_variable(settings, "my-box") == "MY_BOX_API_KEY"


def test_importing_the_providers_imports_nothing_heavy() -> None:
    code = (
        "import sys, parley.agent.providers, parley.agent.providers.openai, "
        "parley.agent.providers.anthropic, parley.agent.providers.discover, "
        "parley.agent.providers.retry, parley.agent.providers.fallback; "
        "print(*({'aiohttp', 'pydantic', 'yarl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
