"""Models behind the OpenAI chat completions format: OpenAI itself and all that speak like it."""

from __future__ import annotations

import operator
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Set
from contextlib import aclosing
from typing import Any

from parley.agent.providers.attachments import (
    PDF,
    Loaded,
    Shown,
    Takes,
    named,
    parts_of,
    with_parts,
)
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
from parley.agent.providers.render import arguments_text, count, output_limit, reasoning_in
from parley.agent.providers.wishes import (
    check_tool_choice,
    openai_options,
    refused_wish,
    unsupported,
)
from parley.protocol import CallDelta, ChatMessage, ReasoningDelta, TextDelta, ToolCall, Usage

__all__ = ["OpenAIProvider"]

_NOT_SUPPORTED = re.compile(
    r"support|unrecogni[sz]ed|unknown|unexpected|extra (inputs|fields)|not permitted|not allowed"
    r"|(not|un)[ -]?(available|enabled|implemented)|only allowed",
    re.IGNORECASE,
)
_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_MERE_OPTIONS = (
    "stream_options",
    _OLD_LIMIT,
    _NEW_LIMIT,
    "temperature",
    "top_p",
    "seed",
    "parallel_tool_calls",
)
_OFFICE = "application/vnd.openxmlformats-officedocument"
_TAKES = Takes(pictures=True)
_TAKES_FILES = Takes(
    pictures=True,
    documents=frozenset(
        {
            PDF,
            "application/msword",
            "application/vnd.ms-excel",
            "application/vnd.ms-powerpoint",
            f"{_OFFICE}.wordprocessingml.document",
            f"{_OFFICE}.spreadsheetml.sheet",
            f"{_OFFICE}.presentationml.presentation",
        }
    ),
)


