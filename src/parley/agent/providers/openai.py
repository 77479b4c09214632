"""Models behind the OpenAI chat completions format: OpenAI itself and all that speak like it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from parley.agent.providers.base import (
    ModelEvent,
    ModelReply,
    ModelRequest,
    ProviderError,
    ToolSpec,
)
from parley.agent.providers.calls import CallFragments
from parley.agent.providers.http import DONE, JsonObject, encode
from parley.agent.providers.remote import RemoteProvider
from parley.agent.providers.render import (
    arguments_text,
    count,
    output_limit,
    text_of,
)
from parley.protocol import ChatMessage, TextDelta, ToolCall, Usage

__all__ = ["OpenAIProvider"]

_NOT_SUPPORTED = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra (inputs|fields)|not permitted|not allowed",
    re.IGNORECASE,
)
_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"


class OpenAIProvider(RemoteProvider):
    """One model of one OpenAI-compatible server."""

    # What this server has shown that it does not take, so that it is asked for once only.
    _left_out: frozenset[str] = frozenset()
    _wants_new_limit = False

    @property
    def _limit_name(self) -> str:
        is_openai = self._server.peer.address.startswith("https://api.openai.com")
        return _NEW_LIMIT if is_openai or self._wants_new_limit else _OLD_LIMIT

    @staticmethod
    def _headers(api_key: str | None) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text as it comes, then the whole reply."""
        reply = _Reply()
        while True:
            payload = self._payload(request)
            try:
                async with aclosing(self._server.objects("/chat/completions", payload)) as objects:
                    async for item in objects:
                        if item is DONE:
                            reply.is_over = True
                        elif item.get("error"):
                            raise self._server.error(item["error"])
                        elif text := reply.add(item):
                            yield TextDelta(text)
                break
            except ProviderError as error:
                if reply.is_over and error.kind in {"broken", "timeout"}:
                    break  # all that was still to come was the count of tokens
                is_option = error.status in {400, 422} and not reply.has_begun
                if not is_option or not self._leave_out(str(error)):
                    raise
        yield self._finish(reply)

    def _payload(self, request: ModelRequest) -> bytes:
        messages: list[JsonObject] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for message in request.messages:
            if message.tool_calls or message.attachments or message.role == "tool":
                messages.append(_render(message))
            elif message.role == "user" or message.text.strip():
                # Nearly all of a long conversation: rendered here, as it is read every turn.
                messages.append({"role": message.role, "content": message.text})
        body: JsonObject = {"model": self._model, "messages": messages}
        if request.tools:
            body["tools"] = [_render_tool(tool) for tool in request.tools]
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
        limit = output_limit(request.max_output_tokens, self._max_output_tokens)
        if limit is not None:
            body[self._limit_name] = limit
        if self._temperature is not None:
            body["temperature"] = self._temperature
        for name in self._left_out:
            body.pop(name, None)
        return encode(body)

    def _leave_out(self, refusal: str) -> bool:
        """Whether the server refused a mere option of ours, which the next try does without."""
        if not _NOT_SUPPORTED.search(refusal):
            return False
        if self._limit_name == _OLD_LIMIT and _OLD_LIMIT in refusal:
            self._wants_new_limit = True
            return True
        for name in ("stream_options", _OLD_LIMIT, _NEW_LIMIT, "temperature"):
            if name in refusal and name not in self._left_out:
                self._left_out |= {name}
                return True
        return False

    def _finish(self, reply: _Reply) -> ModelReply:
        calls = reply.calls.finish()
        text = "".join(reply.pieces)
        if not reply.has_begun:
            raise ProviderError(
                f"{self._label} answered with something that is no reply; check "
                f"`providers.{self._label}.base_url`.",
                kind="broken",
            )
        if not reply.is_over:
            raise ProviderError(
                f"{self._label} broke off in the middle of its reply; try again in a moment.",
                kind="broken",
            )
        if reply.finish_reason == "content_filter" and not text and not calls:
            raise ProviderError(
                f"The content filter of {self._label} withheld the reply: put it another way.",
                kind="refused",
            )
        return ModelReply(
            text=text,
            usage=_usage(reply.usage, label=self._label, model=self._model),
            tool_calls=calls,
            complete=reply.finish_reason not in {"length", "max_tokens", "model_length"},
        )


class _Reply:
    """What has come of one reply so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.calls = CallFragments()
        self.finish_reason = ""
        self.has_begun = False
        self.is_over = False
        self.usage: Mapping[str, Any] = {}

    def add(self, item: JsonObject) -> str:
        """Take one object of the stream; return the text it adds."""
        usage = item.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        text = ""
        choices = item.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index"):
                continue  # one reply was asked for
            self.has_begun = True
            delta = choice.get("delta") or choice.get("message")
            if not isinstance(delta, dict):
                delta = {}
            # What the model thinks to itself (`reasoning_content`) is not for the person.
            text += _text(delta.get("content")) or _text(delta.get("refusal"))
            self.calls.add(delta.get("tool_calls"))
            if choice.get("finish_reason"):
                self.finish_reason = str(choice["finish_reason"])
                self.is_over = True
        if text:
            self.pieces.append(text)
        return text


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict))
        return "".join(str(p.get("text") or "") for p in parts if p.get("type") == "text")
    return ""


def _usage(usage: Mapping[str, Any], *, label: str, model: str) -> Usage:
    cached = count(usage.get("prompt_tokens_details"), "cached_tokens")
    return Usage(
        provider=label,
        model=model,
        input_tokens=count(usage, "prompt_tokens"),
        output_tokens=count(usage, "completion_tokens"),
        cached_tokens=cached or count(usage, "prompt_cache_hit_tokens"),
    )


def _render(message: ChatMessage) -> JsonObject:
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message.tool_call_id or "",
            "content": message.text,
        }
    if message.tool_calls:
        return {
            "role": "assistant",
            "content": message.text or None,
            "tool_calls": [_render_call(call) for call in message.tool_calls],
        }
    return {"role": message.role, "content": text_of(message)}


def _render_call(call: ToolCall) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


def _render_tool(tool: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }
