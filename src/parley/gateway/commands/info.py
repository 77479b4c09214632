"""Commands that tell: /help /status /usage /model."""

from __future__ import annotations

import time

from parley.agent.budget import describe
from parley.gateway.commands.base import CommandCall, Reply, count
from parley.protocol import ParleyError
from parley.storage.contract import SetModel
from parley.storage.hands import Payer

__all__ = ["model", "status", "usage"]


async def status(call: CommandCall) -> Reply:
    health = await call.store.health()
    session = call.session
    lines = [
        f"Conversation `{session.id}`" + (f" — {session.title}" if session.title else ""),
        f"Answered by {_answered_by(call)}",
        f"{count(session.turns, 'turn')} here, {'one' if call.running else 'none'} running",
        f"Of all conversations: {health.running} running, {health.queued} waiting, "
        f"{count(health.undelivered, 'reply', 'replies')} on their way",
    ]
    behind = len(await call.store.works(lane=call.lane))
    if behind:
        lines.append(f"{behind} running in the background here: `/work`")
    if health.unsure:
        lines.append(f"{len(health.unsure)} replies may not have arrived: `parley gateway status`")
    return Reply("\n".join(f"- {line}" for line in lines))


async def usage(call: CommandCall) -> Reply:
    session = call.session
    cached = f" ({session.cached_tokens:,} from cache)" if session.cached_tokens else ""
    lines = [
        f"This conversation: {session.input_tokens:,} tokens in{cached}, "
        f"{session.output_tokens:,} out, {count(session.turns, 'turn')}."
    ]
    limits = call.reach.budget.limits(time.time())
    if limits:
        spent = await call.store.spent(Payer(call.person, session.id), limits)
        lines += [f"- {describe(limit, used)}" for limit, used in zip(limits, spent, strict=True)]
    return Reply("\n".join(lines))


async def model(call: CommandCall) -> Reply:
    if call.models is None:
        return Reply("Who answers here is chosen elsewhere; there is no model to pick.")
    if not call.argument:
        names = ", ".join(f"`{name}`" for name in call.models.names())
        return Reply(
            f"Answered by {_answered_by(call)}.\n\nTo choose for this conversation: "
            f"`/model PROVIDER [MODEL]` or `/model default`. Providers: {names}."
        )
    if call.argument == "default":
        return Reply(
            f"Back to the default: {call.models.describe(None, None)}.", SetModel(None, None)
        )
    provider, _, name = call.argument.partition(" ")
    chosen = name.strip() or None
    try:
        described = call.models.describe(provider, chosen)
    except ParleyError as error:
        return Reply(str(error))
    return Reply(
        f"From now on this conversation is answered by {described}.", SetModel(provider, chosen)
    )


def _answered_by(call: CommandCall) -> str:
    if call.models is None:
        return "a remote agent"
    try:
        return call.models.describe(call.session.provider, call.session.model)
    except ParleyError as error:
        return f"nobody yet: {error}"
