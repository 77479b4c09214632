"""Profiles for tests of `parley profile`: made, talked to, refused."""

from __future__ import annotations

import asyncio

from parley.config.homes import make_home
from parley.profiles import Profile
from parley.protocol import InboundMessage, SessionSource
from parley.storage.contract import TurnEnd
from parley.storage.sqlite import SqliteStore
from tests.cli.command import Parley

__all__ = ["made", "named", "refused", "said", "said_in"]


def named(parley: Parley, name: str) -> Profile:
    return Profile(name, parley.home / "profiles" / name)


def made(parley: Parley, name: str, *, settings: str = "# none\n") -> Profile:
    """A profile as `create` makes it, without waiting for the command."""
    profile = named(parley, name)
    profile.home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_home(profile.home, soul=f"You are {name}.\n", settings=settings)
    return profile


def refused(parley: Parley, *arguments: str) -> str:
    """The one sentence a command is refused with."""
    done = parley.run("profile", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("parley: ").rstrip("\n")


def said_in(profile: Profile, text: str) -> str:
    """Have a conversation in the profile's database; returns the session's id."""

    async def talk() -> str:
        store = SqliteStore.open(profile.database_file)
        try:
            return await said(store, text)
        finally:
            await store.close()

    return asyncio.run(talk())


async def said(store: SqliteStore, text: str) -> str:
    """Have a conversation in a store; returns the session's id."""
    lane = "agent:main:terminal:dm:here"
    message = InboundMessage(SessionSource("terminal", "here"), text, f"event {text}")
    await store.submit(lane, message.event_id, message)
    [claim] = await store.claim("tests", 1, ["terminal"])
    await store.commit(claim, TurnEnd("done"))
    found = await store.session_of(lane)
    assert found is not None
    return found.id
