"""The local model really answers, streams, stops, and says clearly what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from parley.agent.providers.base import ModelRequest, ProviderError, ToolSpec
from parley.agent.providers.local.provider import LocalProvider
from parley.config.settings import LocalModelSettings
from parley.protocol import ChatMessage
from tests.agent.providers.local.watching import (
    ENDLESS,
    PARIS,
    answer,
    child_of,
    cpu_over,
    until,
)

_together = pytest.mark.asyncio(loop_scope="module")


@_together
async def test_the_model_answers_in_a_stream_and_counts_its_tokens(
    shared_provider: LocalProvider,
) -> None:
    deltas, reply = await answer(shared_provider, PARIS)
    assert "Paris" in reply.text
    assert "".join(deltas) == reply.text
    assert len(deltas) > 3
    assert reply.complete
    assert reply.usage.provider == "local"
    assert reply.usage.model == shared_provider.model
    assert reply.usage.input_tokens > 10
    assert reply.usage.output_tokens >= len(deltas)
    _, again = await answer(shared_provider, PARIS)
    assert again.text == reply.text
    assert again.usage.cached_tokens > 10


@_together
async def test_a_reply_cut_by_its_limit_says_so(shared_provider: LocalProvider) -> None:
    request = ModelRequest("", ENDLESS.messages, max_output_tokens=5)
    _, reply = await answer(shared_provider, request)
    assert not reply.complete
    assert reply.usage.output_tokens == 5


@_together
async def test_several_requests_are_all_answered(shared_provider: LocalProvider) -> None:
    answers = await asyncio.gather(*[answer(shared_provider, PARIS) for _ in range(5)])
    assert ["Paris" in reply.text for _, reply in answers] == [True] * 5


@_together
async def test_a_request_too_long_for_the_window_is_named_so(
    shared_provider: LocalProvider,
) -> None:
    request = ModelRequest("", (ChatMessage("user", "word " * 2500),))
    with pytest.raises(ProviderError, match="too long") as caught:
        await answer(shared_provider, request)
    assert caught.value.kind == "too_long"


@_together
async def test_closing_the_stream_stops_the_generation(shared_provider: LocalProvider) -> None:
    stream = shared_provider.stream(ENDLESS)
    async with contextlib.aclosing(stream):  # type: ignore[type-var]
        async for _ in stream:
            break
    pid = child_of(os.getpid())
    # Generating, it would use more than a core; idle it uses next to nothing.
    await until(lambda: cpu_over(pid, 0.3) < 0.05)


async def test_tools_can_be_forced_on_a_model_and_hold_it_to_the_schema(
    smollm2: LocalModelSettings,
) -> None:
    tool = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
    provider = LocalProvider(smollm2.model_copy(update={"tools": "on"}))
    assert provider.offers_tools
    try:
        request = ModelRequest(PARIS.system, PARIS.messages, (tool,), max_output_tokens=60)
        deltas, reply = await answer(provider, request)
    finally:
        await provider.close()
    assert "".join(deltas) == reply.text
    assert reply.text or [call.name for call in reply.tool_calls] == ["now"]
    assert not reply.text.startswith("{")


async def test_missing_weights_name_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path))
    provider = LocalProvider(LocalModelSettings())
    with pytest.raises(ProviderError, match="run `parley model install smollm2`") as caught:
        await provider.check()
    assert not caught.value.worth_retrying
    await provider.close()


async def test_a_failed_warm_up_is_told_to_the_next_request_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path))
    provider = LocalProvider(LocalModelSettings())
    provider.warm()
    await until(lambda: provider._starting is None)
    with pytest.raises(ProviderError, match="parley model install"):
        await provider.check()
    await provider.close()


async def test_weights_that_are_damaged_are_named(
    smollm2: LocalModelSettings, tmp_path: Path
) -> None:
    from tests.agent.providers.local.test_gguf import gguf

    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(gguf())
    provider = LocalProvider(LocalModelSettings(weights=str(damaged)))
    with pytest.raises(ProviderError, match=r"could not be loaded from .*damaged\.gguf"):
        await provider.check()
    await provider.close()


def test_the_window_is_bounded_by_the_models_own(tmp_path: Path) -> None:
    assert LocalProvider(LocalModelSettings(context_tokens=100_000)).context_window == 8192
    assert LocalProvider(LocalModelSettings(context_tokens=1024)).context_window == 1024
    unknown = LocalModelSettings(weights=str(tmp_path / "none.gguf"), context_tokens=600)
    assert LocalProvider(unknown).context_window == 600


def test_tools_are_offered_to_models_known_for_them() -> None:
    offers = {
        (weights, tools): LocalProvider(
            LocalModelSettings.model_validate({"weights": weights, "tools": tools})
        ).offers_tools
        for weights in ("smollm2", "qwen")
        for tools in ("auto", "off")
    }
    assert [key for key, offered in offers.items() if offered] == [("qwen", "auto")]
