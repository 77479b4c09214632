"""`parley people list | show | plan`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from parley.cli._named import person_named
from parley.cli._plain import escaped, one_line
from parley.cli._shared import current_profile, fail

if TYPE_CHECKING:
    from parley.cli._people_view import Shown
    from parley.config.settings import Settings
    from parley.gateway.people import People
    from parley.storage.contract import Store
    from parley.storage.people import User

__all__ = ["register"]

T = TypeVar("T")

_NONE_YET = "Nobody has spoken here yet."
_LONGEST_NAME = 40

app = typer.Typer(help="See who speaks here, and what they may use.", no_args_is_help=True)

_Person = Annotated[
    str, typer.Argument(metavar="PERSON", help="As `platform:id`, or an id or name that is one's.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="people")


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 50,
    as_json: _AsJson = False,
) -> None:
    """Show who has spoken, the newest first."""
    from parley.cli._people_view import as_list, as_record

    async def find(desk: _Desk) -> list[Shown]:
        return [await desk.shown(user) for user in await desk.store.users(limit=limit)]

    found = _with_desk(find) or []
    if as_json:
        _print([as_record(each) for each in found])
    elif not found:
        typer.echo(_NONE_YET)
    else:
        typer.echo(as_list(found), nl=False)


@app.command("show")
def show(person: _Person, as_json: _AsJson = False) -> None:
    """Show what a person has set, and what they have used."""
    from parley.cli._people_view import as_record, as_text

    async def find(desk: _Desk) -> Shown:
        return await desk.shown(await person_named(desk.store, person))

    shown = _there(_with_desk(find))
    if as_json:
        _print(as_record(shown))
    else:
        typer.echo(as_text(shown), nl=False)


@app.command("plan")
def plan(
    person: _Person,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens", help="Tokens a month; `none`: no limit; `default`: `plan.tokens`."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What the plan is called.")] = None,
) -> None:
    """See or set what a person may use in a month. A running gateway follows within seconds."""
    from parley.cli._people_view import plan_words

    wanted = _checked(tokens, name)

    async def change(desk: _Desk) -> Shown:
        user = await person_named(desk.store, person, may_be_new=True)
        for setting, value in wanted.items():
            await desk.people.put(user.person, setting, value, by="")
        return await desk.shown(user)

    shown = _there(_with_desk(change))
    who = one_line(shown.user.person, longest=80)
    if shown.plan is None:
        typer.echo(f"{who} has no plan (unlimited).")
    else:
        typer.echo(f"{who}: plan {plan_words(shown)}.")


def _checked(tokens: str | None, name: str | None) -> dict[str, str | None]:
    wanted: dict[str, str | None] = {}
    if tokens is not None:
        said = tokens.strip().lower().replace(",", "").replace("_", "")
        if said not in ("none", "default") and not (said.isascii() and said.isdecimal()):
            fail(
                f"--tokens wants a number, `none` or `default`, not {one_line(tokens, longest=40)}."
            )
        wanted["plan.tokens"] = None if said == "default" else said
    if name is not None:
        flat = " ".join(name.split())
        if not flat or len(flat) > _LONGEST_NAME:
            fail(f"--name wants a name of at most {_LONGEST_NAME} characters.")
        wanted["plan.name"] = flat
    return wanted


class _Desk:
    """What there is to know of people, beside a gateway that may be running."""

    def __init__(self, store: Store, settings: Settings, people: People) -> None:
        from parley.agent.budget import Budget

        self.store = store
        self.people = people
        self._budget = Budget(settings)

    async def shown(self, user: User) -> Shown:
        from parley.cli._people_view import Shown
        from parley.storage.hands import Payer

        plan = await self.people.plan_of(user.person)
        limits = [each for each in self._budget.limits(time.time(), plan) if each.plan is not None]
        spent = await self.store.spent(Payer(user.person, ""), limits) if limits else []
        return Shown(
            user,
            await self.people.settings_of(user.person),
            plan,
            spent[0].tokens if spent else 0,
            await self.store.chats(user.person),
        )


def _with_desk(work: Callable[[_Desk], Awaitable[T]]) -> T | None:
    """What `work` finds; None when there is no store yet."""
    from parley.cli._stored import stored
    from parley.config import load_settings
    from parley.gateway.owners import Owners
    from parley.gateway.people import People

    profile = current_profile()
    settings = load_settings(profile)

    async def run() -> T | None:
        async with stored(profile) as store:
            if store is None:
                return None
            people = People(store, settings, Owners(settings.access.owners))
            return await work(_Desk(store, settings, people))

    return asyncio.run(run())


def _there(shown: Shown | None) -> Shown:
    if shown is None:
        fail(_NONE_YET)
    return shown


def _print(value: object) -> None:
    import json

    typer.echo(escaped(json.dumps(value, ensure_ascii=False)))
