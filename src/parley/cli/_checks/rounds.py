"""All checks, side by side, and what they found in a fixed order: the slowest comes last."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from parley.cli._checks.api import check_api
from parley.cli._checks.budgets import check_budgets, check_owners
from parley.cli._checks.database import check_database
from parley.cli._checks.direct_agent import check_direct_agent
from parley.cli._checks.far_end import check_far_end
from parley.cli._checks.finding import Finding, fault
from parley.cli._checks.gateway import check_gateway
from parley.cli._checks.machine import check_disk, check_home, check_log, check_programs
from parley.cli._checks.matrix import check_matrix
from parley.cli._checks.mcp import check_mcp
from parley.cli._checks.models import check_local_model, check_providers
from parley.cli._checks.sandbox import check_sandbox
from parley.cli._checks.settings import Ground, read_ground
from parley.cli._plain import one_line
from parley.config.redact import Redactor, secret_values
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["examine"]


async def examine(profile: Profile, *, offline: bool) -> AsyncIterator[list[Finding]]:
    """Yield what was found, check by check; no secret stands in any of it."""
    reading = asyncio.create_task(_read(profile))

    async def on_ground(check: Callable[[Ground], Awaitable[list[Finding]]]) -> list[Finding]:
        return await check((await reading)[0])

    async def settings() -> list[Finding]:
        return (await reading)[1]

    rounds = [
        _supervised("python", asyncio.to_thread(check_programs)),
        _supervised("home", asyncio.to_thread(check_home, profile)),
        _supervised("disk", asyncio.to_thread(check_disk, profile)),
        _supervised("log", asyncio.to_thread(check_log, profile)),
        settings(),
        _supervised("database", asyncio.to_thread(check_database, profile)),
        _supervised("gateway", on_ground(check_gateway)),
        _supervised("api", on_ground(lambda ground: asyncio.to_thread(check_api, ground))),
        _supervised("sandbox", on_ground(lambda ground: asyncio.to_thread(check_sandbox, ground))),
        _supervised("owners", on_ground(lambda ground: asyncio.to_thread(check_owners, ground))),
        _supervised("budgets", on_ground(lambda ground: asyncio.to_thread(check_budgets, ground))),
        _supervised(
            "local model", on_ground(lambda ground: asyncio.to_thread(check_local_model, ground))
        ),
        _supervised("provider", on_ground(lambda ground: check_providers(ground, offline=offline))),
        _supervised("mcp", on_ground(lambda ground: check_mcp(ground, offline=offline))),
        _supervised("matrix", on_ground(lambda ground: check_matrix(ground, offline=offline))),
        _supervised(
            "remote agent", on_ground(lambda ground: check_far_end(ground, offline=offline))
        ),
        _supervised(
            "direct agent", on_ground(lambda ground: check_direct_agent(ground, offline=offline))
        ),
    ]
    tasks = [asyncio.create_task(one) for one in rounds]
    redactor = _redactor((await reading)[0])
    for task in tasks:
        yield [
            replace(finding, what=one_line(redactor.text(finding.what), longest=1000))
            for finding in await task
        ]


async def _read(profile: Profile) -> tuple[Ground, list[Finding]]:
    try:
        return await asyncio.to_thread(read_ground, profile)
    except Exception as error:  # noqa: BLE001 - supervisor: the other checks go on
        return Ground(profile), [_broke("config", error)]


async def _supervised(check: str, work: Awaitable[list[Finding]]) -> list[Finding]:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - supervisor: the other checks go on
        return [_broke(check, error)]


def _broke(check: str, error: Exception) -> Finding:
    """A check that fails is itself a finding."""
    if isinstance(error, ParleyError):
        return fault(check, str(error))
    said = one_line(str(error), longest=200)
    reason = type(error).__name__ + (f": {said}" if said else "")
    return fault(check, f"this check itself broke ({reason}).")


def _redactor(ground: Ground) -> Redactor:
    from parley.config.env import looks_secret

    held = {
        value
        for name, value in ground.env_values.items()
        if looks_secret(name) or not name.startswith("PARLEY_")
    }
    return Redactor(held | secret_values(os.environ))
