"""Requests of programs are kept, once for each key, with a log, until they end and expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.storage.contract import RequestEvent, Store
from tests.builders import say
from tests.storage.conformance.base import OpenStore, a_record, claim_one, converse

_BATCHES = st.lists(
    st.tuples(st.sampled_from(["run_a", "run_b"]), st.integers(0, 4)), min_size=1, max_size=20
)


def _past() -> float:
    return time.time() - 1


def _told(*kinds: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(kind, {"of": kind}) for kind in kinds]


def _lines(events: list[RequestEvent] | None) -> list[tuple[int, str]]:
    assert events is not None
    assert all(event.data == {"of": event.kind} for event in events)
    return [(event.number, event.kind) for event in events]


class RequestPromises:
    async def test_a_request_comes_back_as_it_was(self, store: Store) -> None:
        record = a_record(
            body={"input": "“hi”\n\0 𝄞", "deep": {"n": [1, None, 2.5]}},
            key="alice:k1",
            fingerprint="abc",
            expires_at=time.time() + 60,
        )
        assert await store.open_request(record) == (record, True)
        assert await store.request(record.id) == record
        assert await store.open_requests() == [record]
        assert await store.request("run_other") is None

    async def test_a_key_or_an_id_that_is_there_gives_the_first_request(self, store: Store) -> None:
        first = a_record("one", key="k", fingerprint="a")
        await store.open_request(first)
        for other in (a_record("two", key="k", fingerprint="b"), a_record("one", key="other")):
            assert await store.open_request(other) == (first, False)
        assert await store.open_requests() == [first]
        assert (await store.open_request(a_record("three")))[1]
        assert (await store.open_request(a_record("four")))[1]

    async def test_of_many_at_once_with_one_key_one_is_kept(self, open_store: OpenStore) -> None:
        stores = [await open_store() for _ in range(2)]
        opened = await asyncio.gather(
            *(stores[n % 2].open_request(a_record(f"{n}", key="k")) for n in range(20))
        )
        [kept] = [record for record, is_new in opened if is_new]
        assert {record.id for record, _ in opened} == {kept.id}

    async def test_what_ended_ends_once(self, store: Store) -> None:
        await store.open_request(a_record())
        assert await store.mark_request("run_one", "running")
        assert await store.mark_request("run_one", "stopping")
        before = time.time()
        ended = await store.finish_request("run_one", "done", {"text": "hi"}, _told("said", "end"))
        assert _lines(ended) == [(1, "said"), (2, "end")]
        assert await store.finish_request("run_one", "failed", None, _told("late")) is None
        assert not await store.mark_request("run_one", "running")
        assert await store.add_request_events("run_one", _told("late")) == []
        found = await store.request("run_one")
        assert found is not None
        assert (found.state, found.result) == ("done", {"text": "hi"})
        assert found.ended_at is not None and before <= found.ended_at <= time.time()
        assert _lines(await store.request_events("run_one")) == [(1, "said"), (2, "end")]
        assert await store.open_requests() == []

    async def test_what_is_not_there_is_not_changed(self, store: Store) -> None:
        assert not await store.mark_request("run_none", "running")
        assert await store.finish_request("run_none", "done", {}, _told("end")) is None
        assert await store.add_request_events("run_none", _told("said")) == []
        assert await store.request_events("run_none") == []
        assert not await store.delete_request("run_none")

    async def test_those_under_way_are_listed_oldest_first(self, store: Store) -> None:
        now = time.time()
        for name, age in (("new", 1), ("old", 3), ("mid", 2), ("over", 4)):
            await store.open_request(a_record(name, lane=name, created_at=now - age))
        await store.mark_request("run_mid", "stopping")
        await store.finish_request("run_over", "stopped", None)
        listed = [(record.id, record.state) for record in await store.open_requests()]
        assert listed == [("run_old", "queued"), ("run_mid", "stopping"), ("run_new", "queued")]

    async def test_a_log_is_read_by_pages(self, store: Store) -> None:
        await store.open_request(a_record())
        await store.add_request_events("run_one", _told(*"abcde"))
        assert _lines(await store.request_events("run_one", limit=2)) == [(1, "a"), (2, "b")]
        behind = await store.request_events("run_one", after=2, limit=2)
        assert _lines(behind) == [(3, "c"), (4, "d")]
        assert await store.request_events("run_one", after=5) == []

    @settings(
        max_examples=20,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(batches=_BATCHES, finish=st.booleans())
    def test_a_log_has_no_gap_whoever_writes_to_it(
        self, open_store: OpenStore, batches: list[tuple[str, int]], finish: bool
    ) -> None:
        """Two stores write to two requests at once; each writer's lines stay together."""

        async def write_all() -> None:
            stores = [await open_store(), await open_store()]
            for name in ("a", "b"):
                await stores[0].delete_request(f"run_{name}")
                await stores[0].open_request(a_record(name))
            answers = await asyncio.gather(
                *(
                    stores[number % 2].add_request_events(
                        request, _told(*(f"{number}.{line}" for line in range(lines)))
                    )
                    for number, (request, lines) in enumerate(batches)
                )
            )
            for request in ("run_a", "run_b"):
                told = [
                    event
                    for (wanted, _), answer in zip(batches, answers, strict=True)
                    if wanted == request
                    for event in answer
                ]
                if finish:
                    told += (
                        await stores[1].finish_request(request, "done", None, _told("end")) or []
                    )
                log = await stores[0].request_events(request)
                assert [event.number for event in log] == [*range(1, len(log) + 1)]
                assert log == sorted(told, key=lambda event: event.number)
            for (_, lines), answer in zip(batches, answers, strict=True):
                numbers = [event.number for event in answer]
                assert len(numbers) == lines
                assert numbers == [*range(numbers[0], numbers[0] + lines)] if numbers else True
            for store in stores:
                await store.close()

        asyncio.run(write_all())

    async def test_a_deleted_request_is_gone_with_its_log(self, store: Store) -> None:
        await store.open_request(a_record(key="k"))
        await store.open_request(a_record("two"))
        for request in ("run_one", "run_two"):
            await store.add_request_events(request, _told("said"))
        assert await store.delete_request("run_one")
        assert not await store.delete_request("run_one")
        assert await store.request("run_one") is None
        assert await store.request_events("run_one") == []
        assert (await store.open_request(a_record(key="k")))[1]
        assert _lines(await store.add_request_events("run_one", _told("anew"))) == [(1, "anew")]
        assert _lines(await store.request_events("run_two")) == [(1, "said")]

    async def test_one_that_ended_and_expired_is_there_no_more(self, store: Store) -> None:
        record = a_record(key="k", expires_at=_past())
        await store.open_request(record)
        await store.add_request_events("run_one", _told("said"))
        assert await store.request("run_one") == record
        assert (await store.open_request(a_record("two", key="k")))[0] == record
        await store.finish_request("run_one", "done", {})
        assert await store.request("run_one") is None
        assert await store.request_events("run_one") == []
        fresh = a_record("two", key="k")
        assert await store.open_request(fresh) == (fresh, True)
        assert await store.request_events("run_one") == []
        assert await store.prune_requests(time.time()) == 0

    async def test_an_expired_one_gives_way_to_one_of_its_id(self, store: Store) -> None:
        await store.open_request(a_record(expires_at=_past()))
        await store.finish_request("run_one", "done", {}, _told("end"))
        assert not await store.delete_request("run_one")
        await store.open_request(a_record(expires_at=_past()))
        await store.finish_request("run_one", "done", {}, _told("end"))
        assert (await store.open_request(a_record()))[1]
        assert await store.request_events("run_one") == []

    async def test_only_what_ended_and_expired_is_pruned(self, store: Store) -> None:
        now = time.time()
        times = {"early": now - 20, "past": now - 10, "later": now + 60, "never": None}
        for name, expires in times.items():
            await store.open_request(a_record(name, expires_at=expires))
            await store.finish_request(f"run_{name}", "done", {}, _told("end"))
        await store.open_request(a_record("running", expires_at=now - 10))
        assert await store.prune_requests(now - 15) == 1
        assert await store.prune_requests(now) == 1
        assert await store.prune_requests(now) == 0
        for name in ("later", "never", "running"):
            assert await store.request(f"run_{name}") is not None
        assert await store.prune_requests(now + 61) == 1
        assert await store.request("run_running") is not None

    async def test_many_are_pruned_by_and_by(self, store: Store) -> None:
        opened = [a_record(f"{number}", expires_at=_past()) for number in range(450)]
        await asyncio.gather(*(store.open_request(record) for record in opened))
        await asyncio.gather(*(store.finish_request(r.id, "done", None) for r in opened))
        pruned = []
        while count := await store.prune_requests(time.time()):
            pruned.append(count)
        assert sum(pruned) == 450
        assert len(pruned) > 1

    async def test_long_logs_are_pruned_a_few_at_a_time(self, store: Store) -> None:
        for name in ("a", "b"):
            await store.open_request(a_record(name, expires_at=_past()))
            await store.finish_request(f"run_{name}", "done", None, _told("x") * 6000)
        assert [await store.prune_requests(time.time()) for _ in range(3)] == [1, 1, 0]

    async def test_all_of_it_is_there_after_a_restart(self, open_store: OpenStore) -> None:
        first = await open_store()
        running, over = a_record("a", key="k"), a_record("b")
        for record in (running, over):
            await first.open_request(record)
            await first.add_request_events(record.id, _told("said"))
        await first.mark_request("run_a", "running")
        await first.finish_request("run_b", "failed", {"error": "why"}, _told("end"))
        ended = await first.request("run_b")
        await first.close()
        second = await open_store()
        assert await second.open_requests() == [replace(running, state="running")]
        assert (await second.open_request(a_record("c", key="k")))[0].id == "run_a"
        assert ended is not None and ended.result == {"error": "why"}
        assert await second.request("run_b") == ended
        assert _lines(await second.request_events("run_b")) == [(1, "said"), (2, "end")]
        assert _lines(await second.add_request_events("run_a", _told("more"))) == [(2, "more")]

    async def test_an_end_that_cannot_be_stored_is_no_end(self, store: Store) -> None:
        """State, result and events are one: none of them is there without the others."""
        await store.open_request(a_record())
        with pytest.raises(TypeError):
            await store.finish_request(
                "run_one", "done", {}, [*_told("fine"), ("broken", {"not": object()})]
            )
        found = await store.request("run_one")
        assert found is not None and found.state == "queued"
        assert await store.request_events("run_one") == []
        assert await store.finish_request("run_one", "done", {}) == []

    async def test_half_a_character_is_no_reason_to_refuse(self, store: Store) -> None:
        await store.open_request(a_record(body={"input": "half \ud83d"}))
        await store.finish_request("run_one", "done", {"text": "\ud83d"}, [("x", {"t": "\ud83d"})])
        found = await store.request("run_one")
        assert found is not None
        assert (found.body, found.result) == ({"input": "half �"}, {"text": "�"})
        assert (await store.request_events("run_one"))[0].data == {"t": "�"}

    async def test_a_deleted_session_takes_its_requests_along(self, store: Store) -> None:
        """Those of its turns and of what was dropped in it; not those of other sessions."""
        for name in ("hello", "waiting", "elsewhere"):
            await store.open_request(a_record(name))
            await store.add_request_events(f"run_{name}", _told("said"))
        await store.open_request(a_record("kept", dedupe="never submitted"))
        claim = await converse(store, "hello", "hi")
        await say(store, "waiting")
        await store.stop("c1", drop_queued=True)
        await say(store, "elsewhere", chat="c2")
        await store.finish_request("run_hello", "done", {"text": "hi"})
        assert await store.delete_session(claim.session)
        for name in ("hello", "waiting"):
            assert await store.request(f"run_{name}") is None
            assert not await store.delete_request(f"run_{name}")
        listed = {record.id for record in await store.open_requests()}
        assert listed == {"run_elsewhere", "run_kept"}
        assert _lines(await store.request_events("run_elsewhere")) == [(1, "said")]
        assert (await claim_one(store)).lane == "c2"
