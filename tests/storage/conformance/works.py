"""Background work keeps its session while it runs, and is remembered for a while after its end."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from parley.storage.contract import NewSession, Store, StoreError
from tests.builders import a_message, a_source, event_name
from tests.storage.conformance.base import (
    OpenStore,
    a_work,
    command,
    converse,
    current,
    words,
)


async def _is_over(store: Store) -> bool:
    """Whether a message that comes late would begin a new session; it is taken back."""
    late = time.time() + 1
    name = event_name(f"late {late}")
    receipt = await store.submit("c1", name, a_message("late"), fresh_before=late)
    await store.withdraw("c1", name)
    return receipt.fresh


class WorkPromises:
    async def test_work_comes_back_as_it_was_begun(self, open_store: OpenStore) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        source = replace(a_source("c1"), thread_id="t1", account="bot")
        body = {"command": "make – ü", "pid": 17, "watch": ["done"]}
        work = a_work(
            "w1", await current(store), kind="task", generation=3, source=source, body=body, at=5.5
        )
        quiet = replace(work, id="w2", notify=False, at=6.5)
        assert await store.begin_work(work)
        assert await store.begin_work(quiet)
        await store.close()
        again = await open_store()
        assert await again.work("w1") == work
        assert await again.works() == [work, quiet]
        assert await again.works(session=work.session) == [work, quiet]
        assert await again.works(lane="c1") == [work, quiet]
        assert await again.works(lane="c2") == await again.works(session="other") == []
        assert await again.works(session=work.session, lane="c2") == []
        assert await again.work("w3") is None

    async def test_work_that_ended_says_how_and_is_not_among_those_that_run(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        for name in ("w1", "w2"):
            await store.begin_work(a_work(name, session))
        before = time.time()
        assert await store.end_work("w1", "failed", {"exit_code": 3})
        found = await store.work("w1")
        assert found is not None and found.ended_at is not None
        assert (found.state, found.result) == ("failed", {"exit_code": 3})
        assert before <= found.ended_at <= time.time()
        for ever in (
            await store.works(running=False),
            await store.works(session=session.id, running=False),
            await store.works(lane="c1", running=False),
        ):
            assert [work.id for work in ever] == ["w1", "w2"]
        for running in (await store.works(), await store.works(lane="c1")):
            assert [work.id for work in running] == ["w2"]

    async def test_work_ends_once_whoever_says_so_first(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.begin_work(a_work("w1", await current(store)))
        ended = await asyncio.gather(
            *(store.end_work("w1", "done", {"by": number}) for number in range(5))
        )
        assert ended.count(True) == 1
        found = await store.work("w1")
        assert found is not None and found.result == {"by": ended.index(True)}
        assert not await store.end_work("nothing", "lost")

    async def test_work_begun_again_is_the_same_work(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        assert await store.begin_work(a_work("w1", session))
        assert not await store.begin_work(a_work("w1", session, body={"command": "other"}))
        await store.end_work("w1", "done")
        assert not await store.begin_work(a_work("w1", session))
        found = await store.work("w1")
        assert found is not None and (found.state, found.body) == ("done", {"command": "make"})

    async def test_work_that_was_lost_may_begin_after_all(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        work = a_work("w1", await current(store))
        for state in ("lost", "done"):
            assert await store.begin_work(work)
            assert await store.end_work("w1", state)
        assert not await store.begin_work(work)
        found = await store.work("w1")
        assert found is not None
        assert found.state == "done"

    async def test_work_for_no_session_of_its_lane_is_refused(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        for wrong in (replace(session, lane="c2"), replace(session, id="nothing")):
            with pytest.raises(StoreError):
                await store.begin_work(a_work("w1", wrong))
        assert await store.works(running=False) == []

    async def test_running_work_keeps_its_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        for name in ("w1", "w2"):
            await store.begin_work(a_work(name, session))
        assert not await _is_over(store)
        await store.end_work("w1", "done")
        assert not await _is_over(store)
        await store.end_work("w2", "lost")
        assert await _is_over(store)

    async def test_work_that_just_ended_was_the_last_use(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        await store.begin_work(a_work("w1", await current(store)))
        then = time.time()
        await store.end_work("w1", "done")
        assert not (await store.submit("c1", "2", a_message("2"), fresh_before=then)).fresh

    async def test_work_of_another_session_keeps_nothing(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        await store.begin_work(a_work("w1", old))
        await command(store, NewSession(), text="/new")
        assert (await current(store)).id != old.id
        await converse(store, "in the new one", "yes")
        assert await _is_over(store)
        assert [work.id for work in await store.works(session=old.id)] == ["w1"]
        assert [work.id for work in await store.works(lane="c1")] == ["w1"]

    async def test_work_outlives_the_gateway_that_began_it(self, open_store: OpenStore) -> None:
        first = await open_store()
        await converse(first, "hello", "hi")
        await first.begin_work(a_work("w1", await current(first)))
        await first.close()
        second = await open_store()
        await second.recover("another")
        assert [work.state for work in await second.works()] == ["running"]
        assert not await _is_over(second)

    async def test_a_session_is_deleted_with_its_work_once_that_has_ended(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        await store.begin_work(a_work("w1", session))
        assert not await store.delete_session(session.id)
        assert await words(store) == ["hello", "hi"]
        await store.end_work("w1", "stopped")
        assert await store.delete_session(session.id)
        assert await store.works(running=False) == []

    async def test_what_ended_long_ago_is_forgotten_and_what_runs_is_not(
        self, store: Store
    ) -> None:
        await converse(store, "hello", "hi")
        session = await current(store)
        for name in ("w1", "w2", "w3"):
            await store.begin_work(a_work(name, session, at=1.0))
        await store.end_work("w1", "done")
        between = time.time() + 0.000_001
        while time.time() <= between:
            await asyncio.sleep(0)
        await store.end_work("w2", "done")
        assert await store.prune_work(between) == 1
        assert await store.prune_work(between) == 0
        assert [work.id for work in await store.works(running=False)] == ["w2", "w3"]

    async def test_work_follows_its_lane_to_another_namespace(self, store: Store) -> None:
        await converse(store, "hello", "hi", chat="agent:main:test:dm:1")
        session = await current(store, "agent:main:test:dm:1")
        await store.begin_work(a_work("w1", session, generation=0))
        await store.adopt("coder")
        [work] = await store.works(lane="agent:coder:test:dm:1")
        assert (work.lane, work.session) == ("agent:coder:test:dm:1", session.id)

    async def test_work_of_two_lanes_that_become_one_is_of_its_last_generation(
        self, store: Store
    ) -> None:
        """Unless it was stopped before: a generation that was gone stays gone."""
        old, new = "agent:main:test:dm:1", "agent:coder:test:dm:1"
        for _ in range(3):
            await converse(store, f"{_}", f"reply {_}", chat=new)
            await store.stop(new)
        await converse(store, "hello", "hi", chat=old)
        session = await current(store, old)
        await store.begin_work(a_work("stale", session, generation=0, at=1.0))
        await store.stop(old)
        await store.begin_work(a_work("fresh", session, generation=1, at=2.0))
        await store.adopt("coder")
        stopped = await store.stop(new)
        found = {work.id: work.generation for work in await store.works(lane=new)}
        assert found == {"fresh": stopped.generation - 1, "stale": 0}
