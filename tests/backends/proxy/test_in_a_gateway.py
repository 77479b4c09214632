"""A gateway whose turns are answered by a remote agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.backends.proxy import ProxyBackend
from parley.config import Settings
from parley.gateway.app import Gateway, Parts, already_open
from parley.profiles import Profile
from parley.storage.sqlite import SqliteStore
from tests.gateway.desk import Desk
from tests.servers.raw_sse import Answer, RawServer, Seen, said, stream
from tests.waiting import until


def script(seen: Seen) -> Answer:
    text = seen.json["messages"][-1]["content"]
    if text == "long":
        return Answer([said(content="Well,")], ending="hold")
    return Answer([b"full"], 500) if text == "fail" else stream("far: ", text)


@asynccontextmanager
async def gateway_to(far: RawServer, home: Path) -> AsyncIterator[Desk]:
    profile = Profile("default", home)
    profile.workspace.mkdir(parents=True)
    settings = Settings.model_validate(
        {"gateway": {"proxy_url": far.url, "port": 0}, "access": {"owners": ["desk:ann"]}}
    )
    store = SqliteStore.open(profile.database_file)
    backend = ProxyBackend(profile, settings, url=far.url, secret=lambda _: None)
    desk = Desk()
    parts = Parts(settings, store, backend, [desk])
    gateway = Gateway(settings.gateway, [profile], already_open(parts))
    await gateway.start()
    try:
        yield desk
    finally:
        await gateway.stop(at_once=True)
        await backend.close()
        await store.close()


def texts(seen: Seen) -> list[str]:
    return [message["content"] for message in seen.json["messages"][1:]]


async def test_a_conversation_goes_on_from_turn_to_turn(tmp_path: Path) -> None:
    async with RawServer(script) as far, gateway_to(far, tmp_path / "home") as desk:
        assert await desk.ask("one") == "far: one"
        assert (await desk.ask("fail")).startswith("Proxy error (500): full")
        assert await desk.ask("two") == "far: two"
        assert texts(far.asked[-1]) == ["one", "far: one", "fail", "two"]
        assert len({seen.headers["x-hermes-session-id"] for seen in far.asked}) == 1
        assert far.accepted == 1


async def test_stop_reaches_the_far_end(tmp_path: Path) -> None:
    async with RawServer(script) as far, gateway_to(far, tmp_path / "home") as desk:
        await desk.say("long")
        await until(lambda: far.answering == 1)
        await desk.ask("/stop")
        await until(lambda: far.left == 1)
        assert await desk.ask("after") == "far: after"


@pytest.mark.parametrize("command", ["/undo", "/retry"])
async def test_a_far_end_with_its_own_record_gets_a_new_session_after_undo_and_retry(
    tmp_path: Path, command: str
) -> None:
    async with RawServer(keeps_its_own_record()) as far:
        async with gateway_to(far, tmp_path / "home") as desk:
            await desk.ask("one")
            await desk.ask("secret")
            answered = len(desk.texts())
            await desk.say(command)
            await until(lambda: len(desk.texts()) > answered)
            await desk.say("again")
            await until(lambda: desk.texts()[-1].endswith("again"))
        if command == "/undo":
            assert desk.texts()[-1] == "knows: one | again"
        else:
            assert desk.texts()[-1] == "knows: one | secret | again"
        ids = [one.headers["x-hermes-session-id"] for one in far.asked if one.method == "POST"]
        assert len(set(ids)) == 2
        assert ids[-1].startswith(ids[0])


def keeps_its_own_record() -> Callable[[Seen], Answer]:
    """A far end that believes its own record of a session more than what it is sent."""
    record: dict[str, list[str]] = {}

    def answer(seen: Seen) -> Answer:
        if seen.method == "GET":
            return Answer(status=404)
        said = [each["content"] for each in seen.json["messages"] if each["role"] == "user"]
        session = seen.headers["x-hermes-session-id"]
        known = record.setdefault(session, said[:-1])
        known.append(said[-1])
        return stream("knows: " + " | ".join(known))

    return answer
