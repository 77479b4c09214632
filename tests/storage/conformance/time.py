"""Jobs submit themselves when they are due, once for each due time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from parley.storage.contract import Job, Store, StoreError, TurnEnd
from tests.builders import PLATFORM, a_message
from tests.storage.conformance.base import OWNER, OpenStore, claim_one


def _job(name: str = "job", *, at: float | None = None, cron: str | None = None) -> Job:
    return Job(name, "c1", a_message(f"by {name}"), at=at, cron=cron)


class TimePromises:
    async def test_nothing_planned_means_nothing_to_wait_for(self, store: Store) -> None:
        assert await store.tick() is None

    async def test_a_due_job_submits_its_message_once(self, store: Store) -> None:
        await store.schedule(_job(at=time.time() - 1))
        await asyncio.gather(store.tick(), store.tick(), store.tick())
        assert (await store.health()).queued == 1
        assert await store.tick() is None
        claim = await claim_one(store)
        assert claim.messages[0].message == a_message("by job")
        assert claim.lane == "c1"

    async def test_a_job_waits_for_its_time(self, store: Store) -> None:
        due = time.time() + 3600
        await store.schedule(_job(at=due))
        assert await store.tick() == due
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_the_earliest_plan_is_the_next_to_look_at(self, store: Store) -> None:
        now = time.time()
        await store.schedule(_job("late", at=now + 300))
        await store.submit("c2", "planned", a_message("hi", chat="c2"), not_before=now + 200)
        assert await store.tick() == now + 200
        await store.schedule(_job("early", at=now + 100))
        assert await store.tick() == now + 100

    async def test_a_job_takes_the_place_of_an_earlier_one_of_its_name(self, store: Store) -> None:
        now = time.time()
        await store.schedule(_job(at=now - 1))
        await store.schedule(_job(at=now + 100))
        assert await store.tick() == now + 100
        assert (await store.health()).queued == 0

    async def test_a_job_planned_again_a_moment_later_runs_again(self, store: Store) -> None:
        second = float(int(time.time())) - 5
        for at in (second, second + 0.25):
            await store.schedule(_job(at=at))
            await store.tick()
        assert (await store.health()).queued == 2

    async def test_an_unscheduled_job_does_not_run(self, store: Store) -> None:
        await store.schedule(_job(at=time.time() - 1))
        assert await store.unschedule("job")
        assert not await store.unschedule("job")
        assert await store.tick() is None
        assert (await store.health()).queued == 0

    async def test_the_plans_of_a_lane_are_listed_the_next_one_first(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        now = time.time()
        once, often = _job("once", at=now + 7000), replace(_job("often"), every=3600.0)
        daily = replace(_job("daily", cron="0 9 * * *"), timezone="Europe/Berlin")
        for job in (once, often, daily, replace(once, id="other", lane="c2")):
            await store.schedule(job)
        await store.close()
        again = await open_store()
        listed = await again.jobs("c1")
        assert {record.job.id: record.job for record in listed} == {
            "once": once,
            "often": often,
            "daily": daily,
        }
        times = [record.next_at for record in listed]
        assert times == sorted(times)
        assert now + 3600 <= listed[[r.job.id for r in listed].index("often")].next_at
        assert [record.job.id for record in await again.jobs("c2")] == ["other"]

    async def test_a_plan_is_taken_back_only_from_its_own_lane(self, store: Store) -> None:
        await store.schedule(_job(at=time.time() + 60))
        assert not await store.unschedule("job", lane="c2")
        assert len(await store.jobs("c1")) == 1
        assert await store.unschedule("job", lane="c1")
        assert await store.jobs("c1") == []

    async def test_plans_follow_their_lane_to_another_namespace(self, store: Store) -> None:
        job = replace(_job("j"), lane="agent:main:test:dm:1", every=60.0)
        await store.schedule(job)
        await store.adopt("coder")
        [record] = await store.jobs("agent:coder:test:dm:1")
        assert record.job == replace(job, lane="agent:coder:test:dm:1")

    async def test_a_job_that_is_due_for_a_busy_lane_waits_for_it(self, store: Store) -> None:
        await store.submit("c1", "first", a_message("first"))
        claim = await claim_one(store)
        await store.schedule(_job(at=time.time() - 1))
        await store.tick()
        assert await store.claim(OWNER, 1, [PLATFORM]) == []
        await store.commit(claim, TurnEnd("done"))
        assert (await claim_one(store)).messages[0].message.text == "by job"

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
    async def test_a_cron_line_is_read_in_its_time_zone(self, store: Store, zone: str) -> None:
        job = Job("daily", "c1", a_message("hi"), cron="30 9 * * *", timezone=zone)
        await store.schedule(job)
        due = await store.tick()
        assert due is not None
        there = datetime.fromtimestamp(due, ZoneInfo(zone))
        assert (there.hour, there.minute, there.second) == (9, 30, 0)
        assert 0 < due - time.time() <= 25 * 3600

    @pytest.mark.parametrize(
        "job",
        [
            _job(),
            _job(cron="every day"),
            _job(cron="0 0 30 2 *"),
            Job("j", "c1", a_message("hi"), cron="* * * * *", timezone="Nowhere/Land"),
            Job("j", "c1", a_message("hi"), cron="* * * * *", timezone=""),
            Job("j", "c1", a_message("hi"), every=0.0),
            Job("j", "c1", a_message("hi"), every=-5.0),
            Job("j", "c1", a_message("hi"), every=float("nan")),
            Job("j", "c1", a_message("hi"), every=float("inf")),
            Job("j", "c1", a_message("hi"), at=float("nan")),
        ],
        ids=[
            *("no time", "no cron", "never due", "no zone", "blank zone", "no pause"),
            *("back in time", "no number", "never", "no time at all"),
        ],
    )
    async def test_a_job_that_can_never_be_due_is_refused(self, store: Store, job: Job) -> None:
        with pytest.raises(StoreError):
            await store.schedule(job)
        assert await store.tick() is None
