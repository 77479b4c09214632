"""Builders for provider tests: requests, providers on a loopback server, whole streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from parley.agent.providers.base import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    Provider,
    ProviderError,
    ToolSpec,
)
from parley.agent.providers.openai import OpenAIProvider
from parley.protocol import ChatMessage, TextDelta
from tests.servers.scripted_model import Reply, ScriptedModel

KEY = "sk-test-very-secret-0123456789"

NOW = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}})


def ask(text: str = "hi", *, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest("Be brief.", (ChatMessage("user", text),), tools)


def openai(
    server: ScriptedModel,
    *,
    label: str = "here",
    key: str | None = KEY,
    timeout_seconds: float = 5.0,
    context_window: int = 8192,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
) -> OpenAIProvider:
    return OpenAIProvider(
        label,
        base_url=server.base_url,
        api_key=key,
        model="scripted",
        context_window=context_window,
        max_output_tokens=max_output_tokens,
        temperature=temperature,
        timeout_seconds=timeout_seconds,
        key_variable="HERE_API_KEY",
    )


def sse(*items: Mapping[str, Any] | str) -> Reply:
    """A stream of these objects, each its own piece; a text is sent as data as it is."""
    pieces = (item if isinstance(item, str) else json.dumps(item) for item in items)
    return Reply(raw=tuple(f"data: {piece}\n\n".encode() for piece in pieces))


def delta(*, finish: str | None = None, **fields: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


async def collect(provider: Provider, request: ModelRequest | None = None) -> list[ModelEvent]:
    """Every event of one stream; the provider is closed afterwards."""
    try:
        return [event async for event in provider.stream(request or ask())]
    finally:
        await provider.close()


async def final(provider: Provider, request: ModelRequest | None = None) -> ModelReply:
    reply = (await collect(provider, request))[-1]
    assert isinstance(reply, ModelReply)
    return reply


async def failure(provider: Provider, request: ModelRequest | None = None) -> ProviderError:
    try:
        events = await collect(provider, request)
    except ProviderError as error:
        return error
    raise AssertionError(f"it answered: {events}")


def text_of(events: list[ModelEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]
