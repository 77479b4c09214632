"""The tools `web_fetch` and `web_search`, made from a profile's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import Field

from parley.agent.foreign import fenced, one_line
from parley.agent.question_text import describe_text
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolResult, tool
from parley.agent.tools.web.fetch import Fetched, Fetcher
from parley.agent.tools.web.search import Found, make_searcher
from parley.config.hands import WebSettings

__all__ = ["fetch_tool", "search_tool", "web_tools"]

_WINDOW: Final = 20_000
_LONGEST_RESULT: Final = _WINDOW + 5_000


class FetchArguments(Arguments):
    url: str
    start: int = Field(default=0, ge=0, description="character to begin with")


class SearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=400)
    count: int = Field(default=5, ge=1, le=10)


def web_tools(settings: WebSettings, secret: Callable[[str], str | None]) -> tuple[Tool[Any], ...]:
    """`secret` tells what stands in the profile's `.env` under a name."""
    return fetch_tool(Fetcher(settings)), search_tool(settings, secret)


def fetch_tool(fetcher: Fetcher) -> Tool[FetchArguments]:
    def guard(arguments: FetchArguments, context: ToolContext, taint: Taint) -> str | None:
        return None if taint.allows(arguments.url) else describe_text("open", arguments.url)

    @tool(
        safe_to_repeat=True,
        parallel=True,
        timeout_seconds=None,
        longest_result=_LONGEST_RESULT,
        guard=guard,
    )
    async def web_fetch(arguments: FetchArguments, context: ToolContext) -> ToolResult:
        """Read a public web page as Markdown."""
        fetched = await fetcher.fetch(arguments.url)
        return ToolResult(_shown(fetched, arguments.start), outside=fetched.address)

    return web_fetch


def search_tool(
    settings: WebSettings, secret: Callable[[str], str | None]
) -> Tool[SearchArguments]:
    def guard(arguments: SearchArguments, context: ToolContext, taint: Taint) -> str | None:
        """Whoever looks on from page to page is not asked; what stands elsewhere may be private."""
        return None if taint.is_public else describe_text("search the web for", arguments.query)

    @tool(safe_to_repeat=True, parallel=True, timeout_seconds=None, guard=guard)
    async def web_search(arguments: SearchArguments, context: ToolContext) -> str:
        """Search the web."""
        service = make_searcher(settings, secret)
        found = await service.search(arguments.query, arguments.count)
        if not found:
            return "Nothing was found; try other words."
        return fenced("results", "\n".join(map(_entry, range(1, len(found) + 1), found)))

    return web_search


def _shown(fetched: Fetched, start: int) -> str:
    text = fetched.page.text
    piece = text[start : start + _WINDOW]
    if not piece:
        piece = f"(the page has only {len(text)} characters)" if text else "(the page is empty)"
    end = start + _WINDOW
    note = f"{len(text) - end} characters more, go on with start={end}" if end < len(text) else ""
    title = one_line(fetched.page.title, 200)
    head = [f"# {title}"] if title and start == 0 else []
    return fenced("page", "\n".join([fetched.address, *head, "", piece]), note)


def _entry(number: int, found: Found) -> str:
    lines = [f"{number}. {found.title or '(no title)'}", f"   {found.url}"]
    return "\n".join([*lines, f"   {found.snippet}"] if found.snippet else lines)
