"""The provider for the model on this machine: it starts a child when it is needed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.agent.providers.base import ModelEvent, ModelReply, ModelRequest, ProviderError
from parley.agent.providers.local.answers import StreamPiece, read_error, read_piece
from parley.agent.providers.local.history import wire_messages
from parley.agent.providers.local.jsontext import ReplyReader
from parley.agent.providers.local.process import ModelProcess
from parley.agent.providers.local.schema import read_call, union_schema
from parley.agent.providers.local.weights import CATALOGUE, Weights, find_weights
from parley.config.settings import LocalModelSettings
from parley.protocol import ChatMessage, ParleyError, TextDelta, Usage

if TYPE_CHECKING:
    import aiohttp

__all__ = ["LocalProvider"]

_ENDED = "The local model's process ended while it was answering: ask again, it starts anew."
_CLOSED = "The local model has been closed: Parley is stopping."


class LocalProvider:
    """Answers with the weights that `settings` names. The child's chatter goes to `log_file`."""

    def __init__(self, settings: LocalModelSettings, *, log_file: Path | None = None) -> None:
        self._settings = settings
        self._log_file = log_file
        self._running: ModelProcess | None = None
        self._starting: asyncio.Task[ModelProcess] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._closed = False
        known = CATALOGUE.get(settings.weights)
        self._model = known.name if known else Path(settings.weights).stem
        self._may_use_tools = known is not None and known.tools
        self._model_window = known.context_window if known else None

    @property
    def label(self) -> str:
        return "local"

    @property
    def model(self) -> str:
        return self._model

    @property
    def context_window(self) -> int:
        if self._model_window is None:
            # Missing or damaged weights are told of when a reply is asked for, not here.
            with contextlib.suppress(ParleyError):
                self._model_window = find_weights(self._settings.weights).context_window
        wanted = self._settings.context_tokens
        return wanted if self._model_window is None else min(wanted, self._model_window)

    @property
    def offers_tools(self) -> bool:
        return self._settings.tools == "on" or (
            self._settings.tools == "auto" and self._may_use_tools
        )

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
            "messages": wire_messages(request, with_tools=with_tools),
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "repeat_penalty": 1.0,
            # A small model may never come to an end by itself.
            "max_tokens": request.max_output_tokens or self._longest_reply,
        }
        reader = ReplyReader() if with_tools else None
        if with_tools:
            schema = {"schema": union_schema(request.tools)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        answer: list[str] = []
        text: list[str] = []
        finish, usage = "", Usage("local", self._model)
        async with contextlib.aclosing(self._pieces(body)) as pieces:
            async for piece in pieces:
                finish, usage = piece.finish or finish, piece.usage or usage
                answer.append(piece.text)
                shown = reader.feed(piece.text) if reader else piece.text
                if shown:
                    text.append(shown)
                    yield TextDelta(shown)
        if not finish:
            raise self._broken()
        call = read_call("".join(answer)) if with_tools else None
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
        """End the child and every reply it is giving."""
        self._closed = True
        starting, self._starting = self._starting, None
        running, self._running = self._running, None
        session, self._session = self._session, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled() and starting.exception() is None:
                await starting.result().stop()  # it was ready just before
        if session is not None:
            await session.close()
        if running is not None:
            await running.stop()

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
                    yield read_piece(event.data, model=self._model)
        except (aiohttp.ClientError, SseError, OSError, RuntimeError) as error:
            # aiohttp says RuntimeError when the session was closed under the reader.
            raise self._broken() from error
        finally:
            # The connection goes at once: that is how the server learns that nobody listens.
            response.close()

    async def _post(self, body: dict[str, Any]) -> aiohttp.ClientResponse:
        import aiohttp

        for last in (False, True):
            process = await self._ready()
            try:
                return await self._http().post(
                    f"{process.address}/v1/chat/completions",
                    json=body,
                    headers={"Authorization": f"Bearer {process.key}"},
                )
            except (aiohttp.ClientError, OSError) as error:
                # One that died before it said a word is replaced: asking again costs nothing.
                if last or not await process.ended():
                    raise self._broken() from error
                await self._discard(process)
        raise self._broken()

    def _broken(self) -> ProviderError:
        if self._closed:
            return ProviderError(_CLOSED, kind="refused")
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
            raise ProviderError(_CLOSED, kind="refused")
        if self._running is not None and not self._running.alive:
            await self._discard(self._running)
        if self._running is not None:
            return self._running
        # Shielded: a reply that is given up must not take the start away from the others.
        starting = self._begin()
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled() and self._closed:
                raise ProviderError(_CLOSED, kind="refused") from None
            raise

    def _begin(self) -> asyncio.Task[ModelProcess]:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="local model")
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, task: asyncio.Task[ModelProcess]) -> None:
        if self._starting is task:
            self._starting = None
        # A failure is for those who wait; a warm-up has nobody, and the next request tries again.
        if not task.cancelled() and task.exception() is None and not self._closed:
            self._running = task.result()

    async def _start(self) -> ModelProcess:
        weights = await asyncio.to_thread(self._find)
        self._model_window = weights.context_window
        return await ModelProcess.start(
            weights,
            context_tokens=self.context_window,
            threads=self._settings.threads,
            log_file=self._log_file,
        )

    def _find(self) -> Weights:
        if importlib.util.find_spec("xllamacpp") is None:
            raise ProviderError(
                "The local model needs a part that is not installed: "
                "run `pip install xllamacpp` in Parley's environment.",
                kind="refused",
            )
        try:
            return find_weights(self._settings.weights)
        except ParleyError as error:
            raise ProviderError(str(error), kind="refused") from error

    async def _discard(self, process: ModelProcess) -> None:
        if self._running is process:
            self._running = None
        await process.stop()
