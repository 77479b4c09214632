"""Who searches the web for the agent: one small adapter for each service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from parley import __version__
from parley.agent.foreign import one_line
from parley.agent.tools.base import ToolError
from parley.agent.tools.web.html_page import plain_text
from parley.config.hands import SearchSettings, WebSettings

__all__ = ["SEARCHERS", "Found", "Searcher", "make_searcher"]

Secret: TypeAlias = Callable[[str], str | None]

_LARGEST_ANSWER: Final = 2_000_000
_MOST_RESULTS: Final = 50


@dataclass(frozen=True, slots=True)
class Found:
    """One result, as others wrote it; each part on one line."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Question:
    """The request a service wants. `path` follows its address."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None


class Searcher(Protocol):
    """How one service is asked, and where the results stand in what it says."""

    address: str | None
    needs_key: bool

    def question(self, query: str, count: int, key: str) -> Question: ...
    def results(self, said: Any) -> Any: ...
    def found(self, result: Mapping[str, Any]) -> Found: ...


class Searxng:
    address: str | None = None
    needs_key = False

    def question(self, query: str, count: int, key: str) -> Question:
        return Question("GET", "/search", query={"q": query, "format": "json"})

    def results(self, said: Any) -> Any:
        return said["results"]

    def found(self, result: Mapping[str, Any]) -> Found:
        return _found(result.get("title"), result.get("url"), result.get("content"))


class Brave:
    address: str | None = "https://api.search.brave.com"
    needs_key = True

    def question(self, query: str, count: int, key: str) -> Question:
        return Question(
            "GET",
            "/res/v1/web/search",
            query={"q": query, "count": str(count)},
            headers={"X-Subscription-Token": key},
        )

    def results(self, said: Any) -> Any:
        return said.get("web", {}).get("results", [])

    def found(self, result: Mapping[str, Any]) -> Found:
        return _found(result.get("title"), result.get("url"), result.get("description"))


class Tavily:
    address: str | None = "https://api.tavily.com"
    needs_key = True

    def question(self, query: str, count: int, key: str) -> Question:
        return Question(
            "POST",
            "/search",
            body={"query": query, "max_results": count},
            headers={"Authorization": f"Bearer {key}"},
        )

    def results(self, said: Any) -> Any:
        return said["results"]

    def found(self, result: Mapping[str, Any]) -> Found:
        return _found(result.get("title"), result.get("url"), result.get("content"))


SEARCHERS: Final[Mapping[str, Callable[[], Searcher]]] = {
    "searxng": Searxng,
    "brave": Brave,
    "tavily": Tavily,
}


@dataclass(frozen=True, slots=True)
class Service:
    """A searcher with its address and key, ready to be asked."""

    name: str
    searcher: Searcher
    address: str
    key: str
    seconds: float

    async def search(self, query: str, count: int) -> Sequence[Found]:
        question = self.searcher.question(query, count, self.key)
        try:
            async with asyncio.timeout(self.seconds):
                said = await self._ask(question)
        except TimeoutError:
            raise ToolError(f"{self.name} took longer than {self.seconds:g} s.") from None
        try:
            every = await asyncio.to_thread(self._read, said)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise ToolError(f"{self.name} sent an answer that cannot be read.") from None
        return [found for found in every if found.url][:count]

    def _read(self, said: bytes) -> list[Found]:
        results = self.searcher.results(json.loads(said))
        return [self.searcher.found(result) for result in results[:_MOST_RESULTS]]

    async def _ask(self, question: Question) -> bytes:
        """A fault is told without its cause, which may hold the key."""
        import aiohttp

        from parley.agent.providers.connections import read_at_most

        try:
            async with (
                aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": f"parley/{__version__}", "Accept": "application/json"},
                ) as session,
                session.request(
                    question.method,
                    self.address.rstrip("/") + question.path,
                    params=question.query,
                    json=question.body,
                    headers=question.headers,
                    allow_redirects=False,  # the key is for this address alone
                ) as response,
            ):
                if response.status != 200:
                    raise ToolError(_refusal(self.name, response.status))
                said = await read_at_most(response.content, _LARGEST_ANSWER + 1)
        except (aiohttp.ClientError, ValueError, OSError):
            raise ToolError(
                f"{self.name} could not be reached; look at the setting `web.search.url`."
            ) from None
        if len(said) > _LARGEST_ANSWER:
            raise ToolError(f"{self.name} sent more than {_LARGEST_ANSWER // 1_000_000} MB.")
        return said


def make_searcher(settings: WebSettings, secret: Secret) -> Service:
    """What the settings name, or a sentence that says which setting is missing."""
    search = settings.search
    if search.provider is None:
        names = "|".join(SEARCHERS)
        raise ToolError(
            "Nobody is set up to search the web; "
            f"tell the operator to run `parley config set web.search.provider {names}`."
        )
    name = search.provider
    searcher = SEARCHERS[name]()
    address = search.url or searcher.address
    if not address:
        raise ToolError(
            f"{name} has no address; "
            "tell the operator to run `parley config set web.search.url https://…`."
        )
    key = _key(search, secret) if searcher.needs_key else ""
    return Service(name, searcher, address, key, settings.timeout_seconds)


def _key(search: SearchSettings, secret: Secret) -> str:
    if search.key_env is None:
        raise ToolError(
            f"{search.provider} needs a key; tell the operator to put it into `.env` "
            "and its variable's name into the setting `web.search.key_env`."
        )
    key = (secret(search.key_env) or "").strip()
    if not key:
        raise ToolError(
            f"{search.provider} needs a key; tell the operator to put `{search.key_env}` "
            "into `.env`."
        )
    return key


def _refusal(name: str, status: int) -> str:
    if status in {401, 403}:
        return f"{name} refused the request ({status}); the operator may look at its key."
    if status == 429:
        return f"{name} wants fewer requests ({status}); try again later."
    return f"{name} answered {status}; try again later."


def _found(title: object, url: object, snippet: object) -> Found:
    address = one_line(str(url or ""), 1000)
    if not address.startswith(("http://", "https://")):
        address = ""
    return Found(_words(title, 150), address, _words(snippet, 300))


def _words(value: object, longest: int) -> str:
    return one_line(plain_text(str(value or "")[:5000]), longest)
