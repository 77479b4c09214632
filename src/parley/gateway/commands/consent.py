"""Commands about a person's word: approve (yes), deny (no), grants, safety."""

from __future__ import annotations

from datetime import UTC, datetime

from parley.gateway.approvals import SAFETY_TRIGGERS
from parley.gateway.commands.base import CommandCall, Reply, count
from parley.storage.contract import Outcome, Settle
from parley.storage.hands import Scope

__all__ = ["approve", "deny", "grants", "safety"]

_NOTHING = "Nothing waits for your word here."
_SCOPES: dict[str, Scope] = {"once": "once", "session": "session", "always": "always"}


async def approve(call: CommandCall) -> Reply:
    return await _decide(call, allowed=True)


async def deny(call: CommandCall) -> Reply:
    return await _decide(call, allowed=False)


async def _decide(call: CommandCall, *, allowed: bool) -> Reply:
    scope: Scope = "once"
    approval: str | None = None
    for word in call.argument.split():
        if word.lower() in _SCOPES:
            scope = _SCOPES[word.lower()]
        elif approval is None:
            approval = word
        else:
            return Reply("That is too much: `!yes [once|session|always] [ID]`.")
    approvals = call.reach.approvals
    found = await approvals.find(call.lane, by=call.person, owner=call.is_owner, approval=approval)
    question = found.question
    if question is None:
        return Reply(found.refused or _NOTHING)
    again = "" if scope == "once" else f" This exact call is not asked about again ({scope})."
    done = f"Allowed: `{question.tool}`.{again}" if allowed else f"Refused: `{question.tool}`."

    def then(outcome: Outcome) -> None:
        if not outcome.refused:
            approvals.settled(question, allowed=allowed)

    return Reply(
        lambda outcome: _NOTHING if outcome.refused else done,
        Settle(question.id, "allowed" if allowed else "denied", call.person, scope),
        then,
    )


async def grants(call: CommandCall) -> Reply:
    """What this person allowed for good; `revoke` takes it back."""
    word, _, which = call.argument.partition(" ")
    store = call.store
    if word.lower() == "revoke":
        if which.strip() == "all":
            taken = await store.revoke_grants(call.person)
            return Reply(f"{count(taken, 'permission')} taken back.")
        if not which.strip().isdecimal():
            verb = f"{call.verb}grants"
            return Reply(f"Which one? `{verb}` lists them; then `{verb} revoke NUMBER` or `all`.")
        gone = await store.revoke_grants(call.person, int(which))
        return Reply("Taken back." if gone else "There is none of that number.")
    found = await store.grants(call.person)
    if not found:
        return Reply("You have allowed nothing beyond a single call.")
    lines = [
        f"- {grant.id}: {grant.what} ({grant.scope}, "
        f"{datetime.fromtimestamp(grant.at, UTC):%Y-%m-%d})"
        for grant in found
    ]
    revoke = f"`{call.verb}grants revoke NUMBER` or `{call.verb}grants revoke all`."
    return Reply("\n".join([*lines, "", revoke]))


async def safety(call: CommandCall) -> Reply:
    """What this person is asked about first."""
    words = call.argument.lower().split()
    approvals, verb = call.reach.approvals, call.verb
    if not words:
        lines = [
            f"- {name}: {'on' if await approvals.is_on(call.person, name) else 'off'}"
            for name in SAFETY_TRIGGERS
        ]
        return Reply(
            "\n".join(["You are asked before:", *lines, "", f"`{verb}safety on|off NAME`."])
        )
    if len(words) != 2 or words[0] not in ("on", "off") or words[1] not in SAFETY_TRIGGERS:
        names = ", ".join(f"`{name}`" for name in SAFETY_TRIGGERS)
        return Reply(f"`{verb}safety on NAME` or `{verb}safety off NAME`; names: {names}.")
    await call.reach.people.put(call.person, f"safety.{words[1]}", words[0])
    asked = "You are asked" if words[0] == "on" else "You are not asked any more"
    return Reply(f"{asked} before `{words[1]}`.")
