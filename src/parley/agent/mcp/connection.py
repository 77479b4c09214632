"""One connection to a server: its first words, its tools, calls, and whether it is still there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

import anyio
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Implementation,
    PaginatedRequestParams,
    Tool,
    ToolListChangedNotification,
)

from parley import __version__
from parley.agent.mcp.http import open_http
from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.plan import Plan
from parley.agent.mcp.signals import Ended, Signals
from parley.agent.mcp.stdio import open_child

__all__ = ["Connection", "Refused", "connect"]

T = TypeVar("T")

_FORGOTTEN: Final = "Session terminated"
_CLOSED: Final = "The connection was closed."

# They tell every address they ask, and an address may hold a key.
for _chatty in ("mcp", "httpx2", "httpcore2"):
    logging.getLogger(_chatty).setLevel(logging.ERROR)


class Refused(Exception):
    """The server answered, and what it answered is an error."""


@contextlib.asynccontextmanager
async def connect(plan: Plan, signals: Signals, limits: McpLimits) -> AsyncIterator[Connection]:
    """Reach the server and exchange first words. Entered and left in the same task."""
    opened = open_http if plan.url else open_child
    async with contextlib.AsyncExitStack() as stack:
        read, write = await stack.enter_async_context(opened(plan, signals, limits))

        async def heard(message: IncomingMessage) -> None:
            if isinstance(message, ToolListChangedNotification):
                signals.changed.set()

        session = _Session(
            read,
            write,
            message_handler=heard,
            client_info=Implementation(name="parley", version=__version__),
        )
        await stack.enter_async_context(session)
        connection = Connection(session, signals, limits)
        stack.push_async_callback(connection.let_go)
        await connection.begin()
        yield connection


class _Session(ClientSession):
    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Nothing: a pattern in a schema of theirs could keep our event loop busy for hours."""


class Connection:
    """Each request runs in a task of its own: who asks never waits longer than it said."""

    def __init__(self, session: ClientSession, signals: Signals, limits: McpLimits) -> None:
        self._session = session
        self._signals = signals
        self._limits = limits
        self._requests: set[asyncio.Task[Any]] = set()
        self._late = 0
        self._newer = False

    @property
    def over(self) -> str | None:
        """Why it is over; None while it is not."""
        return self._signals.over.result() if self._signals.over.done() else None

    async def begin(self) -> None:
        """Greet the server in the way most know; a newer one that does not is asked the new way."""
        try:
            await self._ask(self._session.initialize(), within=self._limits.begin)
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise
            try:
                await self._ask(self._session.discover(), within=self._limits.begin)
            except MCPError:
                raise error from None
            self._newer = True

    async def tools(self) -> tuple[list[Tool], frozenset[str]]:
        """All it has, up to our bounds; and the names of those that cannot be read."""
        capabilities = self._session.server_capabilities
        if capabilities is not None and capabilities.tools is None:
            return [], frozenset()
        self._signals.left_out.clear()
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            params = PaginatedRequestParams(cursor=cursor) if cursor else None
            listing = self._session.list_tools(params=params)
            page = await self._ask(listing, within=self._limits.begin)
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) >= self._limits.tools:
                break
        return found[: self._limits.tools], frozenset(self._signals.left_out)

    async def call(self, tool: str, arguments: dict[str, Any], within: float) -> CallToolResult:
        """Raises `TimeoutError`, `Ended` or `Refused`."""
        try:
            result = await self._ask(
                self._session.call_tool(tool, arguments), within=within or None
            )
        except TimeoutError:
            self._late += 1
            if self._late >= self._limits.late_calls:
                self._signals.end(f"It left {self._late} calls in a row without an answer.")
            raise
        except MCPError as error:
            self._late = 0
            if error.error.code == CONNECTION_CLOSED:
                await asyncio.wait({self._signals.over}, timeout=0.5)
                raise Ended(self.over or "It ended.") from error
            if error.error.message == _FORGOTTEN:
                self._signals.end("It has forgotten us.")
                raise Ended("It has forgotten us.") from error
            raise Refused(error.error.message) from error
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise Ended(self.over or _CLOSED) from error
        except (ValueError, RuntimeError, TypeError) as error:
            self._late = 0
            raise Refused("It answered something that cannot be understood.") from error
        self._late = 0
        return result

    async def wait_for_change(self) -> bool:
        """Until its tools may have changed; False when it was only found to be still there.

        Raises `Ended` when it is over, or does not answer any more.
        """
        changing = asyncio.create_task(self._signals.changed.wait())
        try:
            await asyncio.wait(
                (changing, self._signals.over),
                timeout=self._limits.look_every,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            changing.cancel()
        if self.over is not None:
            raise Ended(self.over)
        if self._signals.changed.is_set():
            await asyncio.wait({self._signals.over}, timeout=self._limits.refresh_gap)
            self._signals.changed.clear()
            return True
        if self._newer:
            return True  # it knows no ping and tells nothing unasked: its list is asked for
        try:
            await self._ask(self._session.send_ping(), within=self._limits.look_within)
        except TimeoutError as error:
            raise Ended("It did not answer any more.") from error
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED or error.error.message == _FORGOTTEN:
                raise Ended(_CLOSED) from error
        return False

    async def let_go(self) -> None:
        """Leave no request behind."""
        for task in self._requests:
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests, timeout=self._limits.end_within)

    async def _ask(self, work: Coroutine[Any, Any, T], *, within: float | None) -> T:
        task = asyncio.create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait(
                (task, self._signals.over), timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done() and not task.cancelled():
                return task.result()
            # Cancelled by the end of the connection: that must not look like the asker's own end.
            if self.over is not None or task.cancelled():
                raise Ended(self.over or _CLOSED)
            raise TimeoutError
        finally:
            task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone
