"""`parley keys create | list | revoke | local`."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from parley import audit
from parley.cli._plain import escaped, one_line
from parley.cli._shared import asked_profile, current_profile, fail
from parley.protocol import ParleyError

__all__ = ["register"]

app = typer.Typer(help="Keys for programs that call the API.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="keys")


def _known_names(incomplete: str) -> list[tuple[str, str]]:
    """Names for the shell to complete; whatever goes wrong, a shell is not the place to say so."""
    from parley.config.api_keys import KeyFile

    try:
        found = KeyFile(current_profile()).keys()
    except (ParleyError, OSError):
        return []
    return [(key.name, key.id) for key in found if key.name.startswith(incomplete)]


_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("create")
def create(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="What it is for, such as laptop.")
    ] = None,
    *,
    scope: Annotated[
        str,
        typer.Option(
            "--scope", metavar="LIST", help="What it may do: any of chat, runs and admin."
        ),
    ] = "chat,runs",
    expires: Annotated[
        str,
        typer.Option(
            "--expires", metavar="WHEN", help="30d, 12h, the end of 2031-01-31, or never."
        ),
    ] = "never",
    rate: Annotated[
        int | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=1,
            max=1_000_000,
            help="Requests a minute; as the settings say if left out.",
        ),
    ] = None,
    all_profiles: Annotated[
        bool,
        typer.Option("--all-profiles", help="For every profile; the default one's keys only."),
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Make a key, and print it this once: only a hash of it is kept."""
    from parley.cli._keys_view import as_record, expiry, moment, scopes_of
    from parley.config.api_keys import KeyFile

    profile, now = current_profile(), time.time()
    file = KeyFile(profile)
    first = not file.keys()
    key, token = file.create(
        name,
        scopes_of(scope),
        all_profiles=all_profiles,
        expires_at=expiry(expires, now),
        per_minute=rate,
    )
    typer.echo(_json({**as_record(key, now), "token": token}) if as_json else token)
    whose = "all profiles" if key.all_profiles else f"`{profile.name}`"
    until = "" if key.expires_at is None else f" until {moment(key.expires_at)}"
    _note(f"Key `{key.name}` is for {whose}{until}; keep it safe, for it is not shown again.")
    if first:
        _note("While there is a key, the one of `parley keys local` does not work.")


@app.command("list")
def list_(as_json: _AsJson = False) -> None:
    """Show the keys of a profile. What they are themselves cannot be shown."""
    from parley.cli._keys_view import as_list, as_record
    from parley.config.api_keys import KeyFile

    profile, now = current_profile(), time.time()
    keys = KeyFile(profile).keys()
    if as_json:
        typer.echo(_json([as_record(key, now) for key in keys]))
    elif keys:
        typer.echo(as_list(keys, profile.name, now), nl=False)
    else:
        asked = "" if asked_profile() is None else f" --profile {profile.name}"
        typer.echo(f"`{profile.name}` has no keys; make one with: parley keys create NAME{asked}")
        typer.echo("Without any, the local one works on this machine: parley keys local")


@app.command("revoke")
def revoke(
    key: Annotated[
        str,
        typer.Argument(
            metavar="NAME|ID", help="A key's name or its id.", autocompletion=_known_names
        ),
    ],
) -> None:
    """Take a key away. It does not work from that moment on, in a running gateway too."""
    from parley.config.api_keys import KeyFile

    profile = current_profile()
    gone = KeyFile(profile).revoke(key.strip())
    if gone is None:
        said = one_line(key, longest=40)
        fail(f"`{profile.name}` has no key {said!r}; `parley keys list` shows them.")
    typer.echo(f"Key `{gone.name}` ({gone.id}) is revoked.")


@app.command("local")
def local() -> None:
    """Print the key that works on this machine while no other has been made."""
    from parley.cli._host import plan_gateway
    from parley.config.api_keys import KeyRing

    alone = asked_profile() is not None
    house = plan_gateway(current_profile(), alone=alone)
    ring = KeyRing(lambda: house.profiles, house.home)
    typer.echo(ring.local_key())
    audit.record("key.local_shown", profile=house.home)
    if ring.has_keys():
        _note("It does not work now, for there are other keys: parley keys list")
    if alone and house.config.multiplex_profiles:
        _note(
            f"It is for a gateway that serves `{house.home.name}` alone; the key of the one that "
            "serves all profiles: parley keys local"
        )


def _json(value: object) -> str:
    """JSON for scripts that does no harm on a terminal either."""
    return escaped(json.dumps(value, ensure_ascii=False))


def _note(text: str) -> None:
    typer.echo(f"parley: {text}", err=True)
