"""What the scripted model says: by a script, by directives in a message, or an echo."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Reply", "Usage", "answer", "directed", "echo"]


@dataclass(frozen=True, slots=True)
class Usage:
    input: int = 7
    output: int = 3
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `raw`, when given, is written piece by piece instead of everything else.

    `cut_after` ends the connection without a good-bye once so many events were written.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    argument_chunks: int = 0
    """In how many pieces the arguments of each call are streamed; 0 for calls that come whole."""
    chunks: int = 1
    delay: float = 0.0
    chunk_delay: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    cut_after: int | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    raw: tuple[bytes, ...] | None = None
    content_type: str = "text/event-stream"

    def pieces(self) -> list[str]:
        """The text in `chunks` parts of about the same length."""
        return _parts(self.text, self.chunks)

    def calls(self) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "id": f"call{next(_CALL_NUMBERS):05}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(dict(arguments))},
            }
            for index, (name, arguments) in enumerate(self.tool_calls)
        ]

    def events(self, *, with_usage: bool) -> list[bytes]:
        """The events of the answer as an OpenAI server streams it."""
        thoughts = _parts(self.reasoning, self.chunks)
        events = [_event({"role": "assistant", "reasoning_content": each}) for each in thoughts]
        events += [_event({"role": "assistant", "content": piece}) for piece in self.pieces()]
        if self.argument_chunks:
            events += self._calls_in_pieces()
        elif self.tool_calls:
            events.append(_event({"role": "assistant", "tool_calls": self.calls()}))
        events.append(_event({}, finish_reason=self._reason()))
        if with_usage:
            events.append(_data({**_HEAD, "choices": [], "usage": self._usage()}))
        events.append(b"data: [DONE]\n\n")
        return events

    def _calls_in_pieces(self) -> list[bytes]:
        events = []
        for call in self.calls():
            written = call["function"]["arguments"]
            begun = {**call, "function": {**call["function"], "arguments": ""}}
            events.append(_event({"role": "assistant", "tool_calls": [begun]}))
            for piece in _parts(written, self.argument_chunks):
                more = {"index": call["index"], "function": {"arguments": piece}}
                events.append(_event({"tool_calls": [more]}))
        return events

    def whole(self) -> bytes:
        """The answer to a request that asked for no stream."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self.tool_calls:
            message["tool_calls"] = self.calls()
        choice = {"index": 0, "message": message, "finish_reason": self._reason()}
        whole = {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return json.dumps(whole).encode()

    def _reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def _usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.usage.input,
            "completion_tokens": self.usage.output,
            "total_tokens": self.usage.input + self.usage.output,
            "prompt_tokens_details": {"cached_tokens": self.usage.cached},
            "completion_tokens_details": {"reasoning_tokens": self.usage.reasoning},
        }


_CALL_NUMBERS = itertools.count(1)
_HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}


def _parts(text: str, most: int) -> list[str]:
    size, count = len(text), min(most, len(text))
    return [text[size * i // count : size * (i + 1) // count] for i in range(count)]


def _data(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _event(delta: Mapping[str, Any], *, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish_reason}
    return _data({**_HEAD, "choices": [choice]})


def answer(request: Mapping[str, Any], seen: dict[str, int]) -> Reply:
    """The default behaviour: directives of the messages if there are any, else an echo."""
    texts, results = _since_last_reply(request)
    return directed(texts, results, seen=seen) or Reply(text=echo(texts))


def echo(texts: list[str]) -> str:
    return "echo: " + " | ".join(texts)


def _since_last_reply(request: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The user texts and the tool results after the last assistant message with content."""
    texts: list[str] = []
    results: list[str] = []
    for message in reversed(request.get("messages") or []):
        role, content = message.get("role"), _plain(message.get("content"))
        if role == "assistant" and content:
            break
        if role == "user":
            texts.insert(0, content)
        elif role == "tool":
            results.insert(0, content)
    return texts, results


def _plain(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


_DIRECTIVE = re.compile(r"\[\[(\w+)\s*(.*?)\s*\]\]", re.DOTALL)


def directed(texts: list[str], results: list[str], *, seen: dict[str, int]) -> Reply | None:
    """What the directives ask for; `seen` counts failures, so that `times N` comes to an end.

    `[[tool NAME JSON]]` counts in every text; the others only in the last one:
    `[[delay S]]`, `[[chunks N]]`, `[[pace S]]` (between chunks), `[[long N]]` (words),
    `[[status N retry-after S times N]]`, `[[cut times N]]` (half-way).
    """
    if not texts or not any("[[" in text for text in texts):
        return None
    last = dict(_DIRECTIVE.findall(texts[-1]))
    tools = [rest for text in texts for name, rest in _DIRECTIVE.findall(text) if name == "tool"]
    delay = float(last.get("delay", 0))
    if "status" in last and _again(texts[-1], last["status"], seen):
        words = last["status"].split()
        wait = words[words.index("retry-after") + 1] if "retry-after" in words else None
        return Reply(
            status=int(words[0]),
            delay=delay,
            headers={} if wait is None else {"Retry-After": wait},
            body=json.dumps({"error": {"message": f"status {words[0]} as you asked"}}),
        )
    chunks = int(last.get("chunks", 1))
    pace = float(last.get("pace", 0))
    if len(results) < len(tools):
        calls = tuple(_tool(rest) for rest in tools[len(results) :])
        return Reply(tool_calls=calls, delay=delay)
    text = f"tool said: {' | '.join(results)}" if tools else echo(texts)
    if "long" in last:
        text = " ".join(f"word{n}" for n in range(1, int(last["long"]) + 1))
    if "cut" in last and _again(texts[-1], last["cut"], seen):
        return Reply(text=text, chunks=max(2, chunks), delay=delay, cut_after=1, chunk_delay=pace)
    return Reply(text=text, chunks=chunks, delay=delay, chunk_delay=pace)


def _tool(rest: str) -> tuple[str, Mapping[str, Any]]:
    name, _, arguments = rest.partition(" ")
    return name, json.loads(arguments or "{}")


def _again(text: str, rest: str, seen: dict[str, int]) -> bool:
    words = rest.split()
    if "times" not in words:
        return True
    if seen.get(text, 0) >= int(words[words.index("times") + 1]):
        return False
    seen[text] = seen.get(text, 0) + 1
    return True
