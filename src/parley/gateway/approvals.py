"""Calls that wait for a person's word.

In memory: a turn that is begun again asks again for what is safe to repeat, and takes the outcome
of every other call for unknown.
"""

from __future__ import annotations

import asyncio
import secrets

from parley.protocol import ApprovalAsked, ToolCall

__all__ = ["Approvals", "Pending"]

_PATIENCE = 600.0


class Pending:
    """One question. Whoever asked waits for `decided`."""

    def __init__(self, approvals: Approvals, lane: str, turn: int, event: ApprovalAsked) -> None:
        self.event = event
        self.lane = lane
        self.turn = turn
        self._approvals = approvals
        self._answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def decided(self) -> bool:
        """Whether it is allowed. No word within ten minutes is a no."""
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._answer
        except TimeoutError:
            return False
        finally:
            self._approvals.forget(self)

    def answer(self, *, allowed: bool) -> bool:
        """False when it was answered before."""
        if self._answer.done():
            return False
        self._answer.set_result(allowed)
        return True


class Approvals:
    """The open questions of one profile's turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Pending]] = {}

    def ask(self, lane: str, turn: int, call: ToolCall, question: str) -> Pending:
        event = ApprovalAsked(call, question, id=f"appr_{secrets.token_hex(6)}")
        pending = Pending(self, lane, turn, event)
        self._waiting.setdefault(lane, {})[event.id] = pending
        return pending

    def decide(self, lane: str, *, allowed: bool, approval: str | None = None) -> Pending | None:
        """Answer the one of that id, or the oldest; None when nothing waits for it."""
        open_here = self._waiting.get(lane, {})
        found = next(iter(open_here.values()), None) if not approval else open_here.get(approval)
        if found is None or not found.answer(allowed=allowed):
            return None
        self.forget(found)
        return found

    def waiting(self, lane: str) -> tuple[ApprovalAsked, ...]:
        return tuple(pending.event for pending in self._waiting.get(lane, {}).values())

    def forget(self, pending: Pending) -> None:
        open_here = self._waiting.get(pending.lane, {})
        if open_here.get(pending.event.id) is pending:
            del open_here[pending.event.id]
        if not open_here:
            self._waiting.pop(pending.lane, None)
