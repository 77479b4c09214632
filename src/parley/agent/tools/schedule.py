"""The tool `schedule`: what comes into this conversation by itself, later."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from parley.agent.foreign import one_line
from parley.agent.hands import Hands
from parley.agent.question_text import describe_text, shown_name
from parley.agent.taint import Taint
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import ToolContext, ToolError, ToolResult, tool
from parley.agent.tools.lent import lent_hands, name_of
from parley.agent.tools.when import cron_times, find_zone, parse_at, parse_every, span, told
from parley.storage.hands import JobRecord

__all__ = ["schedule"]

_MOST_PLANS = 50


class ScheduleArguments(Arguments):
    action: Literal["add", "list", "cancel"]
    text: str | None = Field(default=None, max_length=2_000, description="what to do then")
    at: str | None = Field(default=None, description="2031-01-31T09:00 or +10m, +2h, +3d")
    every: str | None = Field(default=None, description="15m, 2h, 1d")
    cron: str | None = Field(default=None, max_length=100, description="five fields")
    timezone: str | None = Field(default=None, description="such as Europe/Paris")
    id: str | None = Field(default=None, description="to cancel")


def _guard(arguments: ScheduleArguments, context: ToolContext, taint: Taint) -> str | None:
    match arguments.action:
        case "add":
            given = {"at": arguments.at, "every": arguments.every, "by cron": arguments.cron}
            when = [f"{how} {shown_name(value)}" for how, value in given.items() if value]
            if arguments.timezone:
                when.append(f"in the time zone {shown_name(arguments.timezone)}")
            return describe_text("plan", arguments.text or "", ", ".join(when))
        case "cancel":
            return f"cancel the plan {shown_name(arguments.id or '')}"
        case "list":
            return None


@tool(safe_to_repeat=True, guard=_guard)
async def schedule(arguments: ScheduleArguments, context: ToolContext) -> str | ToolResult:
    """Plan a message to yourself in this chat: add takes text and one of at, every, cron."""
    hands = lent_hands(context)
    match arguments.action:
        case "add":
            return await _add(arguments, context, hands)
        case "list":
            return _listed(await hands.plans())
        case "cancel":
            return await _cancel(arguments.id, hands)


async def _add(arguments: ScheduleArguments, context: ToolContext, hands: Hands) -> str:
    if not context.async_delivery:
        raise ToolError(
            "This channel cannot deliver anything later, so nothing was planned; tell the person."
        )
    if not arguments.text:
        raise ToolError("Give `text`: what is to be done then.")
    name = name_of("plan", context)
    there = await hands.plans()
    for record in there:
        if record.job.id == name:
            return f"Planned: {_line(record)}"
    if len(there) >= _MOST_PLANS:
        raise ToolError(f"There are {_MOST_PLANS} plans here already; cancel one first.")
    zone, now = find_zone(arguments.timezone), time.time()
    timing = _timing(arguments, zone, now)
    said = f"[A reminder that you planned on {told(now, zone)}{timing.rhythm}]\n{arguments.text}"
    await hands.plan(
        name,
        said,
        at=timing.at,
        every=timing.every,
        cron=timing.cron,
        timezone=zone.key,
        outside=context.outside,
    )
    return f"Planned as {name}{timing.rhythm}; next: {timing.next}."


def _listed(plans: Sequence[JobRecord]) -> ToolResult:
    """The plans; those that were made of what the agent had read say where that was from."""
    lines = [_line(record) for record in plans]
    told = "\n".join(lines) or "Nothing is planned in this conversation."
    outside = ", ".join(dict.fromkeys(record.job.message.outside for record in plans))
    return ToolResult(told, outside=outside.strip(", "))


async def _cancel(name: str | None, hands: Hands) -> str:
    if not name:
        raise ToolError("Give the `id` of the plan; `list` shows them.")
    if not await hands.cancel_plan(name):
        raise ToolError(f"There is no plan {one_line(name, 40)} here; `list` shows them.")
    return f"Cancelled {name}."


@dataclass(frozen=True, slots=True)
class _Timing:
    """When a plan comes, for the gateway and in words."""

    next: str
    rhythm: str = ""
    at: float | None = None
    every: float | None = None
    cron: str | None = None


def _timing(arguments: ScheduleArguments, zone: ZoneInfo, now: float) -> _Timing:
    match arguments.at or None, arguments.every or None, arguments.cron or None:
        case str(text), None, None:
            at = parse_at(text, zone, now)
            return _Timing(told(at, zone), at=at)
        case None, str(text), None:
            every = parse_every(text)
            return _Timing(told(now + every, zone), f", every {span(every)}", every=every)
        case None, None, str(cron):
            times = " and ".join(told(at, zone) for at in cron_times(cron, zone, now))
            return _Timing(times, f", by cron {cron}", cron=cron)
        case _:
            raise ToolError("Give exactly one of `at`, `every` and `cron`.")


def _line(record: JobRecord) -> str:
    job = record.job
    rhythm = ""
    if job.every is not None:
        rhythm = f", every {span(job.every)}"
    elif job.cron is not None:
        rhythm = f", by cron {job.cron}"
    text = job.message.text
    said = text.partition("\n")[2] or text
    return f"{job.id}, next {told(record.next_at, find_zone(job.timezone))}{rhythm}: " + one_line(
        said, 200
    )
