"""A turn that is stopped while it begins something leaves nothing that runs, or seems to."""

from __future__ import annotations

import asyncio

import pytest

from parley.storage.hands import Work
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, delegate, waiting, works
from tests.servers.scripted_model import Reply

pytestmark = needs_bubblewrap


@pytest.mark.parametrize(
    "first",
    [begin(waiting("never")), delegate("dig"), delegate("dig", background=True)],
    ids=["process", "task", "background task"],
)
async def test_what_was_only_just_noted_is_over(
    house: House, scenes: Scenes, first: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.when("go", first, Reply(text="begun"))
    scenes.when("dig", Reply(text="gold", delay=60))
    desk = await house.open()
    store = house.store
    assert store is not None
    noted, put = asyncio.Event(), store.begin_work

    async def slowly(work: Work) -> bool:
        done = await put(work)
        noted.set()
        await asyncio.Event().wait()
        return done

    monkeypatch.setattr(store, "begin_work", slowly)
    await desk.say("go")
    await noted.wait()
    assert await desk.ask("/stop") == "Stopped."
    async with asyncio.timeout(60):
        while await store.works():
            await asyncio.sleep(0.01)
    assert [work.state for work in await works(house)] == ["stopped"]
    assert house.model.total == 1
