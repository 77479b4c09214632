"""`parley setup`: choose who answers, try it with a live call, and only then save it."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from parley.cli._setup_ask import ask
from parley.cli._setup_choice import Choice, save, try_out, with_variable
from parley.cli._shared import current_profile, fail, print_json
from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = ["register"]

_INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""
    app.command("setup")(setup)


def setup(
    *,
    provider: Annotated[
        str | None,
        typer.Option(help="local, openai, anthropic, or your name for another server."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask for.")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="The server's address, up to and with /v1.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option(help="The environment variable that holds the key.")
    ] = None,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the key from standard input.")
    ] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Save without a live call.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Choose the model that answers; it is tried with a live call before anything is saved."""
    from parley.config.errors import shown

    profile = current_profile()
    given = (model, base_url, key_env, key_stdin or None)
    try:
        if provider is not None:
            choice = _from_flags(
                profile, Choice(provider, model, base_url), key_env=key_env, key_stdin=key_stdin
            )
            if not no_test:
                try_out(profile, choice)
        elif any(value is not None for value in given) or not sys.stdin.isatty():
            fail("Say which provider: `parley setup --provider local|openai|anthropic|NAME`.")
        else:
            choice = _ask_until_it_answers(profile, test=not no_test, to_stderr=as_json)
        save(profile, choice)
    except ParleyError as error:
        fail(str(error))
    except (KeyboardInterrupt, typer.Abort, EOFError):
        _leave()
    if as_json:
        print_json(
            {
                "provider": choice.provider,
                "model": choice.model,
                "base_url": choice.base_url,
                "key_env": choice.variable,
                "tested": not no_test,
                "config": str(profile.config_file),
            }
        )
    else:
        typer.echo(f"Saved. {choice.provider} answers from now on: try `parley chat`.")
        if choice.provider != "local":  # whose usual models are too small for tools
            workspace = shown(profile.workspace)
            typer.echo(f"It can run commands and work on files in {workspace}: see `parley tools`.")


def _from_flags(
    profile: Profile, choice: Choice, *, key_env: str | None, key_stdin: bool
) -> Choice:
    import os

    if key_env is not None and key_stdin:
        fail("Give either --key-env or --key-stdin, not both.")
    if key_env is not None:
        from parley.config import Secrets

        if Secrets(profile).get(key_env) is None:
            fail(f"`{key_env}` is not set: export it, or give the key with --key-stdin.")
        in_environment = os.environ.get(key_env, "").strip() or None
        return with_variable(profile, choice, variable=key_env, key=in_environment)
    if key_stdin:
        key = sys.stdin.readline().strip()
        if not key:
            fail("Nothing came on standard input where the key was expected.")
        return with_variable(profile, choice, variable=None, key=key)
    return choice


def _ask_until_it_answers(profile: Profile, *, test: bool, to_stderr: bool) -> Choice:
    while True:
        choice = ask(profile, to_stderr=to_stderr)
        if not test:
            return choice
        typer.echo(f"Asking {choice.provider} for a first answer …", err=to_stderr)
        try:
            try_out(profile, choice)
        except ParleyError as error:
            typer.echo(f"\nThat did not work: {error}\nLet us try again.\n", err=to_stderr)
        else:
            typer.echo("It answers.", err=to_stderr)
            return choice


def _leave() -> NoReturn:
    typer.echo("\nNothing was changed.", err=True)
    raise typer.Exit(_INTERRUPTED)
