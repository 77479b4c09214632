"""Taint of a turn: text in its context that nobody in the conversation wrote. Pure.

The mark is no state of its own: it is read from the messages, which are journaled before the model
sees them. So it is there after a restart, and it goes when a turn is undone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from parley.agent.foreign import one_line
from parley.agent.question_text import shown_name
from parley.protocol import ChatMessage, ToolCall

if TYPE_CHECKING:
    from parley.agent.tools.base import Tool

__all__ = ["Taint", "described_by", "find_taint", "sources_named"]

_OWN_RESULTS: Final = frozenset(
    {
        *("clarify", "edit_file", "memory", "now", "remember", "remind", "schedule"),
        *("send_file", "todo", "write_file"),
    }
)
"""Tools that answer in Parley's words, or with what was written in the conversation itself."""
_LONGEST_SOURCE: Final = 200
_MOST_NAMED: Final = 3
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`]+", re.IGNORECASE)
_ANY_ADDRESS: Final = re.compile(
    r"(?<![a-z0-9+.-])[a-z0-9][a-z0-9+.-]*://[^\s<>\"'`]+", re.IGNORECASE
)
_HOST: Final = re.compile(r"(?<![\w@./-])(?:[a-z0-9-]+\.)+[a-z]{2,}(?![\w@-])", re.IGNORECASE)
# Without a scheme: a host of a host, one with a port, path or query, or an address in numbers.
_BARE_ADDRESS: Final = re.compile(
    r"(?<![\w@.:+-])(?<![\w.:-]/)"
    r"(?:(?:[a-z0-9_-]+\.){2,}[a-z][a-z0-9-]+|[a-z0-9_-]+\.[a-z]{2,}(?=[/?:\\])"
    r"|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:.]+\]|[\w.+-]+@[\w.-]+(?=[/:]))"
    r"(?:[/?:][^\s<>\"'`]*)?",
    re.IGNORECASE,
)
_WEB: Final = frozenset({"web_fetch", "web_search"})
_AFTER_ADDRESS: Final = ".,;:!?)]}>*_"
_FOUND: Final = re.compile(r"^\d+\. .*\n   (https?://\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Taint:
    """Where the outside text comes from, newest first, and the messages that were said."""

    sources: tuple[str, ...]
    messages: tuple[ChatMessage, ...]
    is_public: bool = False
    """Whether all of it was found on the web, so that none of it is anybody's secret."""

    @cached_property
    def named(self) -> str:
        """The sources in one line; of many the newest."""
        more = len(self.sources) - _MOST_NAMED
        rest = (f"{more} more",) if more > 0 else ()
        return ", ".join((*self.sources[:_MOST_NAMED], *rest))

    @property
    def shown(self) -> str:
        """The sources as a question names them: what others chose stands as code."""
        more = len(self.sources) - _MOST_NAMED
        rest = (f"{more} more",) if more > 0 else ()
        return ", ".join((*map(shown_name, self.sources[:_MOST_NAMED]), *rest))

    def allows(self, url: str) -> bool:
        """Whether a person wrote this very address, or it is a result of a web search.

        Of a host that they named, its first page. Any other address may carry data out in its
        path or query, also to a host that a person named.
        """
        wanted = _parts(url)
        if wanted is None:
            return False
        host, rest = wanted
        return wanted in self._addresses or (rest == "/" and host in self._hosts)

    def allows_all_in(self, text: str) -> bool:
        """Whether it names no address, with a scheme or without, but those that `allows` does."""
        known = _ANY_ADDRESS.sub(
            lambda found: " " if self._allows_one(found[0]) else found[0], text
        )
        if _ANY_ADDRESS.search(known):
            return False
        bare = (found[0] for found in _BARE_ADDRESS.finditer(known))
        return all(self._allows_one(f"http://{each}") for each in bare)

    def _allows_one(self, url: str) -> bool:
        """Whether it is allowed with all, or none, of the punctuation behind it."""
        return self.allows(url) or self.allows(url.rstrip(_AFTER_ADDRESS))

    @cached_property
    def _addresses(self) -> frozenset[tuple[str, str]]:
        found = {_parts(url) for text in self._said for url in _addresses_in(text)}
        found |= {
            _parts(url)
            for message in self.messages
            if _is_ours(message, "web_search")
            for url in _FOUND.findall(message.text)
        }
        return frozenset(each for each in found if each is not None)

    @cached_property
    def _hosts(self) -> frozenset[str]:
        bare = {_host(name) for text in self._said for name in _HOST.findall(text)}
        return frozenset(bare | {host for host, _ in self._addresses})

    @cached_property
    def _said(self) -> tuple[str, ...]:
        """What people said, and what was planned in their name."""
        return tuple(
            message.text
            for message in self.messages
            if message.role == "user" and not message.outside
        )


def find_taint(
    messages: Sequence[ChatMessage], *, before: str = "", others: Iterable[str] = ()
) -> Taint | None:
    """The taint of a context; None when people wrote all of it.

    `before` names sources in front of the messages, `others` those in the prompt itself.
    """
    found = tuple(_sources_in(messages))
    known = dict.fromkeys(source for source, _ in reversed(found))
    public = all(is_public for _, is_public in found)
    for source in (before, *others):
        if source:
            known[source], public = None, False
    return Taint(tuple(known), tuple(messages), public) if known else None


def sources_named(
    messages: Iterable[ChatMessage], *, before: str = "", others: Iterable[str] = ()
) -> str:
    """The sources of outside text in a context in one line; empty when people wrote all of it."""
    taint = find_taint(tuple(messages), before=before, others=others)
    return "" if taint is None else taint.named


def described_by(tools: Iterable[Tool[Any]]) -> tuple[str, ...]:
    """Who wrote what the model is told of these tools, where that is not us."""
    return tuple(dict.fromkeys(tool.described_by for tool in tools if tool.described_by))


def _sources_in(messages: Iterable[ChatMessage]) -> Iterator[tuple[str, bool]]:
    """The source of each text among them that nobody in the conversation wrote, in their order.

    And whether it was found on the web.
    """
    calls: dict[str, ToolCall] = {}
    for message in messages:
        for call in message.tool_calls:
            calls[call.id] = call
        if message.outside:
            yield one_line(message.outside, _LONGEST_SOURCE), _is_ours(message, "web_fetch")
        elif message.role == "tool" and message.outside is None:
            name = message.tool_name or ""
            if name not in _OWN_RESULTS and message.note != "unknown-outcome":
                yield _source_of(name, calls.get(message.tool_call_id or "")), name in _WEB
        if message.role == "user":
            for file in message.attachments:
                yield f"the attachment {one_line(file.name, _LONGEST_SOURCE)}", False


def _is_ours(message: ChatMessage, tool: str) -> bool:
    """Whether it is a result of this tool of ours: a program's has the program for its source."""
    if message.role != "tool" or message.tool_name != tool:
        return False
    outside = message.outside
    return outside is None or outside.startswith(("http://", "https://"))


def _source_of(name: str, call: ToolCall | None) -> str:
    """What a result of this tool came from, by the arguments of its call."""
    arguments = {} if call is None else call.arguments
    known = _SOURCES.get(name)
    told = known(arguments) if known is not None else f"the tool {name or 'of a program'}"
    return one_line(told, _LONGEST_SOURCE)


def _given(name: str, what: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda arguments: f"{what}{arguments.get(name, '')}".strip()


_SOURCES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "delegate_task": lambda arguments: "a delegated task",
    "list_files": _given("path", "the folder "),
    "process": lambda arguments: "the output of a background process",
    "read_file": _given("path", "the file "),
    "read_skill": _given("name", "the skill "),
    "run_command": _given("command", "the output of "),
    "search_files": _given("path", "files in "),
    "session_search": lambda arguments: "earlier conversations",
    "terminal": _given("command", "the output of "),
    "web_fetch": _given("url", ""),
    "web_search": lambda arguments: "web search results",
}


def _addresses_in(text: str) -> Iterator[str]:
    """The web addresses in a text, each with and without the punctuation behind it."""
    for found in _ADDRESS.findall(text):
        yield found
        yield found.rstrip(_AFTER_ADDRESS)


def _parts(url: str) -> tuple[str, str] | None:
    """Host with port, and the rest; the scheme and `www.` make no other address."""
    try:
        split = urlsplit(url.strip())
        port = split.port
    except ValueError:
        return None
    if split.scheme.lower() not in ("http", "https") or not split.hostname or split.username:
        return None
    host = _host(split.hostname)
    if port is not None and port not in (80, 443):
        host = f"{host}:{port}"
    query = f"?{split.query}" if split.query else ""
    return host, f"{split.path or '/'}{query}"


def _host(name: str) -> str:
    return name.lower().rstrip(".").removeprefix("www.")
