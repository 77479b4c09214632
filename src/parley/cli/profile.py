"""`parley profile list | create | show | use | rename | delete | export | import | review`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.cli._plain import escaped
from parley.cli._profile_option import profile_names
from parley.cli._shared import current_profile, fail
from parley.profiles import (
    DEFAULT_PROFILE,
    Profile,
    active_profile,
    default_profile,
    find_profile,
    mark_active,
    marked_active,
    scan_profiles,
)
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.storage.archive import Packed

__all__ = ["register"]

_MOST_NAMED = 5

app = typer.Typer(help="Several agents, each with a home of its own.", no_args_is_help=True)


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="profile")


_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="A profile.", autocompletion=profile_names)
]
_NewName = Annotated[
    str, typer.Argument(metavar="NAME", help="Small letters, digits and `-`, such as coder.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_(as_json: _AsJson = False) -> None:
    """Show every profile, who answers there, and whether it is served. `*` marks the active one."""
    from parley.cli._profile_view import as_list, summarize

    active = _active_name()
    summaries = [
        summarize(profile, active=profile.name == active) for profile in scan_profiles(report=_note)
    ]
    if as_json:
        _print_json([summary.to_dict() for summary in summaries])
    else:
        typer.echo(as_list(summaries), nl=False)


@app.command("create")
def create(
    name: _NewName,
    clone: Annotated[
        bool,
        typer.Option("--clone", help="Begin with the settings, keys, soul and skills of another."),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NAME",
            help="The one to clone; the active one if left out.",
            autocompletion=profile_names,
        ),
    ] = None,
    soul: Annotated[
        str | None, typer.Option("--soul", metavar="TEXT", help="Who the agent is, for SOUL.md.")
    ] = None,
) -> None:
    """Make a profile: a new agent with settings, memory and conversations of its own.

    A clone has no memory and no bot of the other: two profiles cannot be the same bot.
    """
    from parley.cli import _profile_make as make

    if clone or source is not None:
        origin = current_profile() if source is None else find_profile(source)
        made, keys, settings = make.clone(name, origin, soul=soul)
        _say(f"Profile `{name}` is made in {_shown(made.home)}, set up as `{origin.name}`.")
        if keys:
            _say(f"Not copied, for they are not to be shared: {', '.join(keys)}")
        _say_left_out(settings)
    else:
        made = make.create(name, soul=soul)
        _say(f"Profile `{name}` is made in {_shown(made.home)}.")
    _say(f"Who it is stands in {_shown(made.soul_file)}.")
    _say_next(made)


@app.command("show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="The active one if left out.", autocompletion=profile_names
        ),
    ] = None,
    as_json: _AsJson = False,
) -> None:
    """Tell all of a profile. Of its keys only the names are shown."""
    from parley.cli._profile_view import as_text, describe

    profile = current_profile() if name is None else find_profile(name)
    details = describe(profile, active=profile.name == _active_name())
    if as_json:
        _print_json(details.to_dict())
    else:
        typer.echo(as_text(details), nl=False)


@app.command("use")
def use(name: _Name) -> None:
    """Make a profile the one that commands work on; `default` goes back to the first."""
    profile = find_profile(name)
    mark_active(profile.name)
    _say(f"Commands work on `{profile.name}` from now on ({_shown(profile.home)}).")
    above = os.environ.get("PARLEY_PROFILE", "").strip()
    if above and above != profile.name:
        _note(f"`PARLEY_PROFILE` in the environment is above it and says `{above}`.")


@app.command("rename")
def rename(old: _Name, new: _NewName) -> None:
    """Give a profile another name. Its home moves, and it stays the active one if it was."""
    from parley.cli._profile_keep import rename as give_name

    renamed = give_name(find_profile(old), new)
    _say(f"Profile `{old}` is now `{new}`, in {_shown(renamed.home)}.")
    if _has_api_keys(renamed):
        _say(f"Its API keys no longer work; make new ones: parley keys create --profile {new}")


@app.command("delete")
def delete(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take a profile away. All but its API keys is kept in an archive, its `.env` included."""
    from parley.cli import _profile_keep as keep

    profile = find_profile(name)
    keep.refuse_to_move(profile, "deleted")
    if not yes:
        if not sys.stdin.isatty():
            fail(f"Say that you mean it: `parley profile delete {name} --yes`.")
        if not typer.confirm(f"Delete the profile `{name}`? An archive of it is kept."):
            _say("Nothing was deleted.")
            raise typer.Exit(1)
    was_active = marked_active() == name
    had_api_keys = _has_api_keys(profile)
    file, packed = keep.delete(profile)
    _say(f"Profile `{name}` is deleted; all of it, its `.env` included, is in {_shown(file)}.")
    if had_api_keys:
        _say("Its API keys are not: they are gone for good.")
    _say_packed(packed)
    if was_active:
        _say("Commands work on `default` again.")
    _note_mentions(name)
    _say(f"To have it back: parley profile import --trust {_quoted(file)}")


