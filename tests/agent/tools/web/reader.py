"""Somebody who reads pages with `web_fetch`, with names that mean what the test says."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from parley.agent.tools import ToolResult
from parley.agent.tools.web.destination import resolve_name
from parley.agent.tools.web.fetch import Fetcher
from parley.agent.tools.web.toolset import fetch_tool
from parley.config.hands import WebSettings
from parley.protocol import ToolCall
from tests.agent.builders import context

__all__ = ["Names", "Reader"]


@dataclass
class Names:
    """What each name resolves to: one answer after the other, the last one for ever."""

    answers: dict[str, list[list[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def means(self, name: str, *answers: list[str]) -> None:
        self.answers[name] = list(answers)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        known = self.answers.get(host)
        if known is None:
            return await resolve_name(host, port)
        return known.pop(0) if len(known) > 1 else known[0]


class Reader:
    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        seconds: float = 30,
        megabytes: int = 5,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.names = Names()
        settings = WebSettings(allow=list(allow), timeout_seconds=seconds, fetch_mb=megabytes)
        self.tool = fetch_tool(Fetcher(settings, resolve=self.names.resolve, tls=tls))

    async def reads(self, url: str, **arguments: object) -> ToolResult:
        call = ToolCall("c1", "web_fetch", {"url": url, **arguments})
        return await self.tool.run(call, context())
