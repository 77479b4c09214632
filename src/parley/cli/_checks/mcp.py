"""The MCP servers: whether each can be started or reached. No program is started for this."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import Final

from parley.cli._checks.finding import Finding, edit, fault, note, ok
from parley.cli._checks.settings import Ground
from parley.config.extras import install_command
from parley.config.hands import McpServerSettings
from parley.protocol import ParleyError

__all__ = ["check_mcp"]

_CHECK: Final = "mcp"
_ANSWERS_WITHIN: Final = 5.0


async def check_mcp(ground: Ground, *, offline: bool) -> list[Finding]:
    """Unless `offline`, greet those that have an address; nothing where no server is set up."""
    servers = ground.settings.mcp if ground.settings is not None else {}
    wanted = {name: one for name, one in sorted(servers.items()) if one.enabled}
    if not wanted:
        return []
    if find_spec("mcp") is None:
        what = "MCP servers need a part that is not installed."
        return [fault(_CHECK, what, install_command("mcp"))]
    found = await asyncio.to_thread(_check_plans, ground, wanted)
    bad = {finding.what.split("`")[1] for finding in found if finding.level == "fault"}
    remote = {name: one for name, one in wanted.items() if one.url and name not in bad}
    return found + ([] if offline or not remote else await _greet(ground, remote))


def _check_plans(ground: Ground, wanted: dict[str, McpServerSettings]) -> list[Finding]:
    from parley.agent.mcp.plan import make_plan, secrets_of
    from parley.config.child_env import base_environment

    found = []
    for name, settings in wanted.items():
        try:
            plan = make_plan(
                ground.profile,
                name,
                settings,
                secrets=secrets_of(settings, ground.secret),
                environment=base_environment(os.environ),
            )
        except ParleyError as error:
            what = f"`{name}` cannot be used: {error}"
            found.append(fault(_CHECK, what, edit(ground.profile.config_file)))
        else:
            how = f"is asked at {plan.address}" if plan.url else f"is started as {plan.command[0]}"
            found.append(ok(_CHECK, f"`{name}` {how}."))
    return found


async def _greet(ground: Ground, remote: dict[str, McpServerSettings]) -> list[Finding]:
    from parley.agent.mcp import McpServers

    servers = McpServers(ground.profile, remote, secret=ground.secret, environment={})
    servers.start()
    try:
        await servers.ready(_ANSWERS_WITHIN)
        health, silent = servers.health(), servers.waiting()
    finally:
        await servers.close()
    late = f"It has not answered within {_ANSWERS_WITHIN:g} s."
    told = {**dict.fromkeys(silent, late), **health}
    return [
        note(_CHECK, f"`{name}`: {sentence}", "parley doctor")
        for name, sentence in sorted(told.items())
    ]
