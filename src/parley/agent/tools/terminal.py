"""The tool `terminal`: run a command, now or in the background."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field

from parley.agent.question_text import describe_text, fits_inline, mark_unseen
from parley.agent.tools.arguments import Arguments
from parley.agent.tools.base import Tool, ToolContext, ToolError, ToolResult, Wanted
from parley.agent.tools.lent import lent_hands
from parley.agent.tools.process import ONCE_WITHOUT_SANDBOX, process_tool, shown
from parley.agent.tools.risks import hides_what_it_runs, risks_of
from parley.config.hands import TerminalSettings
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.agent.hands import Hands
    from parley.agent.processes import Process, Spec
    from parley.agent.sandbox import Sandbox
    from parley.agent.taint import Taint

__all__ = ["TerminalArguments", "terminal_tools"]

_LONGEST_COMMAND = 20_000
_LONGEST_SHOWN = 4000
_LONGEST_FOREGROUND = 3600.0
_LONGEST_BACKGROUND = 30 * 86_400.0
_NO_DELIVERY = (
    "Nothing can be delivered here once this turn is over, so nobody will be notified: "
    'use process(action="poll") with this process_id.'
)

Pattern = Annotated[str, Field(min_length=1, max_length=200)]


class TerminalArguments(Arguments):
    model_config = ConfigDict(
        str_strip_whitespace=False
    )  # a person is asked about these very words

    command: str
    background: bool = False
    notify_on_complete: bool = Field(default=False, description="with background")
    watch_patterns: list[Pattern] | None = Field(
        default=None,
        max_length=10,
        description="with background: report lines with such a text; * is anything",
    )
    timeout: float | None = Field(default=None, ge=0, description="seconds")
    workdir: str | None = Field(default=None, description="in the workspace")
    pty: bool = False


def terminal_tools(settings: TerminalSettings) -> tuple[Tool[Any], ...]:
    """`terminal` and `process`, as these settings want them."""

    async def run(arguments: TerminalArguments, context: ToolContext) -> str | ToolResult:
        return await _run(arguments, context, settings)

    def wanted(arguments: TerminalArguments, context: ToolContext) -> Wanted | None:
        return _wanted(arguments, context, settings)

    def guard(arguments: TerminalArguments, context: ToolContext, taint: Taint) -> str | None:
        """A command without network can send nothing; what it leaves in files taints who reads."""
        contained = _sandbox(context, settings).contains
        if contained and not settings.network:
            return None
        return _what(arguments, contained=contained, network=True)

    terminal = Tool(
        name="terminal",
        description=(
            "Run a shell command in the workspace. For servers and long work use background, "
            "then the tool process."
        ),
        arguments=TerminalArguments,
        function=run,
        safe_to_repeat=True,
        needs_approval=wanted,
        timeout_seconds=None,
        guard=guard,
    )
    return (terminal, process_tool(network=settings.network))


# ── a person's word ───────────────────────────────────────────────────────────────────────────


def _wanted(
    arguments: TerminalArguments, context: ToolContext, settings: TerminalSettings
) -> Wanted | None:
    _check_text(arguments.command)
    contained = _sandbox(context, settings).contains
    risks = risks_of(arguments.command)
    if contained and not risks:
        return None
    if len(arguments.command) > _LONGEST_SHOWN:
        raise ToolError(
            "The command is too long to be shown to the person who must allow it: write it to a "
            "file and run that."
        )
    if arguments.workdir and not fits_inline(arguments.workdir):
        raise ToolError("The name of this folder cannot be shown in a question: use another one.")
    what = _what(arguments, contained=contained, network=settings.network or not contained)
    if not contained:
        return Wanted(what, owner=True, once=ONCE_WITHOUT_SANDBOX)
    # Of several risks each is asked about, whichever of them a person has turned off.
    trigger = next(iter(risks)) if len(risks) == 1 else None
    once = "it does not show what it runs" if hides_what_it_runs(arguments.command) else ""
    return Wanted(what, trigger=trigger, once=once)


def _what(arguments: TerminalArguments, *, contained: bool, network: bool) -> str:
    how = [
        "" if contained else "without a sandbox",
        "in the background" if arguments.background else "",
        "with network" if network else "",
        describe_text("in", arguments.workdir) if arguments.workdir else "",
    ]
    return describe_text("run", arguments.command, ", ".join(filter(None, how)))


def _sandbox(context: ToolContext, settings: TerminalSettings) -> Sandbox:
    from parley.agent.sandbox import find_sandbox

    try:
        if context.hands is not None:
            return context.hands.processes.sandbox()
        return find_sandbox(settings.sandbox)
    except ToolError:
        raise
    except ParleyError as error:
        raise ToolError(str(error)) from error


def _check_text(command: str) -> None:
    if not command.strip():
        raise ToolError("The command is empty.")
    if len(command) > _LONGEST_COMMAND:
        raise ToolError("The command is too long: write it to a file and run that.")
    if "\0" in command:
        raise ToolError("A command cannot hold a NUL character.")
    try:
        command.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The command holds half a character: write it anew.") from error


# ── running ───────────────────────────────────────────────────────────────────────────────────


async def _run(
    arguments: TerminalArguments, context: ToolContext, settings: TerminalSettings
) -> str | ToolResult:
    _check_text(arguments.command)
    hands = lent_hands(context)
    digest = hashlib.sha256(context.call.encode()).hexdigest()
    id = f"proc_{digest[:12] if context.call else secrets.token_hex(6)}"
    spec = await _spec(arguments, context, settings)
    try:
        if arguments.background:
            return await _in_background(id, spec, arguments, context, hands)
        return await _in_foreground(id, spec, hands)
    except ToolError:
        raise
    except ParleyError as error:
        raise ToolError(str(error)) from error


async def _in_foreground(id: str, spec: Spec, hands: Hands) -> str:
    processes = hands.processes
    try:
        await processes.start(id, spec)
        process = await processes.wait(id)
    except asyncio.CancelledError:
        # Who stops the turn stops the command; a gateway that leaves comes back for it.
        if not hands.is_leaving():
            await asyncio.shield(processes.kill(id))
        raise
    output = await shown(processes, id)
    told: dict[str, Any] = {"exit_code": process.exit_code, "output": output.text}
    if output.dropped:
        told["truncated_bytes"] = output.dropped
    note = _note(process, spec, cut=output.dropped > 0)
    if note:
        told["note"] = note
    return json.dumps(told, ensure_ascii=False)


def _note(process: Process, spec: Spec, *, cut: bool) -> str:
    notes = []
    if process.reason == "timeout":
        notes.append(
            f"It took longer than {spec.timeout:g} s and was ended: raise timeout, or use "
            f"background."
        )
    elif process.reason is not None:
        notes.append(f"{process.reason[0].upper()}{process.reason[1:]}.")
    if cut:
        notes.append(
            f'The end of the output; for more: process(action="log", process_id="{process.id}", '
            f"lines=…)."
        )
    return " ".join(notes)


async def _in_background(
    id: str, spec: Spec, arguments: TerminalArguments, context: ToolContext, hands: Hands
) -> ToolResult:
    processes = hands.processes
    asked = arguments.notify_on_complete or bool(arguments.watch_patterns)
    can = context.async_delivery
    if not processes.has_room() and processes.get(id) is None:
        raise ToolError('Too many processes run already: end one with process(action="kill").')
    body = {"command": arguments.command, "patterns": list(spec.patterns)}
    await hands.begin_work(id, "process", notify=asked and can, body=body)
    await processes.start(id, spec)
    told: dict[str, Any] = {"process_id": id, "notify_on_complete": asked and can}
    if spec.patterns:
        told["watch_patterns"] = list(spec.patterns)
    if asked and not can:
        told["notify_unsupported"] = _NO_DELIVERY
    # Nothing that it printed is in here.
    return ToolResult(json.dumps(told, ensure_ascii=False), outside="")


async def _spec(
    arguments: TerminalArguments, context: ToolContext, settings: TerminalSettings
) -> Spec:
    from parley.agent.processes import Spec

    timeout = arguments.timeout or None  # some models write 0 for what they leave open
    if arguments.background:
        timeout = None if timeout is None else min(timeout, _LONGEST_BACKGROUND)
    elif timeout is None:
        timeout = min(settings.timeout_seconds, _LONGEST_FOREGROUND)
    elif timeout > _LONGEST_FOREGROUND:
        raise ToolError("A command that takes longer than an hour needs background=true.")
    watching = arguments.background and context.async_delivery
    return Spec(
        command=arguments.command,
        lane=context.session_key,
        workspace=context.workspace,
        cwd=await asyncio.to_thread(_folder, context.workspace, arguments.workdir),
        environment=context.environment,
        pty=arguments.pty,
        timeout=timeout,
        patterns=tuple(arguments.watch_patterns or ()) if watching else (),
        network=settings.network,
        private=context.private,
    )


def _folder(workspace: Path, workdir: str | None) -> Path:
    """Where the command begins; links and `..` are followed first."""
    workspace.mkdir(parents=True, exist_ok=True)
    base = workspace.resolve()
    if not workdir:
        return base
    try:
        real = (base / workdir).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"There is no folder {mark_unseen(workdir)} in the workspace.") from error
    if not real.is_dir() or (real != base and base not in real.parents):
        raise ToolError(f"{mark_unseen(workdir)} is no folder in the workspace.")
    return real
