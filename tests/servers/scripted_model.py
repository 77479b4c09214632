"""A loopback model server that does as it is told, for tests and benchmarks.

In-process: `async with ScriptedModel() as server:` and use `server.base_url`. On its own:
`python -m tests.servers.scripted_model --port 0` prints `{"port": N}` when it is ready, and tells
what it saw at `GET /stats` and `GET /requests`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from aiohttp import web

from tests.servers.ports import start_site
from tests.servers.scripted_reply import Reply, Usage, answer

__all__ = ["RecordedRequest", "Reply", "Script", "ScriptedModel", "Usage"]

Script: TypeAlias = Callable[[Mapping[str, Any]], Reply | None]
"""From a request's JSON to its reply; None leaves it to the default behaviour."""

_KEPT_REQUESTS = 2000


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class ScriptedModel:
    """An OpenAI-compatible server on 127.0.0.1. `delay` is added before every first byte."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        port: int = 0,
        delay: float = 0.0,
        models: tuple[str, ...] = ("scripted",),
        owner: str = "tests",
    ) -> None:
        self._script = script
        self._delay = delay
        self._models = models
        self._owner = owner
        self.port = port
        self.requests: deque[RecordedRequest] = deque(maxlen=_KEPT_REQUESTS)
        self.total = 0
        self.open_streams = 0
        self.max_open_streams = 0
        self.aborted = 0
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._callers: set[tuple[str, int]] = set()
        self._runner: web.ServerRunner | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def connections(self) -> int:
        """How many connections have carried a request so far."""
        return len(self._callers)

    async def start(self) -> None:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        self.port = await start_site(self._runner, self.port, backlog=4096)

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.shutdown()
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def until(self, fact: Callable[[ScriptedModel], bool], *, seconds: float = 60.0) -> None:
        """Wait until `fact` is true of this server; raise `TimeoutError` if it does not come."""
        async with asyncio.timeout(seconds):
            while not fact(self):
                self._changed.clear()
                await self._changed.wait()

    def stats(self) -> dict[str, int]:
        return {
            "requests": self.total,
            "connections": self.connections,
            "open_streams": self.open_streams,
            "max_open_streams": self.max_open_streams,
            "aborted": self.aborted,
        }

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return self._inspect(request.path)
        body = await request.content.read()
        self.total += 1
        self._count_connection(request)
        self.requests.append(RecordedRequest(request.path_qs, dict(request.headers), body))
        asked: dict[str, Any] = json.loads(body)
        reply = self._script(asked) if self._script is not None else None
        if reply is None:
            reply = answer(asked, self._failures)
        self.open_streams += 1
        self.max_open_streams = max(self.max_open_streams, self.open_streams)
        self._changed.set()
        try:
            return await self._answer(request, asked, reply)
        except (asyncio.CancelledError, ConnectionError):
            if self._runner is not None:
                self.aborted += 1
            raise
        finally:
            self.open_streams -= 1
            self._changed.set()

    async def _answer(
        self, request: web.BaseRequest, asked: Mapping[str, Any], reply: Reply
    ) -> web.StreamResponse:
        if wait := self._delay + reply.delay:
            await asyncio.sleep(wait)
        if reply.status != 200:
            return web.Response(
                status=reply.status,
                text=reply.body,
                content_type="application/json",
                headers=reply.headers,
            )
        if reply.raw is None and not asked.get("stream"):
            return web.Response(body=reply.whole(), content_type="application/json")
        options = asked.get("stream_options") or {}
        events = reply.raw
        if events is None:
            events = tuple(reply.events(with_usage=bool(options.get("include_usage"))))
        response = web.StreamResponse(headers={"Content-Type": reply.content_type, **reply.headers})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if reply.cut_after is not None:
            await self._write(response, events[: reply.cut_after], reply.chunk_delay)
            if request.transport is not None:
                request.transport.close()
            return response
        await self._write(response, events, reply.chunk_delay)
        await response.write_eof()
        return response

    async def _write(
        self, response: web.StreamResponse, events: tuple[bytes, ...], pause: float
    ) -> None:
        if not pause:
            await response.write(b"".join(events))
            return
        for number, event in enumerate(events):
            if number:
                await asyncio.sleep(pause)
            await response.write(event)

    def _count_connection(self, request: web.BaseRequest) -> None:
        if request.transport is not None:
            self._callers.add(request.transport.get_extra_info("peername"))

    def _inspect(self, path: str) -> web.Response:
        if path.endswith("/models"):
            entries = [{"id": m, "object": "model", "owned_by": self._owner} for m in self._models]
            return web.json_response({"object": "list", "data": entries})
        if path == "/stats":
            return web.json_response(self.stats())
        if path == "/requests":
            return web.json_response([r.json for r in self.requests])
        return web.Response(status=404)


async def _serve(port: int, delay: float) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with ScriptedModel(port=port, delay=delay) as server:
        print(json.dumps({"port": server.port}), flush=True)
        await stopped.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="a model server that does as it is told")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before the first byte")
    arguments = parser.parse_args()
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_serve(arguments.port, arguments.delay))


if __name__ == "__main__":
    main()
