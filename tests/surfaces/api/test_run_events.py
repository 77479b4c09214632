"""The log of a run: numbered without a gap, read from any point, the same for whoever reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.profiles import Profile
from parley.protocol import Final, InboundMessage, SessionSource, TextDelta
from parley.storage.contract import RequestEvent, RequestRecord
from parley.storage.sqlite import SqliteStore
from parley.surfaces.api import desk as desk_module
from parley.surfaces.api.records import Records
from parley.surfaces.api.results import render
from tests.builders import an_end
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.program import ENDS, ApiHouse, Program, Told, last_text
from tests.waiting import until

WORDS = " ".join(f"word{number}" for number in range(40))
FLOWS = Reply(text=WORDS, chunks=40, chunk_delay=0.02)
HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)


def numbers(log: list[Told]) -> list[int]:
    return [told.number for told in log]


# ── a whole log ──


async def test_events_are_numbered_from_one_without_a_gap(program: Program, stage: Stage) -> None:
    stage.then(Reply(text="Let me see.", tool_calls=(("now", {}),)), FLOWS)
    run = await program.start("hello")
    log = await program.log(run["id"])
    assert numbers(log) == list(range(1, len(log) + 1))
    names = [told.name for told in log]
    assert names[:5] == ["run.started", "text.delta", "step", "tool.started", "tool.finished"]
    assert set(names[5:-1]) == {"text.delta"}
    assert len(names) > 8, "text is told as it comes, not at the end"
    assert names[-1] == "run.completed"
    assert [told.name in ENDS for told in log].count(True) == 1


async def test_the_log_and_the_result_agree(program: Program, stage: Stage) -> None:
    stage.then(Reply(text="Let me see.", tool_calls=(("now", {}),)), FLOWS)
    run = await program.start("hello")
    log = await program.log(run["id"])
    done = await program.run(run["id"])
    assert last_text(log) == done["output"] == WORDS
    assert log[-1].data["output"] == done["output"]
    assert log[-1].data["usage"] == done["usage"]
    started, finished = (each for each in log if each.name.startswith("tool."))
    assert (started.data["name"], started.data["arguments"]) == ("now", {})
    assert (finished.data["call_id"], finished.data["ok"]) == (started.data["call_id"], True)


async def test_text_that_is_withdrawn_is_withdrawn_in_the_log(program: Program) -> None:
    run = await program.start("[[cut times 1]] [[chunks 4]] hello")
    log = await program.log(run["id"])
    assert "text.reset" in [told.name for told in log]
    assert last_text(log) == (await program.run(run["id"]))["output"]


async def test_a_log_longer_than_a_page_is_read_whole(
    api_house: ApiHouse, program: Program
) -> None:
    run = await program.start("hello")
    first = await program.log(run["id"])
    store = api_house.house.store
    assert store is not None
    long = await program.start("[[delay 300]]")
    await program.first(long["id"], "run.started")
    pieces = [("step", {"number": number}) for number in range(650)]
    await store.add_request_events(long["id"], pieces)
    await program.stop(long["id"])
    log = await program.log(long["id"])
    assert numbers(log) == list(range(1, 653))
    assert [each.data["number"] for each in log[1:-1]] == list(range(650))
    assert await program.log(run["id"]) == first


# ── from any point ──


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_was_read_and_what_is_read_later_are_the_whole_log(
    finished: tuple[Any, Callable[[Callable[[Program], Coroutine[Any, Any, Any]]], Any]],
    data: st.DataObject,
) -> None:
    (run, whole), speak = finished
    cut = data.draw(st.integers(0, len(whole)))
    again = data.draw(st.integers(cut, len(whole)))

    async def read(program: Program) -> list[Told]:
        log: list[Told] = []
        for after, most in ((None, cut), (cut, again - cut), (again, len(whole))):
            async with aclosing(program.follow(run, after)) as events:
                got = 0
                while got < most and (told := await anext(events, None)) is not None:
                    log.append(told)
                    got += 1
        return log

    assert speak(read) == whole


@pytest.fixture
def finished(tmp_path: Path) -> Any:
    """A run that is over, and a way to speak to its server from outside an event loop."""
    loop = asyncio.new_event_loop()
    stage = Stage()
    model = ScriptedModel(stage)
    house = House(Profile("default", tmp_path / "home"), model)

    async def begin() -> tuple[ApiHouse, str, list[Told]]:
        await model.start()
        house.settings["providers"]["scripted"]["base_url"] = model.base_url
        api_house = ApiHouse(house)
        await api_house.open()
        stage.then(Reply(text="Let me see.", tool_calls=(("now", {}),)), FLOWS)
        async with api_house.program() as program:
            run = await program.start("hello")
            return api_house, run["id"], await program.log(run["id"])

    async def end() -> None:
        await house.close()
        await model.stop()

    api_house, run, log = loop.run_until_complete(begin())

    def speak(what: Callable[[Program], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            async with api_house.program() as program:
                return await what(program)

        return loop.run_until_complete(inside())

    yield (run, log), speak
    loop.run_until_complete(end())
    loop.close()


async def test_a_run_that_goes_on_is_taken_up_where_one_left_off(
    program: Program, stage: Stage
) -> None:
    stage.then(FLOWS)
    run = await program.start("hello")
    log: list[Told] = []
    while not log or log[-1].name not in ENDS:
        after = log[-1].number if log else None
        async with aclosing(program.follow(run["id"], after)) as events:
            for _ in range(3):  # and off again
                if (told := await anext(events, None)) is not None:
                    log.append(told)
    assert log == await program.log(run["id"])
    assert last_text(log) == WORDS


async def test_an_address_may_say_after_which_event(program: Program) -> None:
    run = await program.start("hello")
    whole = await program.log(run["id"])
    address = program.url(f"/v1/runs/{run['id']}/events")
    async with program.client.get(f"{address}?after=2") as stream:
        text = await stream.text()
    assert text.count("\nid: ") == len(whole) - 2
    assert "id: 3" in text


@pytest.mark.parametrize("wrong", ["x", "-1", "1.5", "٣", "1" * 30, "1 2"])
async def test_a_number_that_is_none_is_refused(program: Program, wrong: str) -> None:
    run = await program.start("hello")
    answer = await program.ask(
        "GET", f"/v1/runs/{run['id']}/events", headers={"Last-Event-ID": wrong}
    )
    assert answer.status == 400
    assert answer.json["error"]["param"] == "Last-Event-ID"


async def test_after_the_last_event_there_is_nothing(program: Program) -> None:
    run = await program.start("hello")
    whole = await program.log(run["id"])
    assert await program.log(run["id"], whole[-1].number) == []
    assert await program.log(run["id"], 10_000) == []


# ── those who follow ──


async def test_all_who_follow_see_the_same(program: Program, stage: Stage) -> None:
    """Before its turn begins, while it runs, and when it is over."""
    stage.then(HANGS)
    first = await program.start("first", session_id="line")
    await program.until(first["id"], "running")
    stage.then(FLOWS)
    run = await program.start("second", session_id="line")
    before = [asyncio.create_task(program.log(run["id"])) for _ in range(3)]
    await asyncio.wait(before, timeout=0.05)
    await program.stop(first["id"])
    await program.first(run["id"], "text.delta")
    during = [asyncio.create_task(program.log(run["id"])) for _ in range(3)]
    logs = await asyncio.gather(*before, *during)
    after = await program.log(run["id"])
    assert last_text(after) == WORDS
    assert all(log == after for log in logs)


async def test_one_who_leaves_stops_nothing(
    program: Program, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(FLOWS)
    run = await program.start("hello")
    async with aclosing(program.follow(run["id"])) as events:
        async for told in events:
            if told.name == "text.delta":
                break
    assert model.open_streams == 1
    assert (await program.over(run["id"]))["output"] == WORDS
    assert model.aborted == 0


async def test_while_nothing_happens_the_stream_says_that_it_lives(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = replace(desk_module.DeskRules(), keepalive_seconds=0.05)
    monkeypatch.setattr(desk_module, "DeskRules", lambda **more: replace(quick, **more))
    api_house = ApiHouse(house)
    await api_house.open()
    stage.then(HANGS)
    comments: list[str] = []
    async with api_house.program() as program:
        run = await program.start("hello")

        async def follow() -> list[Told]:
            return [told async for told in program.follow(run["id"], comment=comments.append)]

        following = asyncio.create_task(follow())
        await until(lambda: len(comments) >= 3)
        await program.stop(run["id"])
        log = await following
    assert numbers(log) == [1, 2, 3]


# ── between two reads ──


class _Between:
    """The rows of a store; `before_record` is done once, when a record is next asked for."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.before_record: Callable[[], Coroutine[Any, Any, object]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def request(self, id: str) -> RequestRecord | None:
        before, self.before_record = self.before_record, None
        if before is not None:
            await before()
        return await self._store.request(id)


