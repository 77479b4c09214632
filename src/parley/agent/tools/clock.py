"""The tool `now`."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, tool

__all__ = ["now"]


class NowArguments(Arguments):
    timezone: str | None = Field(
        default=None, description="such as Europe/Paris; the machine's own if left out"
    )


@tool(safe_to_repeat=True, parallel=True)
async def now(arguments: NowArguments, context: ToolContext) -> str:
    """Tell the current date, time and weekday."""
    try:
        zone = ZoneInfo(arguments.timezone) if arguments.timezone else None
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ToolError(f"`{arguments.timezone}` is no time zone; try one like UTC.") from error
    moment = datetime.now(UTC).astimezone(zone)
    return moment.strftime("%A, %Y-%m-%d %H:%M:%S %Z (UTC%z)")
