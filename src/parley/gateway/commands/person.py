"""Commands about what a person has set for themselves: settings, skills, connectors, soul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from parley.agent.person import LONGEST_INSTRUCTIONS, LONGEST_NAME, Soul
from parley.gateway.commands.base import CommandCall, Reply
from parley.gateway.commands.info import plan_line
from parley.gateway.commands.switches import read_switch

__all__ = ["connectors", "settings", "skills", "soul"]

_ELSEWHERE: Final = (
    "Who answers here is chosen elsewhere and has tools of its own: this does not reach them."
)


async def settings(call: CommandCall) -> Reply:
    """All of it in one list."""
    theirs, verb = await call.reach.people.settings_of(call.person), call.verb
    known, servers = _skills(call, theirs.skills), _connectors(call)
    parts = [
        f"**Skills** (`{verb}skills on|off NAME`): {_listed(known)}",
        f"**Connectors** (`{verb}connectors on|off NAME`): "
        + _listed({name: theirs.connectors.get(name, True) for name in servers}),
        f"**Soul** (`{verb}soul`): {_soul_line(theirs.soul)}",
        f"**Asked first** (`{verb}safety on|off NAME`): {_listed(theirs.safety)}",
        f"**Plan**: {await plan_line(call)}",
    ]
    return Reply("\n".join(f"- {part}" for part in parts))


async def skills(call: CommandCall) -> Reply:
    theirs = (await call.reach.people.settings_of(call.person)).skills
    offered = call.reach.menu.skills(call.source.platform)
    known = _skills(call, theirs)
    if not call.argument:
        lines = [
            f"- {name}: {_on(on)}{'' if offered.get(name) else ' (nothing here offers it)'}"
            for name, on in known.items()
        ]
        return Reply("\n".join([*lines, "", f"`{call.verb}skills on|off NAME`.", *_note(call)]))
    return await _switch(call, "skills", known, dict(offered))


async def connectors(call: CommandCall) -> Reply:
    theirs = (await call.reach.people.settings_of(call.person)).connectors
    known = {name: theirs.get(name, True) for name in _connectors(call)}
    if not known:
        return Reply("There are no connectors here.")
    if not call.argument:
        lines = [f"- {name}: {_on(on)}" for name, on in known.items()]
        return Reply("\n".join([*lines, "", f"`{call.verb}connectors on|off NAME`.", *_note(call)]))
    return await _switch(call, "connectors", known, dict.fromkeys(known, True))


async def soul(call: CommandCall) -> Reply:
    """How the agent is to be towards this person."""
    verb, people = call.verb, call.reach.people
    word, _, rest = call.argument.partition(" ")
    said = rest.strip()
    match word.lower():
        case "":
            theirs = (await people.settings_of(call.person)).soul
            usage = f"`{verb}soul name NAME`, `{verb}soul instructions …`, `{verb}soul clear`."
            return Reply(f"{_soul_line(theirs)}\n\n{usage}")
        case "clear":
            await people.put(call.person, "soul.name", None)
            await people.put(call.person, "soul.instructions", None)
            return Reply("I am as I was made again.")
        case "name" if said:
            name = " ".join(said.split())
            if len(name) > LONGEST_NAME:
                return Reply(f"A name has at most {LONGEST_NAME} characters.")
            await people.put(call.person, "soul.name", name)
            return Reply(f"You can call me {name}.")
        case "instructions" if said:
            if len(said) > LONGEST_INSTRUCTIONS:
                return Reply(f"Instructions have at most {LONGEST_INSTRUCTIONS:,} characters.")
            await people.put(call.person, "soul.instructions", said)
            return Reply("I will keep to that, wherever we talk.")
    return Reply(f"`{verb}soul name NAME`, `{verb}soul instructions …`, or `{verb}soul clear`.")


async def _switch(
    call: CommandCall,
    kind: Literal["skills", "connectors"],
    known: Mapping[str, bool],
    offered: Mapping[str, bool],
) -> Reply:
    wanted = read_switch(f"{call.verb}{kind}", call.argument, known)
    if isinstance(wanted, str):
        return Reply(wanted)
    name, on = wanted
    await call.reach.people.put(call.person, f"{kind}.{name}", _on(on))
    told = [f"`{name}` is {_on(on)}."]
    if on and not offered.get(name):
        told.append("Nothing here offers it yet: an owner has to set it up.")
    return Reply(" ".join([*told, *_note(call)]))


def _skills(call: CommandCall, theirs: Mapping[str, bool]) -> dict[str, bool]:
    """By name, with those that are on unless somebody says otherwise."""
    names = call.reach.menu.skills(call.source.platform)
    return {name: theirs.get(name, True) for name in names}


def _connectors(call: CommandCall) -> tuple[str, ...]:
    return call.reach.menu.connectors(call.source.platform)


def _note(call: CommandCall) -> list[str]:
    return [_ELSEWHERE] if call.models is None else []


def _soul_line(soul: Soul) -> str:
    parts = [f"You call me {soul.name}." if soul.name else "", soul.instructions]
    return " ".join(part for part in parts if part) or "as I was made"


def _listed(switches: Mapping[str, bool]) -> str:
    return ", ".join(f"{name} {_on(on)}" for name, on in switches.items()) or "none"


def _on(on: bool) -> str:
    return "on" if on else "off"
