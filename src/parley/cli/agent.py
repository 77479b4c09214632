"""`parley agent serve`: a profile as a direct agent, for other Parleys and other clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.cli._gateway_words import describe
from parley.cli._shared import asked_profile, current_profile
from parley.cli.gateway import serve as serve_gateway
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.cli._host import House

__all__ = ["register"]

app = typer.Typer(help="Serve an agent to other programs.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="agent")


@app.callback()
def _agent() -> None: ...


@app.command()
def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="HOST", help="Where to listen, instead of gateway.host."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="PORT", min=0, max=65535, help="And the port; 0 is any free one."
        ),
    ] = None,
) -> None:
    """Serve one profile over a WebSocket, until it is stopped (Ctrl-C)."""

    def plan() -> House:
        from parley.cli._host import plan_gateway

        house = plan_gateway(current_profile(), alone=True)
        given = {"host": host and host.strip(), "port": port}
        changed = {name: value for name, value in given.items() if value not in (None, "")}
        return replace(house, config=house.config.model_copy(update=changed))

    serve_gateway(plan, _greet)


def _greet(status: Mapping[str, Any], *, keyless: bool) -> str:
    """Where it is, and with which key; raises when clients cannot reach it."""
    [site] = (place for place in status["surfaces"] if place["platform"] == "api")
    if site["fault"]:
        raise ParleyError(site["fault"])
    where = str(site["where"]).replace("http", "ws", 1)
    named = asked_profile()
    of = "" if named is None else f" --profile {named}"
    key = "parley keys local" if keyless else f"parley keys create NAME{of}"
    return "\n".join(
        [
            describe(status, greeting=True),
            "",
            "Clients of the direct-agent protocol connect to",
            f"  {where}/agent_ws/?thread_id=THREAD",
            "and send a key as `Authorization: Bearer KEY`. Get one with",
            f"  {key}",
            "Press Ctrl-C to stop.",
        ]
    )
