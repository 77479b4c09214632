"""`parley tools`: what the agent of a profile can do."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli._plain import escaped, one_line
from parley.cli._shared import current_profile, fail
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parley.agent.skills import Skills
    from parley.cli._tools_view import Listing, ServerRow, SkillRow
    from parley.config.settings import Settings
    from parley.profiles import Profile

__all__ = ["register"]

_ALWAYS_THERE = ("api", "terminal")
_MCP = "mcp"
_ANSWERS_WITHIN = 30.0


def register(parent: typer.Typer) -> None:
    parent.command("tools")(tools)


def _surface_names(incomplete: str) -> list[str]:
    """Names for the shell to complete; whatever goes wrong, a shell is not the place to say so."""
    from parley.config import load_settings

    try:
        known = _known_surfaces(load_settings(current_profile()))
    except (ParleyError, OSError):
        return []
    return [name for name in known if name.startswith(incomplete)]


def tools(
    *,
    surface: Annotated[
        str | None,
        typer.Option(
            "--surface",
            metavar="NAME",
            help="What is offered there, such as webhook.",
            autocompletion=_surface_names,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Start the MCP servers for a moment and ask them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the agent can do: its tools, MCP servers and skills.

    With --check it ends with 1 when a server does not work.
    """
    from parley.cli._tools_view import as_record, as_text
    from parley.config import Secrets, load_settings

    profile = current_profile()
    settings = load_settings(profile)
    listing = _listing(profile, settings, Secrets(profile).get, surface=surface, check=check)
    if as_json:
        typer.echo(escaped(json.dumps(as_record(listing), ensure_ascii=False)))
    else:
        typer.echo(as_text(listing), nl=False)
    if check and listing.broken:
        raise typer.Exit(1)


def _listing(
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    *,
    surface: str | None,
    check: bool,
) -> Listing:
    from parley.agent.toolbox import Toolbox
    from parley.cli._tools_view import Listing, row_of
    from parley.config.child_env import child_environment

    known = _known_surfaces(settings)
    if surface is not None and surface not in known:
        said = one_line(surface, longest=40)
        fail(f"There is no surface {said!r}; there are {', '.join(known)}.")
    agent = settings.agent
    environment = child_environment(profile, os.environ)
    box = Toolbox(profile, settings, secret=secret, environment=environment)
    names = agent.tools if surface is None else agent.surfaces.get(surface, agent.tools)
    servers = _without_starting(profile, settings, secret, environment)
    if check:
        servers = asyncio.run(_asked(profile, settings, servers, secret, environment))
    return Listing(
        profile.name,
        surface,
        tuple(row_of(tool) for tool in box.offered(surface or "", None).values()),
        servers=servers,
        skills=_skills(box.skills),
        far=_MCP in names,
        others=_others(settings) if surface is None else {},
        notes=_notes(settings, secret),
    )


def _known_surfaces(settings: Settings) -> list[str]:
    from parley.config.settings import SurfaceSettings

    return sorted({*_ALWAYS_THERE, *SurfaceSettings.model_fields, *settings.agent.surfaces})


def _others(settings: Settings) -> Mapping[str, tuple[str, ...]]:
    found = settings.agent.surfaces
    return {name: tuple(sorted(set(found[name]))) for name in sorted(found)}


def _without_starting(
    profile: Profile,
    settings: Settings,
    secret: Callable[[str], str | None],
    environment: Mapping[str, str],
) -> tuple[ServerRow, ...]:
    """The servers, and what is wrong with their settings; nothing is started."""
    from parley.agent.mcp.plan import make_plan, secrets_of
    from parley.cli._tools_view import ServerRow

    found = []
    for name, one in sorted(settings.mcp.items()):
        fault = None
        try:
            if one.enabled:
                secrets = secrets_of(one, secret)
                make_plan(profile, name, one, secrets=secrets, environment=environment)
        except ParleyError as error:
            fault = str(error)
        found.append(ServerRow(name, one.enabled, fault))
    return tuple(found)


async def _asked(
    profile: Profile,
    settings: Settings,
    servers: tuple[ServerRow, ...],
    secret: Callable[[str], str | None],
    environment: Mapping[str, str],
) -> tuple[ServerRow, ...]:
    """Start those that are set up well, ask each for its tools, and end them."""
    import logging

    from parley.agent.mcp import McpServers
    from parley.cli._tools_view import ServerRow, row_of

    # What goes wrong is in the listing; without any handler Python would print it as well.
    logging.root.addHandler(logging.NullHandler())

    async def ask(row: ServerRow) -> ServerRow:
        if not row.enabled or row.fault:
            return row
        one = {row.name: settings.mcp[row.name]}
        running = McpServers(profile, one, secret=secret, environment=environment)
        running.start()
        try:
            await running.ready(_ANSWERS_WITHIN)
            found = tuple(row_of(tool, far=True) for tool in running.tools())
            return ServerRow(row.name, True, running.health().get(row.name), found)
        finally:
            await running.close()

    return tuple(await asyncio.gather(*(ask(row) for row in servers)))


def _skills(skills: Skills) -> tuple[SkillRow, ...]:
    from parley.cli._tools_view import SkillRow

    good = [SkillRow(skill.name, skill.description) for skill in skills.listing()]
    bad = [SkillRow(name, fault=why) for name, why in sorted(skills.faults().items())]
    return (*good, *bad)


def _notes(settings: Settings, secret: Callable[[str], str | None]) -> tuple[str, ...]:
    """Why the agent may have none of it."""
    from parley.agent.providers import build_provider

    if settings.gateway.proxy_url is not None:
        return ("A remote agent answers, with tools of its own: gateway.proxy_url.",)
    try:
        provider = build_provider(settings, secret)
    except ParleyError:
        return ()
    if provider.offers_tools:
        return ()
    return (
        f"{provider.label} · {provider.model} is not offered any of them: it is too small for "
        "tools, or they are turned off for it.",
    )
