"""What the agent, or the person, is told when background work ends."""

from __future__ import annotations

from collections.abc import Sequence

from parley.agent.foreign import clean, fenced
from parley.agent.processes import Matched, Output, Process
from parley.agent.tools.process import without_escapes
from parley.protocol import InboundMessage, Report
from parley.storage.hands import Work

__all__ = ["match_report", "never_began", "process_report", "task_report"]

_LONGEST_OUTPUT = 4_000
_LONGEST_NOTICE = 1_000
_GONE = "This belongs to an earlier conversation, so it is not part of this one."


def process_report(
    work: Work, process: Process, output: Output, lines: Sequence[str] = ()
) -> InboundMessage:
    """The end of a process that somebody wanted to hear of; `lines` are those watched for."""
    command = _short(str(work.body.get("command", "")), 200)
    how = _ending(process)
    shown = _tail(output.text, _LONGEST_OUTPUT)
    if lines:
        shown = "\n".join(["Lines that you watch for:", *lines, "", "The end of it:", shown])
    text = f"[Background process {work.id} {how}.]\nCommand: {command}\n{_quoted(shown)}"
    notice = f"A background process {how}: `{command}`\n{_tail(output.text, _LONGEST_NOTICE)}"
    return _report(work, "end", text, notice, f"the output of {command}")


def never_began(work: Work) -> InboundMessage:
    """It was noted, and the gateway ended before it could be begun."""
    command = _short(str(work.body.get("command") or work.body.get("goal") or ""), 200)
    text = f"[Background work {work.id} is lost: what became of it is not known.]\n{command}"
    notice = f"Background work is lost, what became of it is not known: {command}"
    return _report(work, "lost", text, notice)  # should it begin after all, its end is told too


def match_report(work: Work, matched: Matched) -> InboundMessage:
    """Lines that a watched process printed."""
    more = [f"… and {matched.more} more."] if matched.more else []
    more += ["No further lines of it will be reported."] if matched.last else []
    lines = "\n".join([*matched.lines, *more])
    command = _short(str(work.body.get("command", "")), 200)
    text = f"[Background process {work.id} printed what you watch for.]\n{_quoted(lines)}"
    notice = f"A background process (`{command}`) printed:\n{_tail(lines, _LONGEST_NOTICE)}"
    return _report(work, f"match:{matched.number}", text, notice, f"the output of {command}")


def task_report(work: Work, result: str, *, ok: bool, outside: str = "") -> InboundMessage:
    """The end of a delegated task. `outside`: the sources of what it had read."""
    goal = _short(str(work.body.get("goal", "")), 200)
    how = "is done" if ok else "failed"
    text = f"[Delegated task {work.id} {how}.]\nTask: {goal}\n{_quoted(result)}"
    notice = f"A delegated task {how}: {goal}\n{_tail(result, 3 * _LONGEST_NOTICE)}"
    source = "a delegated task" + (f" that read {outside}" if outside else "")
    return _report(work, "end", text, notice, source)


def _report(work: Work, what: str, text: str, notice: str, source: str = "") -> InboundMessage:
    """`source`: where the text of others in it comes from."""
    return InboundMessage(
        work.source,
        text,
        event_id=f"work:{work.id}:{what}",
        internal=True,
        report=Report(work.session, work.generation, f"{notice}\n({_GONE})"),
        outside=source,
    )


def _ending(process: Process) -> str:
    match process.state:
        case "done":
            return "finished with exit code 0"
        case "lost":
            return "is lost: what became of it is not known"
        case "killed":
            return f"was ended ({process.reason})" if process.reason else "was ended"
        case _:
            why = f" ({process.reason})" if process.reason else ""
            return f"failed with exit code {process.exit_code}{why}"


def _quoted(text: str) -> str:
    """What others may have written stands between marks, with nothing in it that is not seen."""
    shown = clean(without_escapes(text)).strip()
    return fenced("output", shown) if shown else "It printed nothing."


def _short(text: str, length: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 1] + "…"


def _tail(text: str, length: int) -> str:
    text = clean(without_escapes(text)).strip()
    return text if len(text) <= length else "…" + text[-length:]
