"""`/agent_ws/`: any profile, served to clients of the direct-agent protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.storage.contract import Delivery
from parley.surfaces.base import Surface, Unreachable

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.agent_ws.connection import Connection
    from parley.surfaces.agent_ws.follow import Turns
    from parley.surfaces.api.callers import Callers

__all__ = ["PATH", "AgentWsSurface"]

_log = logging.getLogger("parley.direct")

PATH: Final = "/agent_ws/"
_MOST_OF_A_THREAD: Final = 8
_HEARTBEAT: Final = 20.0


class AgentWsSurface(Surface):
    """Mounted on the API's site, whose keys and rules are its own too.

    What ends after its turn is told on an open connection of its thread, to a client that knows
    callbacks; there `Request.later` says so for each message.
    """

    platform = "direct"
    knows_repeats = True
    shows_questions = True
    sends_files = True
    vouches = True

    def __init__(self) -> None:
        self._callers: Callers | None = None
        self._turns: Turns | None = None
        self._open: dict[tuple[str, str], list[Connection]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._door: FrontDoor | None = None

    @property
    def where(self) -> str:
        return PATH

    def routes(self, callers: Callers, /) -> Iterable[web.AbstractRouteDef]:
        from aiohttp import web

        from parley.profiles import PROFILE_NAME

        self._callers = callers
        below = f"/p/{{profile:{PROFILE_NAME.pattern}}}"
        # Also without the slash at the end, which is easily left out.
        paths = [prefix + path for prefix in ("", below) for path in (PATH, PATH.rstrip("/"))]
        return [web.get(path, self._serve, allow_head=False) for path in paths]

    async def start(self, door: FrontDoor) -> None:
        self._door = door

    async def stop(self) -> None:
        self._door = None
        if self._turns is not None:
            self._turns.close()
            self._turns = None
        everyone = [each for those in self._open.values() for each in those]
        await asyncio.gather(*(each.say_goodbye() for each in everyone))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in tuple(self._tasks):
            task.cancel()

    async def send(self, delivery: Delivery) -> str | None:
        source = delivery.source
        for connection in reversed(self._open.get((source.profile or "", source.chat_id), ())):
            from parley.backends.direct.frames import CALLBACKS

            if connection.knows(CALLBACKS) and self._door is not None:
                owed = await self._door.to(source.profile or "").owed(delivery.lane)
                return await connection.call_back(delivery, max(0, owed - 1))
        raise Unreachable("No client of this thread is connected that could be told.")

    async def show(self, event: LiveEvent) -> None:
        if event.request is not None:
            self._following().take(event)

    def _following(self) -> Turns:
        from parley.surfaces.agent_ws.follow import Turns

        if self._turns is None:
            self._turns = Turns()
        return self._turns

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        from parley.backends.direct import frames
        from parley.surfaces.agent_ws.answer import error_frame
        from parley.surfaces.agent_ws.asking import Shared
        from parley.surfaces.agent_ws.connection import Connection
        from parley.surfaces.agent_ws.socket import open_socket
        from parley.surfaces.agent_ws.thread import AgentThread, good_thread_id
        from parley.surfaces.api.errors import ApiError, ClientGone
        from parley.surfaces.api.talk import hops_of

        door, callers = self._door, self._callers
        if door is None or callers is None:
            raise ApiError.unavailable("This is not served now; please try again.", retry_after=1)
        caller = callers.admit(request, ("chat",), door.profiles())
        hops = hops_of(request)
        given = good_thread_id(request.query.get("thread_id"))
        thread = AgentThread.of(caller, door.to(caller.target()), given or "")
        socket = await open_socket(request, heartbeat=_HEARTBEAT)
        shared = Shared(door, callers, self._following(), self._spawn)
        connection = Connection(socket, thread, shared, hops=hops)
        if given is None:
            details = "thread_id query parameter is required"
            await connection.refuse(
                frames.CLOSE_NO_THREAD, error_frame("THREAD_ID_REQUIRED", details)
            )
            return socket
        others = self._open.setdefault(thread.place, [])
        if len(others) >= _MOST_OF_A_THREAD:
            details = "Too many connections of this thread are open; close one of them."
            await connection.refuse(frames.CLOSE_BUSY, error_frame("BUSY", details))
            return socket
        others.append(connection)
        try:
            with contextlib.suppress(ClientGone):
                await connection.serve()
        finally:
            others.remove(connection)
            if not others:
                self._open.pop(thread.place, None)
        return socket

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name="direct-work")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("left_undone", extra={"why": str(error)})