class OpenAIProvider(RemoteProvider):
    """One model of one OpenAI-compatible server."""

    # What this server has shown that it does not take, so that it is asked for once only.
    _left_out: frozenset[str] = frozenset()
    _wants_new_limit = False
    _last_told: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    @property
    def _is_openai(self) -> bool:
        return self._server.peer.address.startswith("https://api.openai.com")

    @property
    def _takes(self) -> Takes:
        return _TAKES_FILES if self._is_openai else _TAKES

    @property
    def _limit_name(self) -> str:
        return _NEW_LIMIT if self._is_openai or self._wants_new_limit else _OLD_LIMIT

    @staticmethod
    def _headers(api_key: str | None) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text as it comes, then the whole reply."""
        check_tool_choice(request)
        reply = _Reply()
        last_only = self._is_blind
        while True:
            # As they are now: others who ask at the same time may find that some are refused.
            asked = self._options(request).keys() - self._left_out
            payload = await self._encoded(request, last_only=last_only)
            try:
                async with aclosing(self._server.objects("/chat/completions", payload)) as objects:
                    async for item in objects:
                        if item is DONE:
                            reply.is_over = True
                        elif item.get("error"):
                            raise self._server.error(item["error"])
                        else:
                            for event in reply.add(item):
                                yield event
                break
            except ProviderError as error:
                if reply.is_over and error.kind in {"broken", "timeout"}:
                    break  # all that was still to come was the count of tokens
                if reply.has_begun:
                    raise
                if not last_only and self._may_do_with_last(request, error):
                    last_only = True
                elif not self._leave_out(asked, request, error):
                    explained = self._explained(request, error)
                    if explained is error:
                        raise
                    raise explained from error
        yield self._finish(reply)

    def _payload(self, request: ModelRequest, files: Loaded | None = None) -> bytes:
        messages: list[JsonObject] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for place, message in enumerate(request.messages):
            if message.tool_calls or message.attachments or message.role == "tool":
                messages.append(_render(message, place, files))
            elif message.name is not None:
                messages.append(
                    {"role": message.role, "content": message.text, "name": message.name}
                )
            elif message.role == "user" or message.text.strip():
                # Nearly all of a long conversation: rendered here, as it is read every turn.
                messages.append({"role": message.role, "content": message.text})
        body: JsonObject = {"model": self._model, "messages": messages, "stream": True}
        body |= self._options(request)
        for name in self._left_out:
            body.pop(name, None)
        encoded = encode(body)
        if not request.tools:
            return encoded
        return b"".join((encoded[:-1], b',"tools":', self._told(request.tools), b"}"))

    def _told(self, tools: tuple[ToolSpec, ...]) -> bytes:
        """The tools as they are sent: written out once, since most requests have the same ones."""
        known, written = self._last_told
        same = len(known) == len(tools) and all(map(operator.is_, known, tools))
        if not same:
            written = encode([_render_tool(tool) for tool in tools])
            self._last_told = (tools, written)
        return written

    def _options(self, request: ModelRequest) -> JsonObject:
        options: JsonObject = {"stream_options": {"include_usage": True}}
        limit = output_limit(request.max_output_tokens, self._max_output_tokens)
        if limit is not None:
            options[self._limit_name] = limit
        if self._temperature is not None:
            options["temperature"] = self._temperature
        return options | openai_options(request)

    def _leave_out(self, asked: Set[str], request: ModelRequest, error: ProviderError) -> bool:
        """Whether the server refused one of the mere options `asked`: the next try is without."""
        refusal = str(error)
        if error.status not in {400, 422} or not _NOT_SUPPORTED.search(refusal):
            return False
        if _OLD_LIMIT in asked and _OLD_LIMIT in refusal:
            self._wants_new_limit = True
            return True
        spoken_of = (
            (match.start(), name)
            for name in _MERE_OPTIONS
            if name in asked and (match := re.search(rf"\b{name}\b", refusal))
        )
        # What a refusal is about it names first; what else it names may be what would do.
        first = min(filter(None, (*spoken_of, refused_wish(request, refusal))), default=None)
        if first is None or first[1] not in _MERE_OPTIONS:
            return False
        self._left_out |= {first[1]}
        return True

    def _explained(self, request: ModelRequest, error: ProviderError) -> ProviderError:
        if error.status in {400, 422, 501} and _NOT_SUPPORTED.search(str(error)):
            wish = refused_wish(request, str(error))
            if wish is not None:
                who = f"{self._label}'s model {self._model}"
                return unsupported(who, wish[1], status=error.status, why=str(error).rstrip("."))
        return super()._explained(request, error)

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
        return ModelReply(
            text=text,
            usage=_usage(reply.usage, label=self._label, model=self._model),
            tool_calls=calls,
            complete=reply.finish_reason
            not in {"length", "max_tokens", "model_length", "content_filter"},
            filtered=reply.finish_reason == "content_filter",
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

    def add(self, item: JsonObject) -> list[ModelEvent]:
        """Take one object of the stream; return what it adds."""
        usage = item.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        text = thought = ""
        calls: list[CallDelta] = []
        choices = item.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index"):
                continue  # one reply was asked for
            self.has_begun = True
            delta = choice.get("delta") or choice.get("message")
            if not isinstance(delta, dict):
                delta = {}
            thought += reasoning_in(delta)
            text += _text(delta.get("content")) or _text(delta.get("refusal"))
            if "tool_calls" in delta:
                calls += self.calls.add(delta["tool_calls"])
            if choice.get("finish_reason"):
                self.finish_reason = str(choice["finish_reason"])
                self.is_over = True
        events: list[ModelEvent] = [ReasoningDelta(thought)] if thought else []
        if text:
            self.pieces.append(text)
            events.append(TextDelta(text))
        events += calls
        return events


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
        reasoning_tokens=count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _render(message: ChatMessage, place: int, files: Loaded | None) -> JsonObject:
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message.tool_call_id or "",
            "content": message.text,
        }
    who = {} if message.name is None else {"name": message.name}
    if message.tool_calls:
        return {
            "role": "assistant",
            "content": message.text or None,
            "tool_calls": [_render_call(call) for call in message.tool_calls],
        } | who
    if message.role == "user" and files is not None:
        return _render_files(message, place, files) | who
    return {"role": message.role, "content": named(message)} | who


def _render_files(message: ChatMessage, place: int, files: Loaded) -> JsonObject:
    parts = list(parts_of(message, place, files))
    shown = [_render_shown(part) for part in parts if isinstance(part, Shown)]
    text = with_parts(message.text, parts)
    if not shown:
        return {"role": message.role, "content": text}
    words = [{"type": "text", "text": text}] if text else []
    return {"role": message.role, "content": [*words, *shown]}


def _render_shown(part: Shown) -> JsonObject:
    url = part.url or f"data:{part.media_type};base64,{b64encode(part.data).decode()}"
    if part.kind == "picture":
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    return {"type": "file", "file": {"filename": part.name, "file_data": url}}


def _render_call(call: ToolCall) -> JsonObject:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


def _render_tool(tool: ToolSpec) -> JsonObject:
    return {"type": "function", "function": tool.to_dict()}
