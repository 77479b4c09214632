"""`on NAME` and `off NAME`, as several commands take them. Pure."""

from __future__ import annotations

from collections.abc import Collection

from parley.gateway.commands.near_miss import near_miss

__all__ = ["read_switch"]

_STATES = ("on", "off")


def read_switch(command: str, argument: str, names: Collection[str]) -> tuple[str, bool] | str:
    """Which name, and whether it is to be on; else a sentence that helps."""
    words = argument.split()
    by_name = {name.lower(): name for name in names}
    found = {each: _name(each, by_name) for each in words}
    name = next((each for each in found.values() if each is not None), None)
    states = [each.lower() for each in words if found[each] is None]
    state = states[0] if states and states[0] in _STATES else None
    if len(words) == 2 and state is not None and words[1].lower() in by_name:
        return by_name[words[1].lower()], state == "on"
    meant = state or next((near for each in states if (near := near_miss(each, _STATES))), None)
    if name is not None and meant is not None:
        return f"Did you mean `{command} {meant} {name}`?"
    if name is not None:
        return f"`{command} on {name}` or `{command} off {name}`?"
    listed = ", ".join(f"`{each}`" for each in names)
    return f"`{command} on NAME` or `{command} off NAME`; names: {listed}."


def _name(word: str, by_name: dict[str, str]) -> str | None:
    if word.lower() in (*_STATES, "of"):
        return None
    exact = by_name.get(word.lower())
    if exact is not None:
        return exact
    near = near_miss(word, by_name)
    return by_name[near] if near is not None else None