class _Door:
    """As much of a profile's door as the records of its requests use."""

    def __init__(self, rows: _Between) -> None:
        self.rows = rows


SOURCE = SessionSource("api", chat_id="me/one", user_id="me", profile="default")


class _Book:
    """Records on a real store, without a server around them."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.rows = _Between(store)
        self._tasks: set[asyncio.Task[None]] = set()
        self.records = Records(_Door(self.rows), render=render, spawn=self._spawn)  # type: ignore[arg-type]
        self._number = 0

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    async def begin(self, id: str) -> None:
        """A run that an earlier process took, and did not finish."""
        await self.store.submit("lane", id, InboundMessage(SOURCE, "hello", id))
        record = RequestRecord(
            id=id,
            kind="run",
            owner="me",
            lane="lane",
            dedupe=id,
            state="queued",
            body={"session_id": "one", "model": "default", "metadata": {}},
            result=None,
            key=None,
            fingerprint=None,
            expires_at=None,
            created_at=1.0,
            ended_at=None,
        )
        await self.store.open_request(record)

    def happens(self, id: str, event: Any) -> LiveEvent:
        self._number += 1
        return LiveEvent(self._number, "lane", 1, SOURCE, event, id, lasting=True)


@pytest.fixture
async def book(tmp_path: Path) -> Any:
    made = _Book(SqliteStore.open(tmp_path / "parley.db"))
    yield made
    await made.close()


async def test_an_end_between_two_reads_of_the_log_is_told(book: _Book) -> None:
    await book.begin("run_1")
    await book.store.add_request_events("run_1", [("run.started", {})])

    async def end() -> object:
        return await book.store.finish_request("run_1", "done", {}, [("run.completed", {})])

    log: list[RequestEvent] = []
    async with asyncio.timeout(60):
        events = book.records.events("run_1", 0)
        log.append(await anext(events))
        book.rows.before_record = end
        log += [event async for event in events]
    assert [event.kind for event in log] == ["run.started", "run.completed"]


async def test_the_events_of_a_run_begun_before_are_written_in_their_order(book: _Book) -> None:
    await book.begin("run_1")
    first = asyncio.Event()
    book.rows.before_record = first.wait
    book.records.take(book.happens("run_1", TurnStarted(resumed=True)))
    for word in "abcdefgh":
        await asyncio.sleep(0)
        book.records.take(book.happens("run_1", TextDelta(word)))
    await book.store.request("run_1")  # by now the later ones have been looked up
    first.set()
    book.records.take(book.happens("run_1", TextDelta("!")))

    async def text() -> str:
        told = await book.store.request_events("run_1")
        assert told == [] or told[0].kind == "run.resumed"
        return "".join(each.data["delta"] for each in told if each.kind == "text.delta")

    async with asyncio.timeout(60):
        while len(found := await text()) < 9:
            await asyncio.sleep(0.01)
    assert found == "abcdefgh!"


async def test_the_end_of_a_run_begun_before_comes_after_all_it_said(book: _Book) -> None:
    await book.begin("run_1")
    [claim] = await book.store.claim("me", 1, ("api",))
    for event in (TurnStarted(resumed=True), TextDelta("a"), TextDelta("b")):
        book.records.take(book.happens("run_1", event))
    await book.store.commit(claim, an_end("ab"))
    book.records.take(book.happens("run_1", TurnEnded(ending=Final("ab"))))
    async with asyncio.timeout(60):
        events = book.records.events("run_1", 0)
        told = [(event.kind, event.data.get("delta")) async for event in events]
    kinds = [kind for kind, _ in told]
    assert "".join(delta for _, delta in told if delta) == "ab"
    assert kinds[-1] == "run.completed"
    assert kinds.count("run.completed") == 1
