"""A gateway whose turns are answered by a remote agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
    settings = Settings.model_validate({"gateway": {"proxy_url": far.url, "port": 0}})
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
