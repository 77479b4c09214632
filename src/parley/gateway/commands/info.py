"""Commands that tell: what is going on, what was used, and who answers."""

from __future__ import annotations

import time

from parley.agent.budget import describe
from parley.gateway.commands.base import CommandCall, Reply, count
from parley.gateway.commands.memory import remembered_line
from parley.protocol import ParleyError
from parley.storage.contract import SetModel
from parley.storage.hands import Payer

__all__ = ["model", "plan_line", "status", "usage"]


async def status(call: CommandCall) -> Reply:
    health = await call.store.health()
    session = call.session
    lines = [
        f"Conversation `{session.id}`" + (f" — {session.title}" if session.title else ""),
        f"Answered by {_answered_by(call)}",
        f"{count(session.turns, 'turn')} here, {'one' if call.running else 'none'} running",
        f"Of all conversations: {health.running} running, {health.queued} waiting, "
        + count(health.undelivered, "reply on its way", "replies on their way"),
    ]
    lines.append(f"Your plan: {await plan_line(call)}")
    behind = len(await call.store.works(lane=call.lane))
    if behind:
        lines.append(f"{behind} running in the background here: `{call.verb}work`")
    remembered = await remembered_line(call)
    if remembered is not None:
        lines.append(remembered)
    if health.unsure and call.is_operator:
        unsure = count(len(health.unsure), "reply", "replies")
        lines.append(f"{unsure} may not have arrived: `parley gateway status`")
    return Reply("\n".join(f"- {line}" for line in lines))


async def usage(call: CommandCall) -> Reply:
    session = call.session
    cached = f" ({session.cached_tokens:,} from cache)" if session.cached_tokens else ""
    lines = [
        f"This conversation: {session.input_tokens:,} tokens in{cached}, "
        f"{session.output_tokens:,} out, {count(session.turns, 'turn')}."
    ]
    plan = await call.reach.people.plan_of(call.person)
    limits = call.reach.budget.limits(time.time(), plan)
    if limits:
        spent = await call.store.spent(Payer(call.person, session.id), limits)
        lines += [f"- {describe(limit, used)}" for limit, used in zip(limits, spent, strict=True)]
    return Reply("\n".join(lines))


async def plan_line(call: CommandCall) -> str:
    """What this person may use, and what they have used of it."""
    plan = await call.reach.people.plan_of(call.person)
    if plan is None:
        return "none (unlimited)"
    limits = call.reach.budget.limits(time.time(), plan)
    ours = [limit for limit in limits if limit.plan is not None]
    [used] = await call.store.spent(Payer(call.person, call.session.id), ours)
    return f"{plan.name}, {used.tokens:,} of {plan.tokens:,} tokens used this month"


async def model(call: CommandCall) -> Reply:
    if call.models is None:
        return Reply("Who answers here is chosen elsewhere; there is no model to pick.")
    if not call.argument:
        names = ", ".join(f"`{name}`" for name in call.models.names())
        verb = f"{call.verb}model"
        return Reply(
            f"Answered by {_answered_by(call)}.\n\nTo choose for this conversation: "
            f"`{verb} PROVIDER [MODEL]` or `{verb} default`. Providers: {names}."
        )
    if call.argument == "default":
        return Reply(
            f"Back to the default: {call.models.describe(None, None)}.", SetModel(None, None)
        )
    provider, _, name = call.argument.partition(" ")
    chosen = name.strip() or None
    # The path of a file of this machine may be anything, such as one that a guest sent.
    if chosen and call.models.is_file(provider, chosen) and not call.is_owner:
        return Reply("Only an owner can choose a file of this machine.")
    try:
        described = call.models.describe(provider, chosen)
    except ParleyError as error:
        if call.is_operator:
            return Reply(str(error))
        names = ", ".join(f"`{each}`" for each in call.models.names())
        return Reply(f"`{provider}` cannot be chosen here. Providers: {names}.")
    return Reply(
        f"From now on this conversation is answered by {described}.", SetModel(provider, chosen)
    )


def _answered_by(call: CommandCall) -> str:
    if call.models is None:
        return "a remote agent"
    try:
        return call.models.describe(call.session.provider, call.session.model)
    except ParleyError as error:
        return f"nobody yet: {call.error_text(error)}"