@app.command("export")
def export(
    name: _Name,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="NAME.tar.gz here if left out.")
    ] = None,
    secrets: Annotated[
        bool, typer.Option("--with-secrets", help="With the keys in its .env; keep it private.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a profile into a file, to keep it or to take it elsewhere."""
    from parley.cli import _profile_keep as keep

    target = (Path(f"{name}.tar.gz") if file is None else file.expanduser()).absolute()
    packed = keep.export(find_profile(name), target, secrets=secrets, force=force)
    keys = "with its keys" if secrets else "without its keys"
    _say(f"Profile `{name}` is in {_shown(target)}, {keys}.")
    _say_packed(packed)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` or `delete` wrote.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Another name than it had.")
    ] = None,
    max_gb: Annotated[
        int | None,
        typer.Option(
            "--max-gb", metavar="N", min=1, max=10_000, help="How much it may unpack to, in GiB."
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="It is your own: take over all of it as it is.")
    ] = False,
) -> None:
    """Make a profile of an archive.

    What would run, open, send or spend is held back until you confirm it; jobs and grants stay out.
    """
    from parley.cli import _profile_review as review
    from parley.cli._profile_make import bring_in

    source = file.expanduser()
    made, settings, secrets, faults, left_out = bring_in(
        source, name=name, trust=trust, most_gigabytes=max_gb
    )
    _say(f"Profile `{made.name}` is in {_shown(made.home)}.")
    _say_left_out(settings)
    for fault in faults:
        _note(f"Of `{made.name}`: {fault}")
    if left_out:
        _say(f"Left out: {' and '.join(left_out)}.")
    review.show_held(made)
    if not secrets:
        _say(f"Its keys were not in the archive: parley setup --profile {made.name}")
    _say_next(made)
    review.ask(made)


@app.command("review")
def review(  # noqa: PLR0917 - options are given by their names
    name: _Name,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="ITEM", help="Confirm one; may be given again."),
    ] = None,
    allow_all: Annotated[bool, typer.Option("--allow-all", help="Confirm all.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="ITEM", help="Remove one for good; may be given again."),
    ] = None,
    drop_all: Annotated[
        bool, typer.Option("--drop-all", help="Remove all the others for good.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Show what an import held back, and confirm or remove it. On a terminal you are asked."""
    from parley.cli import _profile_review as review

    profile = find_profile(name)
    if not (allow or allow_all or drop or drop_all):
        review.show_held(profile, as_json=as_json, always=True)
        if not as_json:
            review.ask(profile)
        return
    review.decide(profile, allow or (), drop or (), allow_all=allow_all, drop_all=drop_all)
    review.show_held(profile, as_json=as_json, always=as_json)


def _active_name() -> str | None:
    """The profile commands work on; one that is not there is told of."""
    try:
        return active_profile().name
    except ParleyError as error:
        _note(str(error))
        return None


def _say_next(profile: Profile) -> None:
    from parley.config import load_house
    from parley.gateway.home import holder_of

    _say(f"Talk to it: parley chat --profile {profile.name}")
    try:
        multiplexes = load_house().multiplex_profiles
    except ParleyError as error:
        _note(str(error))
        return
    if not multiplexes:
        default = "" if _active_name() == DEFAULT_PROFILE else f" --profile {DEFAULT_PROFILE}"
        _say(
            "Serve it beside the others: "
            f"parley config set gateway.multiplex_profiles true{default}"
        )
    elif (holder := holder_of(default_profile())) is not None and holder.kind == "gateway":
        _say("The gateway that runs now takes it in within seconds.")


def _say_left_out(settings: tuple[str, ...]) -> None:
    if settings:
        _say(f"Left out, for only the default profile has a say in it: {', '.join(settings)}")


def _has_api_keys(profile: Profile) -> bool:
    """Whether there are any, or a file of them that cannot be read."""
    from parley.config.api_keys import KeyFile

    try:
        return bool(KeyFile(profile).keys())
    except ParleyError:
        return True


def _say_packed(packed: Packed) -> None:
    if packed.links:
        _note(f"Links are not in it: {_first_names(packed.links)}")
    if packed.deep:
        _note(f"Folders that lie too deep are not in it: {_first_names(packed.deep)}")
    if packed.damaged:
        _note("Its database is damaged and is in it as it was.")


def _first_names(paths: Sequence[str]) -> str:
    named = ", ".join(escaped(json.dumps(path)) for path in paths[:_MOST_NAMED])
    return named + f" and {len(paths) - _MOST_NAMED} more" * (len(paths) > _MOST_NAMED)


def _note_mentions(name: str) -> None:
    from parley.cli._profile_house import listed, mentions

    try:
        found = mentions(name)
    except ParleyError as error:
        _note(str(error))
        return
    if found:
        _note(f"It is still named in {listed(found)}; take it out, or the gateway does not start.")


def _shown(path: Path) -> str:
    from parley.config.errors import shown

    return shown(path)


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


def _say(text: str) -> None:
    typer.echo(text)


def _note(text: str) -> None:
    typer.echo(f"parley: {text}", err=True)


def _print_json(value: object) -> None:
    """JSON for scripts that does no harm on a terminal either."""
    typer.echo(escaped(json.dumps(value, ensure_ascii=False)))
