"""Commands about a person's word: approve (yes), deny (no), grants, safety."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from parley import audit
from parley.agent.question_text import question_lines
from parley.gateway.approvals import SAFETY_TRIGGERS
from parley.gateway.commands.base import CommandCall, Reply, count
from parley.gateway.commands.near_miss import near_miss
from parley.gateway.commands.switches import read_switch
from parley.storage.contract import Outcome, Settle
from parley.storage.hands import Scope

__all__ = ["approve", "deny", "grants", "safety"]

_NOTHING = "Nothing waits for your word here."
_ID = re.compile(r"appr_\w+")
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
        elif approval is None and _ID.fullmatch(word):
            approval = word
        else:
            return await _not_understood(call, word, allowed=allowed)
    approvals = call.reach.approvals
    found = await approvals.find(call.lane, by=call.person, owner=call.is_owner, approval=approval)
    question = found.question
    if question is None and approval is not None and not found.refused:
        return await _not_understood(call, approval, allowed=allowed)
    if question is None:
        return Reply(found.refused or _NOTHING)
    again = ""
    if scope != "once":
        again = f" This exact call is not asked about again ({scope})."
        if question.once:
            again = f" This once, and it is asked each time: {question.once}."
    done = f"Allowed: `{question.tool}`.{again}" if allowed else f"Refused: `{question.tool}`."

    def then(outcome: Outcome) -> None:
        if not outcome.refused:
            approvals.settled(question, allowed=allowed, by=call.person, scope=scope)

    return Reply(
        lambda outcome: _NOTHING if outcome.refused else done,
        Settle(question.id, "allowed" if allowed else "denied", call.person, scope),
        then,
    )


async def _not_understood(call: CommandCall, word: str, *, allowed: bool) -> Reply:
    """A question waits, and the word for it cannot be read: say what is wrong with it."""
    approvals = call.reach.approvals
    found = await approvals.find(call.lane, by=call.person, owner=call.is_owner)
    if found.question is None:
        return Reply(found.refused or _NOTHING)
    answer, id = "yes" if allowed else "no", found.question.id
    if _ID.fullmatch(word):
        return Reply(
            f"No question `{word}` waits here; `{call.verb}{answer} {id}` answers this one."
        )
    near = near_miss(word, _SCOPES)
    meant = f"Did you mean `{call.verb}{answer} {near}`? " if near and allowed else ""
    how = f"{call.verb}yes [once|session|always] [ID]" if allowed else f"{call.verb}no [ID]"
    return Reply(f"`{word}` is not understood, and the question still waits. {meant}`{how}`.")


async def grants(call: CommandCall) -> Reply:
    """What this person allowed for good; `revoke` takes it back."""
    word, _, which = call.argument.partition(" ")
    store = call.store
    if word.lower() == "revoke":
        if which.strip() == "all":
            taken = await store.revoke_grants(call.person)
            _record_revoked(call, taken)
            return Reply(f"{count(taken, 'permission')} taken back.")
        if not which.strip().isdecimal():
            verb = f"{call.verb}grants"
            return Reply(f"Which one? `{verb}` lists them; then `{verb} revoke NUMBER` or `all`.")
        gone = await store.revoke_grants(call.person, int(which))
        _record_revoked(call, gone, int(which))
        return Reply("Taken back." if gone else "There is none of that number.")
    found = await store.grants(call.person)
    if not found:
        return Reply("You have allowed nothing beyond a single call.")
    lines = []
    for grant in found:
        when = f"{datetime.fromtimestamp(grant.at, UTC):%Y-%m-%d}"
        lines.append(f"- {grant.id}: {question_lines(grant.what, f'{grant.scope}, {when}')}")
    revoke = f"`{call.verb}grants revoke NUMBER` or `{call.verb}grants revoke all`."
    return Reply("\n".join([*lines, "", revoke]))


def _record_revoked(call: CommandCall, count: int, id: int | None = None) -> None:
    if count:
        origin = call.source.platform
        audit.record("grant.revoked", who=call.person, origin=origin, id=id, count=count)


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
    wanted = read_switch(f"{verb}safety", call.argument, SAFETY_TRIGGERS)
    if isinstance(wanted, str):
        return Reply(wanted)
    name, on = wanted
    await call.reach.people.put(call.person, f"safety.{name}", "on" if on else "off")
    asked = "You are asked" if on else "You are not asked any more"
    return Reply(f"{asked} before `{name}`.")
