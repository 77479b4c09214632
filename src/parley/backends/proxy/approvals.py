"""Questions of a remote agent, put to the person here, and their decisions sent back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from parley.agent.hands import Asked, Asking
from parley.agent.question_text import add_text, mark_again, shown_name
from parley.backends.base import Turn
from parley.backends.proxy.stream import ApprovalWanted
from parley.protocol import ApprovalAsked, ParleyError

__all__ = ["Approvals"]

_MOST_AT_ONCE: Final = 32
_ONCE: Final = "the remote agent wants a word for each call"

Decide: TypeAlias = Callable[[ApprovalWanted, bool], Awaitable[None]]


class Approvals:
    """The questions of one turn. While one is open the answer is read on."""

    def __init__(self, turn: Turn, decide: Decide) -> None:
        self._turn = turn
        self._decide = decide
        self._tasks: set[asyncio.Task[None]] = set()

    async def take(self, wanted: ApprovalWanted) -> ApprovalAsked | None:
        """Ask; where nobody can be asked the call is refused at once."""
        pending = None
        has_room = len(self._tasks) < _MOST_AT_ONCE
        if self._turn.ask is not None and has_room and wanted.question:
            name = f"{self._turn.id}.far.{wanted.id}"
            once = "" if wanted.lasting else _ONCE
            pending = await self._turn.ask(Asking(wanted.call, name, _what(wanted), once=once))
        task = asyncio.create_task(self._settle(wanted, pending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None if pending is None else pending.event

    async def close(self) -> None:
        """The turn is over: what is still open is not answered any more."""
        if not self._tasks:
            return
        await asyncio.sleep(0)  # so that each has begun: a question is put away by its waiter
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _settle(self, wanted: ApprovalWanted, pending: Asked | None) -> None:
        allowed = False
        if pending is not None:
            try:
                allowed = not await pending.decided()
            except ParleyError:
                allowed = False
        await self._decide(wanted, allowed)


def _what(wanted: ApprovalWanted) -> str:
    """What the far end wants to do, as it goes on after “May I”."""
    lines = [mark_again(line) for line in wanted.question.strip().split("\n")]
    if lines[0].startswith("May I ") and lines[0].endswith("?"):
        lines[0] = lines[0].removeprefix("May I ").removesuffix("?")
        return "\n".join(lines)
    what = f"let the remote agent use {shown_name(wanted.call.name)}"
    return add_text(what, "It asks", wanted.question.strip())
