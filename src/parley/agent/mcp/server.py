"""One MCP server, looked after: reached, listed, asked, and reached again when it fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from parley.agent.foreign import one_line
from parley.agent.mcp.limits import McpLimits
from parley.agent.mcp.offers import Offer, make_tool, read_offers
from parley.agent.mcp.plan import Plan
from parley.agent.mcp.results import result_text
from parley.agent.mcp.signals import Ended, Signals
from parley.agent.tools.base import AnyArguments, Tool, ToolError
from parley.config.errors import shown
from parley.config.extras import install_command
from parley.config.hands import McpServerSettings
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.agent.mcp.connection import Connection

__all__ = ["McpServer"]

_log = logging.getLogger(__name__)

_NOT_INSTALLED: Final = "MCP servers need a part that is not installed: run `{}`."
_SLOW_START: Final = 5.0


class McpServer:
    """Its tools stay known while it is down: a call then fails at once, with a sentence."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        plan: Callable[[], Plan],
        limits: McpLimits,
    ) -> None:
        self.name = name
        self.tools: tuple[Tool[AnyArguments], ...] = ()
        self.settled = asyncio.Event()
        self._settings = settings
        self._make_plan = plan
        self._limits = limits
        self._offers: tuple[Offer, ...] = ()
        self._left_out: tuple[str, ...] = ()
        self._connection: Connection | None = None
        self._plan: Plan | None = None
        self._signals: Signals | None = None
        self._trouble: str | None = None
        self._began = time.monotonic()

    @property
    def health(self) -> str | None:
        """What is wrong, in a sentence or two."""
        if self._connection is not None and self._connection.over is not None:
            return self._safe(self._connection.over)
        if self._connection is None:
            waited = time.monotonic() - self._began
            if self._trouble is None and waited > _SLOW_START:
                return f"It has not answered for {waited:.0f} s."
            return self._trouble
        if not self._left_out:
            return None
        some = ", ".join(self._left_out[:5])
        return (
            f"It has tools that cannot be offered, as their schema is broken or too long: {some}."
        )

    async def run(self) -> None:
        """Until cancelled, or until it is clear that nothing can come of it."""
        failures = 0
        while True:
            began = time.monotonic()
            try:
                await self._serve()
            except ImportError:
                self._fail(_NOT_INSTALLED.format(install_command("mcp")))
                return
            except ParleyError as error:
                self._fail(str(error))
            except Exception as error:  # noqa: BLE001 - supervisor: whatever happens, it is begun again
                self._fail(self._told(error))
            failures = 0 if time.monotonic() - began > self._limits.steady_after else failures
            await asyncio.sleep(self._limits.wait(failures))
            failures += 1

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """What the server answers; whatever goes wrong is a `ToolError`."""
        connection = self._connection
        if connection is None or connection.over is not None:
            why = (connection and connection.over) or self._trouble or "It is being started."
            raise ToolError(f"The MCP server `{self.name}` is not there now. {self._safe(why)}")
        limit = self._settings.timeout_seconds
        from parley.agent.mcp.connection import Refused

        try:
            result = await connection.call(tool, arguments, limit)
        except TimeoutError:
            raise ToolError(
                f"`{tool}` took longer than {limit:g} s; what it has done by then is not known."
            ) from None
        except Ended as error:
            raise ToolError(
                f"The MCP server `{self.name}` was lost during the call, and what it has done by "
                f"then is not known. {self._safe(str(error))}"
            ) from error
        except Refused as error:
            raise ToolError(f"`{tool}` was refused: {self._safe(str(error))}") from error
        # A server may tell what it was given: the model, and whoever it speaks to, need not know.
        hide = self._plan.redactor.known if self._plan is not None else str
        try:
            return hide(result_text(result, tool=tool))
        except ToolError as error:
            raise ToolError(hide(str(error))) from None

    async def _serve(self) -> None:
        self._plan = plan = await asyncio.to_thread(self._make_plan)
        connect = await asyncio.to_thread(_load)
        self._signals = Signals()
        try:
            async with connect(plan, self._signals, self._limits) as connection:
                await self._refresh(connection)
                self._connection, self._trouble = connection, None
                self.settled.set()
                while True:
                    if await connection.wait_for_change():
                        await self._refresh(connection)
        finally:
            self._connection = None

    async def _refresh(self, connection: Connection) -> None:
        listed, unreadable = await connection.tools()
        offers, refused = read_offers(listed, self._settings.tools, self._limits)
        self._left_out = tuple(sorted({*refused, *unreadable}))
        if offers == self._offers:
            return
        self._offers = offers
        self.tools = tuple(
            make_tool(self.name, offer, self._settings, self.call) for offer in offers
        )

    def _safe(self, text: str) -> str:
        """Words of the server, short and without a secret that it was given."""
        redacted = text if self._plan is None else self._plan.redactor.text(text)
        return one_line(redacted, longest=500)

    def _fail(self, sentence: str) -> None:
        if sentence != self._trouble:
            _log.warning("MCP server %s: %s", self.name, sentence)
        self._trouble = sentence
        self.settled.set()

    def _told(self, error: BaseException) -> str:
        """An error of whatever part, in sentences."""
        from parley.agent.mcp.troubles import trouble

        plan, signals = self._plan, self._signals
        if plan is None or signals is None:
            return f"It failed ({type(error).__name__})."
        told = self._safe(trouble(error, plan, signals, self._limits))
        log = "" if plan.url else f" Its log is {shown(plan.log_file)}."
        return f"{told} It is started again by itself.{log}"


def _load() -> Any:
    """The library takes a second to load: in a thread, and only where a server is set up."""
    from parley.agent.mcp.connection import connect

    return connect
