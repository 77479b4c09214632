"""`parley status`: the short way to `parley gateway status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["register"]


def register(parent: typer.Typer) -> None:
    from parley.cli.gateway import status

    parent.command("status")(status)
