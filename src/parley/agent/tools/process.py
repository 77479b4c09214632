"""The tool `process`: look after what runs in the background of this conversation."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field

from parley.agent.foreign import in_code
from parley.agent.question_text import add_text, describe_text, mark_unseen
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolError, Wanted
from parley.agent.tools.lent import lent_hands
from parley.agent.tools.typed_input import typed_reasons, typed_risks

if TYPE_CHECKING:
    from parley.agent.processes import Output, Process, Processes
    from parley.agent.taint import Taint

__all__ = [
    "ONCE_WITHOUT_SANDBOX",
    "ProcessArguments",
    "process_tool",
    "shown",
    "without_escapes",
]

ONCE_WITHOUT_SANDBOX = "without a sandbox, a script that it runs can change after your yes"

_MOST_LISTED = 30
_MOST_SHOWN = 15_000
_MOST_READ = 1_000_000
_LONGEST_WAIT = 600.0
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,1000}(\x07|\x1b\\)?|[@-Z\\^_])")


class ProcessArguments(Arguments):
    model_config = ConfigDict(str_strip_whitespace=False)  # what is written is meant as it is

    action: Literal["list", "poll", "log", "wait", "kill", "write"]
    process_id: str | None = None
    lines: int | None = Field(default=None, ge=1, le=5000)
    timeout: float | None = Field(default=None, gt=0, description="for wait, at most 600 s")
    text: str | None = Field(default=None, description="for write, as typed: end it with \\n")
    eof: bool = False


def process_tool(*, network: bool = False) -> Tool[ProcessArguments]:
    """`network`: commands may use it, so what is typed into one may send something."""

    def guard(arguments: ProcessArguments, context: ToolContext, taint: Taint) -> str | None:
        if arguments.action != "write" or context.hands is None:
            return None
        process = _mine(arguments.process_id, context)
        if process.contained and not network:
            return None
        return _what(arguments, process, context.hands.processes.typed(process.id) or "")

    return Tool(
        name="process",
        description="See to the processes of this conversation that terminal started.",
        arguments=ProcessArguments,
        function=_process,
        needs_approval=_wanted,
        timeout_seconds=_LONGEST_WAIT + 60.0,
        guard=guard,
    )


async def shown(processes: Processes, id: str, lines: int | None = None) -> Output:
    """The end of what a process printed; all lines that are asked for, else a modest part."""
    output = await processes.output(id, _MOST_SHOWN if lines is None else _MOST_READ)
    return await asyncio.to_thread(_last, output, lines)


def _last(output: Output, lines: int | None) -> Output:
    from parley.agent.processes import Output

    text = output.text
    if lines is not None:
        text = "".join(text.splitlines(keepends=True)[-lines:])
    cut = len(output.text.encode()) - len(text.encode())
    return Output(_tidy(text), output.dropped + cut)


def _tidy(text: str) -> str:
    """Without what only moves a cursor."""
    return without_escapes(text).replace("\r\n", "\n").replace("\0", "\u2400")


def without_escapes(text: str) -> str:
    """Without what tells a terminal to do something."""
    return _ESCAPES.sub("", text)


def _wanted(arguments: ProcessArguments, context: ToolContext) -> Wanted | None:
    """What is typed is a command line to a shell; where no sandbox holds it, it may do anything."""
    if arguments.action != "write" or context.hands is None:
        return None
    process, text = _mine(arguments.process_id, context), arguments.text or ""
    before = context.hands.processes.typed(process.id)
    what = _what(arguments, process, before or "")
    if not process.contained:
        return Wanted(what, owner=True, once=ONCE_WITHOUT_SANDBOX)
    risks = typed_risks(process.command, before, text, pty=process.pty)
    if not risks:
        return None
    return Wanted(
        what,
        trigger=next(iter(risks)) if len(risks) == 1 else None,
        reasons=typed_reasons(before, text, pty=process.pty),
        once="what it does depends on what the process is doing",
    )


def _what(arguments: ProcessArguments, process: Process, before: str) -> str:
    """What is typed, and to whom. The line break that ends it is said, not shown."""
    notes = [
        "without a sandbox" if not process.contained else "",
        "then its input ends" if arguments.eof else "",
    ]
    text = arguments.text or ""
    line = text.removesuffix("\n")
    note = ", ".join(filter(None, notes))
    if not line:
        told = "press Enter" if text else "end the input"
        what = f"{told} in {in_code(process.id)}" + (f" ({note})" if note else "")
    else:
        what = describe_text("enter" if text != line else "type, without Enter,", line, note)
    if before:
        what = add_text(what, "After this, which stands on the line already", before)
    return add_text(what, f"Into the process {in_code(process.id)}", process.command)


async def _process(arguments: ProcessArguments, context: ToolContext) -> str:
    processes = lent_hands(context).processes
    if arguments.action == "list":
        listing = processes.listing(context.session_key)[-_MOST_LISTED:]
        return _told([_line(process) for process in reversed(listing)])
    id = _mine(arguments.process_id, context).id
    if arguments.action == "kill":
        await processes.kill(id)
    elif arguments.action == "wait":
        await processes.wait(id, min(arguments.timeout or 60.0, _LONGEST_WAIT))
    elif arguments.action == "write":
        return await _write(processes, id, arguments)
    usual = 200 if arguments.action == "log" else 20
    return await _state(processes, id, arguments.lines or usual)


async def _write(processes: Processes, id: str, arguments: ProcessArguments) -> str:
    if not arguments.text and not arguments.eof:
        raise ToolError("To write, give text or eof.")
    try:
        (arguments.text or "").encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text holds half a character: write it anew.") from error
    await processes.write(id, arguments.text or "", eof=arguments.eof)
    return _told({"process_id": id, "written": True})


async def _state(processes: Processes, id: str, lines: int) -> str:
    output = await shown(processes, id, lines)
    process = processes.get(id)
    if process is None:
        raise ToolError(f"There is no process {id}.")
    told = _line(process) | {"output": output.text}
    if output.dropped:
        told["truncated_bytes"] = output.dropped
    return _told(told)


def _mine(id: str | None, context: ToolContext) -> Process:
    """A process of this conversation; of another one nothing is said."""
    if not id:
        raise ToolError('Which one? Give process_id; process(action="list") tells them.')
    process = lent_hands(context).processes.get(id)
    if process is None or process.lane != context.session_key:
        raise ToolError(f"There is no process {mark_unseen(id[:80])} in this conversation.")
    return process


def _line(process: Process) -> dict[str, Any]:
    seconds = (process.ended_at or time.time()) - process.started_at
    told: dict[str, Any] = {
        "process_id": process.id,
        "command": process.command[:200],
        "state": process.state,
        "seconds": round(max(0.0, seconds), 1),
    }
    if process.exit_code is not None:
        told["exit_code"] = process.exit_code
    if process.reason is not None:
        told["reason"] = process.reason
    return told


def _told(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
