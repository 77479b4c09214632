"""An evening at which everyone talks at once; what was said, sent, written and shown is kept."""

from __future__ import annotations

import asyncio
import io
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import pytest
import uvloop

import parley.cli
from parley.agent.tools import TOOLS
from parley.gateway.app import Gateway
from parley.storage.sqlite import SqliteStore
from tests.isolation.canaries import Canary, found_in
from tests.isolation.family import Family
from tests.isolation.people import Answers, Posted, Talk, at_terminal, at_webhook
from tests.isolation.seats import Seat, seats_of
from tests.isolation.spy import TOOL_NAME, Sighting, Spy
from tests.servers.api_server import bearer
from tests.servers.scripted_model import RecordedRequest, ScriptedModel
from tests.servers.scripted_reply import Reply

__all__ = ["Evening", "spend_evening"]

AT_ONCE = 64
ANSWERED_WITHIN = 600.0
"""Everyone asks at once: with little of a busy machine's time, all of it takes minutes."""
SNOOPERS = 3
"""Of each profile, so many people try commands on the others' conversations."""

TELL_ALL = "Tell me everything you know."


@dataclass(slots=True)
class Evening:
    """All that can be looked at afterwards."""

    family: Family
    talks: list[Talk]
    requests: list[RecordedRequest] = field(default_factory=list)
    posted: list[Posted] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    printed: dict[str, list[str]] = field(default_factory=dict)
    """What `parley sessions list`, `show` and `export` said of each profile."""
    archives: dict[str, Path] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    """What the gateway says of itself over HTTP."""
    transcripts: dict[str, list[str]] = field(default_factory=dict)


class _Person(Protocol):
    async def ask(self, text: str, event: str, *, seconds: float) -> str: ...


def spend_evening(root: Path, *, profiles: int, each: int) -> Evening:
    """So many profiles with so many sessions each, in one gateway."""
    family = Family.of(root / "home", profiles, each)
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy(family.profiles, family.shell())
        patch.setitem(TOOLS, TOOL_NAME, spy.tool)
        return uvloop.run(_spend(family, spy, root))


async def _spend(family: Family, spy: Spy, root: Path) -> Evening:
    answers, model = Answers(), ScriptedModel(_tell_all)
    model.requests = deque()
    evening = Evening(family, [Talk(seat) for seat in seats_of(family.names, family.each)])
    async with answers.open(), model, aiohttp.ClientSession() as session:
        family.make(model_url=model.base_url, answers_url=answers.url)
        async with family.serve() as gateway:
            party = _Party(evening, answers, session, await _address(gateway))
            await party.everyone(party.first_words, evening.talks)
            ids = {seen.word: seen.session["session_id"] for seen in spy.sightings}
            snoopers = evening.talks[: SNOOPERS * len(family.names)]
            await party.everyone(lambda talk, person: party.snoop(talk, person, ids), snoopers)
            await party.look_from_outside(root)
    evening.requests, evening.posted = list(model.requests), answers.posted
    evening.sightings = spy.sightings
    for profile in family.profiles:
        evening.transcripts[profile.name] = await _transcripts(profile.database_file)
    return evening


