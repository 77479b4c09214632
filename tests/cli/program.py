"""The verbs under test as a program of their own: `python -m tests.cli.program config get`."""

from __future__ import annotations

import typer

from parley.cli import config, setup

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.add_typer(config.app, name="config")
setup.register(app)

if __name__ == "__main__":
    app()
