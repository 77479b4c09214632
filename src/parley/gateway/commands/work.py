"""The command about what runs in the background."""

from __future__ import annotations

from datetime import UTC, datetime

from parley.agent.foreign import in_code
from parley.agent.question_text import add_text, mark_unseen
from parley.agent.tools.base import ToolError
from parley.gateway.commands.base import CommandCall, Reply, count
from parley.storage.hands import Job, Work

__all__ = ["work"]

_LISTED = 20


async def work(call: CommandCall) -> Reply:
    """What runs for this conversation; `stop` ends it."""
    word, _, which = call.argument.partition(" ")
    verb = call.verb
    running = await call.store.works(lane=call.lane)
    if word.lower() == "stop":
        return await _stop(call, running, which.strip())
    planned = await call.store.jobs(call.lane)
    if word:
        whole = {each.id: _what(each) for each in running}
        whole |= {each.job.id: _wanted(each.job) for each in planned}
        if call.argument in whole:
            return Reply(add_text(f"All of `{call.argument}`", "It says", whole[call.argument]))
        return Reply(
            f"`{verb}work` lists what runs, `{verb}work ID` shows one whole; {_ends(verb)}"
        )
    if not running and not planned:
        return Reply("Nothing runs in the background here, and nothing is planned.")
    lines = [_line(each) for each in running[:_LISTED]]
    lines += [
        f"- planned `{each.job.id}` for {_time(each.next_at)}: {_short(_wanted(each.job))}"
        for each in planned[:_LISTED]
    ]
    return Reply("\n".join([*lines, "", _ends(verb)]))


async def _stop(call: CommandCall, running: list[Work], which: str) -> Reply:
    if not which:
        return Reply(f"Which one? `{call.verb}work` lists them; {_ends(call.verb)}")
    chosen = [each for each in running if which in ("all", each.id)]
    for each in chosen:
        if each.kind == "process":
            await _end_process(call, each.id)
        else:
            await call.reach.tasks.stop(each)
    ended = len(chosen)
    for planned in await call.store.jobs(call.lane):
        if which in ("all", planned.job.id):
            ended += await call.store.unschedule(planned.job.id, lane=call.lane)
    if not ended:
        return Reply(f"There is nothing of that name; `{call.verb}work` lists what runs.")
    return Reply(f"{count(ended, 'piece')} of background work ended.")


async def _end_process(call: CommandCall, id: str) -> None:
    try:
        await call.reach.processes.kill(id)
    except ToolError:
        if call.reach.processes.get(id) is not None:
            raise
        await call.store.end_work(id, "stopped")  # it never began, and now it will not


def _ends(verb: str) -> str:
    return f"`{verb}work stop ID` or `{verb}work stop all` ends it."


def _line(each: Work) -> str:
    return f"- {each.kind} `{each.id}` since {_time(each.at)}: {_short(_what(each))}"


def _what(each: Work) -> str:
    return str(each.body.get("command") or each.body.get("goal") or "")


def _wanted(job: Job) -> str:
    """What is to be done then, without the line that tells the agent when it planned it."""
    text = job.message.text
    return text.partition("\n")[2] or text


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _short(text: str) -> str:
    """The beginning, with nothing in it that a reader could miss; `/work ID` shows all."""
    line = text[:80]
    more = f" … ({len(text):,} characters)" if len(text) > len(line) else ""
    return f"{in_code(mark_unseen(line))}{more}"