class _Party:
    def __init__(
        self, evening: Evening, answers: Answers, session: aiohttp.ClientSession, url: str
    ) -> None:
        self._evening = evening
        self._family = evening.family
        self._answers = answers
        self._session = session
        self._url = url
        self._key = bearer(self._family.profiles[0])

    async def everyone(
        self, does: Callable[[Talk, _Person], Awaitable[None]], talks: Sequence[Talk]
    ) -> None:
        """All at once, as far as a bound on open connections allows."""
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(talk: Talk) -> None:
            async with limit, self._seated(talk) as person:
                await does(talk, person)

        async with asyncio.TaskGroup() as group:
            for talk in talks:
                group.create_task(one(talk))

    def _seated(self, talk: Talk) -> AbstractAsyncContextManager[_Person]:
        if talk.seat.platform == "terminal":
            return at_terminal(self._family, talk)
        return at_webhook(talk, self._answers, self._session, f"{self._url}/webhook")

    async def first_words(self, talk: Talk, person: _Person) -> None:
        seat = talk.seat
        calls = (TOOL_NAME, {"word": seat.word.word}), *self._reads(seat)
        directives = " ".join(f"[[tool {name} {json.dumps(args)}]]" for name, args in calls)
        text = f"My word is {seat.word.word}. {directives}"
        await _ask_all(talk, person, (text, TELL_ALL))

    def _reads(self, seat: Seat) -> list[tuple[str, Mapping[str, str]]]:
        """Its own file; then another's home, in each session by some of the ways there."""
        number = int(seat.session[1:])
        other = self._family.profile(self._family.neighbour(seat.profile, 1 + number % 7))
        ways = (
            f"../../{other.name}/SOUL.md",
            str(other.soul_file),
            "soul.md",
            "door/memory/MEMORY.md",
            f"up/{other.name}/SOUL.md",
            "../.env",
            str(other.workspace / "notes.txt"),
            f"../workspace/../../../profiles/{other.name}/.env",
        )
        chosen = [ways[(number + step) % len(ways)] for step in range(2)]
        return [("read_file", {"path": path}) for path in ("notes.txt", *chosen)]

    async def snoop(self, talk: Talk, person: _Person, ids: Mapping[str, str]) -> None:
        """Ask by commands for what is not theirs; then see whether anything of it came along."""
        seat = talk.seat
        theirs = Canary(self._family.neighbour(seat.profile), "word", seat.session)
        sibling = Canary(seat.profile, "word", f"s{(int(seat.session[1:]) + 1):02}")
        resume = [f"/resume {ids.get(word.word, 'none')}" for word in (theirs, sibling)]
        # Not as many in one profile as in the next, so that counts can be told apart.
        more = self._family.names.index(seat.profile) % 5 * ("/usage",)
        await _ask_all(talk, person, ("/usage", *more, "/sessions", "/status", *resume, TELL_ALL))

    async def look_from_outside(self, root: Path) -> None:
        evening = self._evening
        for page in ("healthz", "readyz", "metrics"):
            async with self._session.get(f"{self._url}/{page}", headers=self._key) as response:
                evening.pages[page] = await response.text()
        await asyncio.to_thread(_run_commands, evening, root)


async def _ask_all(talk: Talk, person: _Person, texts: Sequence[str]) -> None:
    """One after the other; who gets no answer does not ask again."""
    for text in texts:
        event = talk.seat.event(len(talk.asked) + 1)
        if not talk.unanswered:
            await person.ask(text, event, seconds=ANSWERED_WITHIN)


async def _address(gateway: Gateway) -> str:
    [api] = [s for s in (await gateway.status()).surfaces if s.platform == "api"]
    assert api.fault is None, api.fault
    return api.where


def _run_commands(evening: Evening, root: Path) -> None:
    """What its owner sees of each profile while it is served."""
    evening.status = json.loads(_parley("gateway", "status", "--json"))
    for name in evening.family.names:
        listed = _parley("sessions", "list", "--json", "--limit", "100", "--profile", name)
        printed = evening.printed[name] = [listed]
        verbs = (("show",), ("export", "-f", "md"), ("export", "-f", "json"))
        for session, verb in zip(json.loads(listed), verbs, strict=False):
            printed.append(_parley("sessions", *verb, session["id"], "--profile", name))
        file = evening.archives[name] = root / f"{name}.tar.gz"
        _parley("profile", "export", name, str(file))


def _parley(*arguments: str) -> str:
    """What a command prints; it works on this process's environment, as the gateway does."""
    printed, noted = io.StringIO(), io.StringIO()
    code: object = None
    with redirect_stdout(printed), redirect_stderr(noted):
        try:
            parley.cli.run(arguments)
        except SystemExit as ended:
            code = ended.code
    assert not code, (arguments, noted.getvalue())
    assert not found_in(noted.getvalue())
    return printed.getvalue()


async def _transcripts(database: Path) -> list[str]:
    """Every session's, as it is stored."""
    store = SqliteStore.open(database)
    try:
        found = await store.sessions(limit=1000)
        return [repr(await store.transcript(session.id, whole=True)) for session in found]
    finally:
        await store.close()


def _tell_all(asked: Mapping[str, Any]) -> Reply | None:
    """A model that tells every canary it was ever shown in this request, when asked to."""
    last = asked["messages"][-1]
    if last["role"] != "user" or last["content"] != TELL_ALL:
        return None
    return Reply(text=f"I know {sorted(canary.word for canary in found_in(json.dumps(asked)))}")
