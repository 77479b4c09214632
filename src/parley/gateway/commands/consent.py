"""Commands that answer a question of the running turn: /approve and /deny."""

from __future__ import annotations

from parley.gateway.commands.base import CommandCall, Reply

__all__ = ["approve", "deny"]


async def approve(call: CommandCall) -> Reply:
    return _decide(call, allowed=True)


async def deny(call: CommandCall) -> Reply:
    return _decide(call, allowed=False)


def _decide(call: CommandCall, *, allowed: bool) -> Reply:
    found = call.approvals.decide(call.lane, allowed=allowed, approval=call.argument or None)
    if found is None:
        return Reply("Nothing waits for your word here.")
    return Reply(f"{'Allowed' if allowed else 'Refused'}: `{found.event.call.name}`.")
