"""Models behind Anthropic's Messages format."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from parley.agent.providers.anthropic_messages import render_messages, render_system, render_tools
from parley.agent.providers.attachments import PDF, Loaded, Takes
from parley.agent.providers.base import ModelEvent, ModelReply, ModelRequest, ProviderError
from parley.agent.providers.calls import new_call_id, parse_arguments
from parley.agent.providers.http import DONE, JsonObject, encode
from parley.agent.providers.remote import RemoteProvider
from parley.agent.providers.render import arguments_text, count, output_limit
from parley.agent.providers.wishes import (
    PENALTIES,
    anthropic_options,
    check_tool_choice,
    json_schema_of,
    refuse_wishes,
    unsupported,
)
from parley.protocol import CallDelta, ReasoningDelta, TextDelta, ToolCall, Usage

__all__ = ["AnthropicProvider"]

_VERSION = "2023-06-01"
_DEFAULT_OUTPUT_TOKENS = 8192  # the format demands a limit


class AnthropicProvider(RemoteProvider):
    """One model of one server that speaks the Messages format."""

    @property
    def _takes(self) -> Takes:
        return Takes(pictures=True, documents=frozenset({PDF}))

    @property
    def _path(self) -> str:
        return "/messages" if self._server.path.endswith("/v1") else "/v1/messages"

    @staticmethod
    def _headers(api_key: str | None) -> Mapping[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": api_key} if api_key else {})}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text as it comes, then the whole reply."""
        check_tool_choice(request)
        if json_schema_of(request) is not None:
            raise unsupported(f"{self._label}'s model {self._model}", "response_format")
        who = f"{self._label}'s model {self._model}"
        refuse_wishes(request, who, *PENALTIES, "reasoning_effort")
        reply = _Reply()
        last_only = self._is_blind
        while True:
            payload = await self._encoded(request, last_only=last_only)
            try:
                async with aclosing(self._server.objects(self._path, payload)) as items:
                    async for item in items:
                        if item is DONE:
                            reply.is_over = True
                        elif item.get("type") == "error":
                            raise self._server.error(item.get("error"))
                        else:
                            for event in reply.add(item):
                                yield event
                break
            except ProviderError as error:
                if reply.stop_reason and error.kind in {"broken", "timeout"}:
                    break
                if reply.has_begun:
                    raise
                if not last_only and self._may_do_with_last(request, error):
                    last_only = True
                    continue
                explained = self._explained(request, error)
                if explained is error:
                    raise
                raise explained from error
        yield self._finish(reply)

    def _payload(self, request: ModelRequest, files: Loaded | None = None) -> bytes:
        limit = output_limit(request.max_output_tokens, self._max_output_tokens)
        usual = min(_DEFAULT_OUTPUT_TOKENS, self._context_window // 4)
        body: JsonObject = {"model": self._model, "max_tokens": limit or usual}
        if request.tools:
            body["tools"] = render_tools(request.tools)
        if request.system.strip():
            body["system"] = render_system(request.system)
        body["messages"] = render_messages(
            request.messages, with_tools=bool(request.tools), files=files
        )
        body["stream"] = True
        options = anthropic_options(request)
        # Later models take either of the two, and what a program wants goes first.
        if self._temperature is not None and "top_p" not in options:
            options = {"temperature": self._temperature, **options}
        if "temperature" in options:
            options["temperature"] = min(options["temperature"], 1.0)  # it goes no higher
        body |= options
        return encode(body)

    def _finish(self, reply: _Reply) -> ModelReply:
        calls = tuple(block.build() for _, block in sorted(reply.calls.items()))
        text = "".join(reply.pieces)
        if not reply.has_begun:
            raise ProviderError(
                f"{self._label} answered with something that is no reply; check "
                f"`providers.{self._label}.base_url`.",
                kind="broken",
            )
        if not reply.stop_reason and not reply.is_over:
            raise ProviderError(
                f"{self._label} broke off in the middle of its reply; try again in a moment.",
                kind="broken",
            )
        usage = reply.usage
        cached = usage.get("cache_read_input_tokens", 0)
        fresh = usage.get("input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
        return ModelReply(
            text=text,
            usage=Usage(
                provider=self._label,
                model=self._model,
                input_tokens=fresh + cached,
                output_tokens=usage.get("output_tokens", 0),
                cached_tokens=cached,
            ),
            tool_calls=calls,
            complete=reply.stop_reason
            not in {"max_tokens", "model_context_window_exceeded", "refusal"},
            filtered=reply.stop_reason == "refusal",
        )


class _Reply:
    """What has come of one reply so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.calls: dict[int, _Call] = {}
        self.usage: dict[str, int] = {}
        self.stop_reason = ""
        self.has_begun = False
        self.is_over = False

    def add(self, item: JsonObject) -> list[ModelEvent]:
        """Take one event of the stream; return what it adds."""
        events: list[ModelEvent] = []
        match item.get("type"):
            case "message_start":
                self.has_begun = True
                self._count(_object(item.get("message")).get("usage"))
            case "content_block_start":
                events = self._block(_index(item), _object(item.get("content_block")))
            case "content_block_delta":
                events = self._delta(_index(item), _object(item.get("delta")))
            case "message_delta":
                self.stop_reason = str(_object(item.get("delta")).get("stop_reason") or "")
                self._count(item.get("usage"))
            case "message":  # the whole reply at once, from a server that does not stream
                self.has_begun = True
                self.stop_reason = str(item.get("stop_reason") or "")
                self._count(item.get("usage"))
                blocks = item.get("content")
                for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
                    events += self._block(index, _object(block))
            case _:
                pass  # pings, and what later versions of the format may add
        return events

    def _block(self, index: int, block: JsonObject) -> list[ModelEvent]:
        if block.get("type") == "tool_use":
            place = len(self.calls)
            call = _Call(str(block.get("id") or new_call_id()), str(block.get("name")), place)
            self.calls[index] = call
            if written := _object(block.get("input")):
                call.pieces.append(arguments_text(written))
            return [call.delta("".join(call.pieces))]
        return self._said(block, block.get("type"))

    def _delta(self, index: int, delta: JsonObject) -> list[ModelEvent]:
        if delta.get("type") == "input_json_delta" and index in self.calls:
            piece = str(delta.get("partial_json") or "")
            self.calls[index].pieces.append(piece)
            return [self.calls[index].delta(piece)] if piece else []
        return self._said(delta, str(delta.get("type")).removesuffix("_delta"))

    def _said(self, part: JsonObject, kind: object) -> list[ModelEvent]:
        if kind == "text" and (text := str(part.get("text") or "")):
            self.pieces.append(text)
            return [TextDelta(text)]
        if kind == "thinking" and (thought := str(part.get("thinking") or "")):
            return [ReasoningDelta(thought)]
        return []

    def _count(self, usage: object) -> None:
        # The last event repeats only some of the numbers.
        for name in _object(usage):
            if name.endswith("_tokens") and (number := count(usage, name)):
                self.usage[name] = number


class _Call:
    __slots__ = ("id", "name", "pieces", "place")

    def __init__(self, call_id: str, name: str, place: int) -> None:
        self.id = call_id
        self.name = name
        self.place = place
        self.pieces: list[str] = []

    def delta(self, piece: str) -> CallDelta:
        return CallDelta(self.place, self.id, self.name, piece)

    def build(self) -> ToolCall:
        arguments = parse_arguments("".join(self.pieces))
        return ToolCall(self.id, self.name, arguments)


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _index(item: JsonObject) -> int:
    index = item.get("index")
    return index if isinstance(index, int) else 0
