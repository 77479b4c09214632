"""The provider for the model on this machine: it starts a child when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.agent.providers.attachments import Takes, has_files, load_attachments
from parley.agent.providers.base import ModelEvent, ModelReply, ModelRequest, ProviderError
from parley.agent.providers.local.answers import StreamPiece, read_error, read_piece
from parley.agent.providers.local.history import WireMessage, wire_messages
from parley.agent.providers.local.jsontext import ReplyReader
from parley.agent.providers.local.options import local_options
from parley.agent.providers.local.pool import CLOSED, Lease, ModelPool
from parley.agent.providers.local.process import NO_RUNTIME, ModelProcess, Wanted
from parley.agent.providers.local.runtime import has_runtime
from parley.agent.providers.local.schema import read_call, read_reply
from parley.agent.providers.local.weights import CATALOGUE, LocalModel, Weights, find_weights
from parley.agent.providers.pdf_text import pdf_texts
from parley.agent.providers.wishes import json_schema_of
from parley.config.settings import LocalModelSettings
from parley.protocol import ChatMessage, ParleyError, TextDelta, Usage

if TYPE_CHECKING:
    import aiohttp

__all__ = ["LocalProvider"]

_SMALL = 4_500_000_000
_ENDED = "The local model's process ended while it was answering: ask again, it starts anew."


class LocalProvider:
    """Answers with the weights that `settings` names, by a child that it shares with all of `pool`.

    Without a pool it has a child of its own, whose chatter goes to `log_dir`.
    """

    def __init__(
        self,
        settings: LocalModelSettings,
        *,
        pool: ModelPool | None = None,
        log_dir: Path | None = None,
    ) -> None:
        self._settings = settings
        self._pool = ModelPool(log_dir) if pool is None else pool
        # What is cached in a shared child tells something of the others' prompts.
        self._may_tell_cached = pool is None
        self._lease: Lease | None = None
        self._starting: asyncio.Task[ModelProcess] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        known = CATALOGUE.get(settings.weights)
        self._model = known.name if known else Path(settings.weights).stem
        self._known: LocalModel | Weights | None = known

    @property
    def label(self) -> str:
        return "local"

    @property
    def model(self) -> str:
        return self._model

    @property
    def context_window(self) -> int:
        wanted, known = self._settings.context_tokens, self._about
        return wanted if known is None else min(wanted, known.context_window)

    @property
    def offers_tools(self) -> bool:
        if self._settings.tools == "auto":
            return self._about is not None and self._about.tools
        return self._settings.tools == "on"

    @property
    def is_small(self) -> bool:
        return self._about is not None and 0 < self._about.parameters <= _SMALL

    @property
    def _about(self) -> LocalModel | Weights | None:
        """What is known of the model without loading it."""
        if self._known is None:
            # Missing or damaged weights are told of when a reply is asked for, not here.
            with contextlib.suppress(ParleyError):
                self._known = find_weights(self._settings.weights)
        return self._known

    @property
    def _running(self) -> ModelProcess | None:
        return self._lease.running if self._lease is not None else None

    @property
    def _longest_reply(self) -> int:
        known = CATALOGUE.get(self._settings.weights)
        quarter = self.context_window // 4
        return min(quarter, known.longest_reply) if known else quarter

    def warm(self) -> None:
        """Begin to load the weights in the background, so that the first reply comes sooner."""
        if self._running is None and not self._closed:
            self._begin()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        with_tools = self.offers_tools and bool(request.tools)
        body: dict[str, Any] = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "repeat_penalty": 1.0,
            # A small model may never come to an end by itself.
            "max_tokens": request.max_output_tokens or self._longest_reply,
            **local_options(request, with_tools=with_tools),
            "messages": await self._messages(request, with_tools=with_tools),
        }
        gives_json = json_schema_of(request) is not None
        reader = ReplyReader() if with_tools and not gives_json else None
        is_whole = with_tools and gives_json  # it is read when it is there
        answer: list[str] = []
        text: list[str] = []
        finish, usage = "", Usage("local", self._model)
        async with contextlib.aclosing(self._pieces(body)) as pieces:
            async for piece in pieces:
                finish, usage = piece.finish or finish, piece.usage or usage
                answer.append(piece.text)
                shown = reader.feed(piece.text) if reader else piece.text
                if shown and not is_whole:
                    text.append(shown)
                    yield TextDelta(shown)
        if not finish:
            raise self._broken()
        call = read_call("".join(answer)) if with_tools else None
        if is_whole and call is None and (shown := read_reply("".join(answer))):
            text.append(shown)
            yield TextDelta(shown)
        if with_tools and call is None and not text:
            raise ProviderError(
                "The local model's call of a tool grew too long and was cut: ask for less at once.",
                kind="refused",
            )
        yield ModelReply(
            text="".join(text),
            usage=usage,
            tool_calls=(call,) if call else (),
            complete=finish != "length",
        )

    async def check(self) -> None:
        request = ModelRequest("", (ChatMessage("user", "Say ok."),), max_output_tokens=1)
        async for _ in self.stream(request):
            pass

    async def close(self) -> None:
        """End every reply it is giving, and the child unless others use it."""
        self._closed = True
        starting, self._starting = self._starting, None
        session, self._session = self._session, None
        try:
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
            if session is not None:
                await session.close()
        finally:
            lease, self._lease = self._lease, None
            if lease is not None:
                await lease.give_back()

    async def _messages(self, request: ModelRequest, *, with_tools: bool) -> list[WireMessage]:
        files = None
        if has_files(request.messages):
            takes = Takes().within(self.context_window)
            texts = await pdf_texts(request, takes)
            files = await asyncio.to_thread(load_attachments, request.messages, takes, texts=texts)
        return wire_messages(request, with_tools=with_tools, files=files)

    async def _pieces(self, body: dict[str, Any]) -> AsyncGenerator[StreamPiece, None]:
        import aiohttp

        from parley.agent.providers.sse import SseError, SseParser

        response = await self._post(body)
        try:
            if response.status != 200:
                raise read_error(response.status, await response.text(errors="replace"))
            events = SseParser()
            async for chunk in response.content.iter_any():
                for event in events.feed(chunk):
                    if event.data == "[DONE]":
                        return
                    yield self._told(read_piece(event.data, model=self._model))
        except (aiohttp.ClientError, SseError, OSError, RuntimeError) as error:
            # aiohttp says RuntimeError when the session was closed under the reader.
            raise self._broken() from error
        finally:
            # The connection goes at once: that is how the server learns that nobody listens.
            response.close()

    async def _post(self, body: dict[str, Any]) -> aiohttp.ClientResponse:
        import aiohttp

        # Half a character would be refused, with all the words before it in the error.
        written = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        for last in (False, True):
            process = await self._ready()
            try:
                return await self._http().post(
                    f"{process.address}/v1/chat/completions",
                    data=written,
                    headers={
                        "Authorization": f"Bearer {process.key}",
                        "Content-Type": "application/json",
                    },
                )
            except (aiohttp.ClientError, OSError) as error:
                # One that died before it said a word is replaced: asking again costs nothing.
                if last or not await process.ended():
                    raise self._broken() from error
        raise self._broken()

    def _told(self, piece: StreamPiece) -> StreamPiece:
        if self._may_tell_cached or piece.usage is None:
            return piece
        return replace(piece, usage=replace(piece.usage, cached_tokens=0))

    def _broken(self) -> ProviderError:
        if self._closed:
            return ProviderError(CLOSED, kind="refused")
        return ProviderError(_ENDED, kind="broken")

    def _http(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                # llama.cpp's server hangs up after a stream: a kept connection would be a dead one.
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                # A long prompt is silent for minutes; when the child dies its socket closes.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            )
        return self._session

    async def _ready(self) -> ModelProcess:
        if self._closed:
            raise ProviderError(CLOSED, kind="refused")
        if self._running is not None:
            return self._running
        # Shielded: a reply that is given up must not take the start away from the others.
        starting = self._begin()
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled() and self._closed:
                raise ProviderError(CLOSED, kind="refused") from None
            raise

    def _begin(self) -> asyncio.Task[ModelProcess]:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="local model")
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, task: asyncio.Task[ModelProcess]) -> None:
        if self._starting is task:
            self._starting = None
        if not task.cancelled():
            task.exception()  # a failure is for those who wait; a warm-up has nobody

    async def _start(self) -> ModelProcess:
        weights = await asyncio.to_thread(self._find)
        self._known = weights
        wanted = Wanted(weights.path, self.context_window, self._settings.threads)
        if self._lease is None or self._lease.wanted != wanted:
            before, self._lease = self._lease, self._pool.lease(wanted)
            if before is not None:
                await before.give_back()
        return await self._lease.ready()

    def _find(self) -> Weights:
        if not has_runtime():
            raise ProviderError(NO_RUNTIME, kind="refused")
        try:
            found = find_weights(self._settings.weights)
            # By its real name, under which others may use it too.
            return replace(found, path=found.path.resolve())
        except ParleyError as error:
            raise ProviderError(str(error), kind="refused") from error
