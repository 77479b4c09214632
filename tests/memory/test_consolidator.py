"""Tending while people are away: when, for whom, and never in anybody's way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from parley.agent.providers.base import ProviderError
from parley.memory.consolidator import MemoryConsolidator, Prompt
from parley.protocol import ChatMessage, person_of
from parley.storage.memory import Tended, person_place
from parley.storage.sqlite.engine import connect
from tests.builders import a_message
from tests.memory.scene import Model, Scene, an_answer
from tests.storage.conformance.base import claim_one
from tests.waiting import until

_TOLD = "I have a sister called Ida who lives in Graz."
_DOWN = ProviderError("The model cannot be reached.", kind="unreachable")


def _tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


# ── the background task ──


async def test_it_starts_once_stops_cleanly_and_can_start_again(scene: Scene) -> None:
    consolidator = scene.consolidator(interval=0.02)
    await consolidator.stop_background_task()  # safe without a start
    before = _tasks()
    await consolidator.start_background_task()
    await consolidator.start_background_task()
    assert len(_tasks() - before) == 1
    await consolidator.stop_background_task()
    await consolidator.stop_background_task()
    assert _tasks() == before
    await scene.talk(_TOLD)
    await consolidator.start_background_task()
    await until(lambda: scene.commits)
    await asyncio.gather(consolidator.stop_background_task(), consolidator.stop_background_task())
    assert _tasks() == before


async def test_an_idle_session_is_tended_and_an_active_one_is_left_alone(scene: Scene) -> None:
    await scene.talk(_TOLD, chat="active")
    await scene.talk(_TOLD, chat="idle")
    consolidator = scene.consolidator(interval=0.2)
    consolidator.record_activity("active")
    await consolidator.start_background_task()
    while not scene.commits:
        consolidator.record_activity("active")
        await asyncio.sleep(0.01)
    assert await scene.texts("idle") != []
    assert await scene.texts("active") == []
    assert consolidator.status.waiting == 1
    await until(lambda: len(scene.commits) == 2)  # it rests too by now
    assert await scene.texts("active") != []


async def test_activity_is_as_old_as_twice_the_interval(scene: Scene) -> None:
    await scene.talk(_TOLD)
    consolidator = scene.consolidator(interval=0.15)
    consolidator.record_activity("c1")
    began = time.monotonic()
    while await consolidator.tick() == 0:
        await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 0.3


async def test_what_nobody_recorded_since_the_start_is_idle(scene: Scene) -> None:
    await scene.talk(_TOLD)
    assert await scene.consolidator(interval=3600).tick() == 1
    assert len(await scene.texts()) == 1


async def test_the_loop_prepares_each_look_and_survives_what_goes_wrong_there(scene: Scene) -> None:
    looks = 0

    async def prepare() -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("a view cannot be written")

    await scene.talk(_TOLD)
    consolidator = scene.consolidator(interval=0.02, prepare=prepare)
    await consolidator.start_background_task()
    await until(lambda: looks >= 3 and scene.commits)


async def test_a_store_that_cannot_be_asked_is_asked_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    untended, failures = scene.store.untended, 0

    async def broken(now: float, **more: Any) -> list[Tended]:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise OSError("the disk is away")
        return await untended(now, **more)

    monkeypatch.setattr(scene.store, "untended", broken)
    await scene.talk(_TOLD)
    consolidator = scene.consolidator(interval=0.05)
    await consolidator.start_background_task()
    await until(lambda: consolidator.status.last_fault)
    assert "OSError" in str(consolidator.status.last_fault)
    await until(lambda: scene.commits)
    await until(lambda: consolidator.status.last_fault is None)


async def test_a_stop_breaks_off_a_model_call_and_nothing_is_lost(scene: Scene) -> None:
    session = await scene.talk(_TOLD)
    scene.model.open.clear()
    consolidator = scene.consolidator(interval=0.02)
    await consolidator.start_background_task()
    await until(lambda: scene.model.running)
    await consolidator.stop_background_task()
    assert (scene.model.running, scene.model.broken_off) == (0, 1)
    assert consolidator.status.failing == 0
    assert (await scene.session()).seen == session.seen
    scene.model.open.set()
    await consolidator.start_background_task()
    await until(lambda: scene.commits)
    assert len(await scene.texts()) == 1


# ── errors ──


async def test_one_session_that_breaks_harms_no_other(scene: Scene) -> None:
    for chat in ("c1", "c2", "c3"):
        await scene.talk(_TOLD, chat=chat)
    scene.build_error["c2"] = RuntimeError("broken")
    consolidator = scene.consolidator(interval=0.03)
    await consolidator.start_background_task()
    await until(lambda: len(scene.commits) == 2 and consolidator.status.failing)
    assert [bool(await scene.texts(chat)) for chat in ("c1", "c2", "c3")] == [True, False, True]
    status = consolidator.status
    assert status.failing == 1
    assert status.last_fault is not None
    assert "RuntimeError" in status.last_fault
    assert "broken" not in status.last_fault
    scene.build_error.clear()
    await until(lambda: len(scene.commits) == 3)
    await until(lambda: consolidator.status.failing == 0)
    assert consolidator.status.last_fault is None


async def test_repeated_failures_come_further_and_further_apart(scene: Scene) -> None:
    scene.model.script = (_DOWN,)
    session = await scene.talk(_TOLD)
    consolidator = scene.consolidator(interval=60)
    pauses = []
    for _ in range(9):
        await consolidator.tend(session)
        seen = (await scene.session()).seen
        assert seen.tend_at is not None
        pauses.append(seen.tend_at - time.time())
    expected = [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert pauses == pytest.approx(expected, abs=2)
    assert consolidator.status.last_fault == "The model cannot be reached."
    assert await consolidator.tick() == 0  # it is not due
    assert await scene.consolidator().tick() == 0  # nor after a restart
    scene.model.script = (an_answer,)
    await consolidator.tend(session)
    assert consolidator.status.failing == 0
    scene.model.script = (_DOWN,)
    session = await scene.talk("I forgot to say that she has two children.")
    await consolidator.tend(session)
    seen = (await scene.session()).seen
    assert seen.tend_at is not None
    assert seen.tend_at - time.time() == pytest.approx(60, abs=2)


async def test_a_new_message_puts_a_failing_session_in_line_again(scene: Scene) -> None:
    scene.model.script = (_DOWN, _DOWN, _DOWN, an_answer)
    consolidator = scene.consolidator()
    await consolidator.tend(await scene.talk(_TOLD))
    assert await consolidator.tick() == 0
    await scene.talk("I am back.")
    assert await consolidator.tick() == 1
    assert len(await scene.texts()) == 2


# ── people go first ──


async def test_a_message_breaks_off_a_consolidation_and_nothing_is_lost(scene: Scene) -> None:
    await scene.talk(_TOLD)
    scene.model.open.clear()
    consolidator = scene.consolidator(interval=0.05)
    look = asyncio.create_task(consolidator.tick())
    await until(lambda: scene.model.running)
    consolidator.record_activity("c1")
    claim = await scene.begin("I nearly forgot: she plays the violin.")
    await until(lambda: scene.model.running == 0)
    assert await look == 0
    assert consolidator.status.failing == 0
    scene.model.open.set()
    scene.busy.add("c1")
    await scene.end(claim, ChatMessage("assistant", "How nice."))
    scene.busy.clear()
    assert scene.commits == []
    await consolidator.start_background_task()
    await until(lambda: scene.commits)
    assert len(await scene.texts()) == 2


async def test_a_turn_that_began_unnoticed_wins_over_what_was_made_meanwhile(scene: Scene) -> None:
    """Another process may answer: the store itself refuses what was made before it."""
    await scene.talk(_TOLD)
    scene.model.open.clear()
    consolidator = scene.consolidator()
    look = asyncio.create_task(consolidator.tick())
    await until(lambda: scene.model.running)
    claim = await scene.begin("I nearly forgot: she plays the violin.")
    scene.model.open.set()
    await look
    assert scene.commits == []
    assert consolidator.status.failing == 0
    await scene.end(claim, ChatMessage("assistant", "How nice."))
    assert await consolidator.tick() == 1
    assert len(await scene.texts()) == 2


async def test_activity_elsewhere_is_no_reason_to_step_aside_unless_the_model_is_alone(
    scene: Scene,
) -> None:
    await scene.talk(_TOLD)
    scene.model.open.clear()
    consolidator = scene.consolidator()
    look = asyncio.create_task(consolidator.tick())
    await until(lambda: scene.model.running)
    consolidator.record_activity("elsewhere")
    await asyncio.sleep(0)
    scene.model.open.set()
    assert await look == 1
    assert len(scene.commits) == 1
    scene.alone = True
    scene.model.open.clear()
    await scene.talk("I also have a brother, whose name is Udo.")
    look = asyncio.create_task(consolidator.tick())
    await until(lambda: scene.model.running)
    consolidator.record_activity("elsewhere")
    assert await look == 0
    assert scene.model.broken_off == 1


async def test_one_that_takes_long_does_not_keep_others_from_being_looked_at(scene: Scene) -> None:
    await scene.talk(_TOLD)
    scene.model.open.clear()
    ready = 0

    async def prepare() -> None:
        nonlocal ready
        ready += 1

    consolidator = scene.consolidator(interval=0.02, prepare=prepare)
    await consolidator.start_background_task()
    await until(lambda: scene.model.running == 1)
    before = ready
    await until(lambda: ready > before + 1)
    await scene.talk("I also have a brother, whose name is Udo.", chat="c2")
    await until(lambda: scene.model.running == 2)
    scene.model.open.set()
    await until(lambda: len(scene.commits) == 2)


async def test_a_model_that_does_one_thing_at_a_time_is_left_to_whoever_is_answered(
    scene: Scene,
) -> None:
    session = await scene.talk(_TOLD)
    scene.busy.add("elsewhere")
    consolidator = scene.consolidator()
    scene.alone = True
    assert await consolidator.tick() == 0
    assert await consolidator.maybe_consolidate_by_tokens_async(session, least=True) is None
    assert scene.model.requests == [] and consolidator.status.failing == 0
    scene.busy.clear()
    assert await consolidator.tick() == 1
    assert len(scene.commits) == 1


async def test_nothing_is_begun_while_a_turn_runs(scene: Scene) -> None:
    session = await scene.talk(_TOLD)
    scene.busy.add("c1")
    consolidator = scene.consolidator()
    assert await consolidator.tick() == 0
    assert consolidator.status.waiting == 1
    await consolidator.tend(session)
    assert await consolidator.maybe_consolidate_by_tokens_async(session, least=True) is None
    assert scene.model.requests == []
    scene.busy.clear()
    assert await consolidator.tick() == 1


async def test_one_at_a_time_for_a_session_and_two_for_all(scene: Scene) -> None:
    scene.model.open.clear()
    sessions = [await scene.talk(_TOLD, chat=f"c{number}") for number in range(1, 5)]
    consolidator = scene.consolidator()
    first = asyncio.create_task(consolidator.tend(sessions[0]))
    await until(lambda: scene.model.running == 1)
    again = asyncio.create_task(consolidator.tend(sessions[0].id))
    look = asyncio.create_task(consolidator.tick())
    await until(lambda: scene.model.running == 2)
    assert consolidator.status.running >= 2
    scene.model.open.set()
    await asyncio.gather(first, again, look)
    assert scene.model.most_at_once == 2
    assert len(scene.model.requests) == 4
    assert len(scene.commits) == 4


async def test_whoever_waits_for_it_can_give_up(scene: Scene) -> None:
    session = await scene.talk(_TOLD)
    scene.model.open.clear()
    consolidator = scene.consolidator()
    waiting = asyncio.create_task(consolidator.tend(session))
    await until(lambda: scene.model.running)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (scene.model.running, consolidator.status.running) == (0, 0)


# ── by tokens ──


async def test_by_tokens_comes_back_at_once_and_folds_soon(scene: Scene) -> None:
    session = await scene.long_talk(20)
    scene.model.open.clear()
    scene.busy.add("c1")  # the turn that asked for it has not quite ended
    consolidator = scene.consolidator()
    consolidator.record_activity("c1")
    consolidator.maybe_consolidate_by_tokens(session.id)
    consolidator.maybe_consolidate_by_tokens(session)
    assert scene.model.requests == []
    scene.busy.clear()
    await until(lambda: scene.model.running)
    consolidator.maybe_consolidate_by_tokens(session)
    scene.model.open.set()
    await until(lambda: consolidator.status.running == 0)
    assert [commit.kind for commit in scene.commits] == ["folded"]
    assert len(scene.model.requests) == 1
    await consolidator.stop_background_task()
    consolidator.maybe_consolidate_by_tokens(session)
    assert consolidator.status.running == 0


async def test_a_stop_breaks_off_what_was_to_be_done_soon(scene: Scene) -> None:
    session = await scene.long_talk(20)
    scene.model.open.clear()
    consolidator = scene.consolidator()
    consolidator.maybe_consolidate_by_tokens(session)
    await until(lambda: scene.model.running)
    async with asyncio.timeout(60):
        await consolidator.stop_background_task()
    assert (scene.model.broken_off, consolidator.status.running) == (1, 0)
    assert (await scene.session()).seen == session.seen


async def test_what_fails_soon_is_tried_again_later(scene: Scene) -> None:
    session = await scene.long_talk(20)
    scene.build_error["c1"] = _DOWN
    consolidator = scene.consolidator()
    consolidator.maybe_consolidate_by_tokens(session)
    await until(lambda: consolidator.status.failing)
    assert consolidator.status.last_fault == "The model cannot be reached."
    with pytest.raises(ProviderError):
        await consolidator.maybe_consolidate_by_tokens_async(session)


async def test_compacting_goes_on_when_they_rest(scene: Scene) -> None:
    session = await scene.long_talk(6)
    scene.model.open.clear()
    consolidator = scene.consolidator(interval=0.02)
    compacting = asyncio.create_task(consolidator.compact(session))
    await until(lambda: scene.model.running)
    consolidator.record_activity("c1")
    await scene.talk("wait, one more thing")
    scene.model.open.set()
    commit = await compacting
    assert commit is not None
    assert commit.kind == "folded"
    assert len(await scene.history()) == 4
    assert await consolidator.compact("no such session") is None


async def test_who_remembers_by_itself_is_left_alone(scene: Scene) -> None:
    async def nobody(session: Tended, history: Sequence[ChatMessage]) -> Prompt | None:
        return None

    await scene.talk(_TOLD)
    consolidator = MemoryConsolidator(
        scene.folder, None, None, scene.store, None, nobody, tuple, place_of=lambda session: "p"
    )
    assert await consolidator.tick() == 1
    assert await scene.store.untended(2e9) == []


async def test_a_prompt_brings_its_own_provider(scene: Scene) -> None:
    own = Model(window=50_000)

    async def prompt(session: Tended, history: Sequence[ChatMessage]) -> Prompt:
        return Prompt("Be brief.", tuple(history), provider=own, tools=())

    await scene.long_talk(20, facts=1)
    consolidator = MemoryConsolidator(
        *(scene.folder, scene.model, None, scene.store, 8_000, prompt, tuple),
        place_of=lambda session: "person:p",
    )
    assert await consolidator.tick() == 1
    assert (len(scene.model.requests), len(own.requests)) == (0, 1)
    assert (await scene.session()).seen.folded == 0  # its window has room for it all


# ── what it costs ──


async def test_of_ten_thousand_sessions_the_fifty_that_are_due_are_touched(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = {f"s{number * 200:05}" for number in range(50)}
    await scene.talk(_TOLD)  # one that is real
    _fill(scene.folder / "parley.db", due, number=10_000)
    touched: list[str] = []
    tended, asked = scene.store.tended, 0
    untended = scene.store.untended

    async def counted(session: str) -> Tended | None:
        touched.append(session)
        return await tended(session)

    async def counted_looks(now: float, **more: Any) -> list[Tended]:
        nonlocal asked
        asked += 1
        return await untended(now, **more)

    monkeypatch.setattr(scene.store, "tended", counted)
    monkeypatch.setattr(scene.store, "untended", counted_looks)
    consolidator = scene.consolidator()
    assert await consolidator.tick() == 51
    record = await scene.store.session_of("c1")
    assert record is not None
    assert set(touched) == due | {record.id}
    assert len(touched) <= 2 * 51
    assert len(scene.model.requests) == 51
    assert len({request.messages[0].text for request in scene.model.requests}) == 51
    assert asked <= 4
    assert await consolidator.tick() == 0
    assert len(scene.model.requests) == 51
    assert consolidator.status.tended == 51


def _fill(file: Path, due: set[str], *, number: int) -> None:
    source = '{"platform":"test","chat_id":"c1","chat_type":"dm","user_id":"ann"}'
    ids = [f"s{each:05}" for each in range(number)]
    with closing(connect(file)) as db:
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO session (id, lane, created_at, updated_at, tend_at) "
            "VALUES (?, ?, 1, 1, ?)",
            [(id, f"lane-{id}", 5.0 if id in due else None) for id in ids],
        )
        for id in ids:
            turn = db.execute(
                "INSERT INTO turn (lane, session, generation, attempt, state, source, person, "
                "started_at) VALUES (?, ?, 0, 1, 'done', ?, 'test:ann', 1)",
                (f"lane-{id}", id, source),
            ).lastrowid
            db.executemany(
                "INSERT INTO entry (session, turn, body, at) VALUES (?, ?, ?, 1)",
                [
                    (
                        id,
                        turn,
                        f'{{"role":"user","text":"I am number {id} of very many people here."}}',
                    ),
                    (id, turn, '{"role":"assistant","text":"I see."}'),
                ],
            )
        db.execute("COMMIT")


async def test_what_is_kept_of_activity_is_bounded_by_what_is_active(scene: Scene) -> None:
    consolidator = scene.consolidator(interval=0.01)
    for number in range(500):
        consolidator.record_activity(f"lane-{number}")
    await until(lambda: consolidator._activity.rests("lane-499"))
    consolidator.record_activity("one more")
    assert len(consolidator._activity) == 1


async def test_active_sessions_do_not_keep_others_from_their_turn(scene: Scene) -> None:
    for number in range(60):
        await scene.talk(_TOLD, chat=f"c{number}")
    consolidator = scene.consolidator()
    for number in range(55):
        consolidator.record_activity(f"c{number}")
    assert await consolidator.tick() == 5
    assert consolidator.status.waiting == 55


async def test_without_more_it_remembers_a_person_where_they_speak_alone(scene: Scene) -> None:
    lane = "agent:main:test:dm:c1"
    message = a_message(_TOLD)
    await scene.store.submit(lane, "told", message)
    await scene.end(await claim_one(scene.store), ChatMessage("assistant", "How nice."))
    consolidator = MemoryConsolidator(
        workspace=scene.folder,
        provider=scene.model,
        model="scripted-1",
        sessions=scene.store,
        context_window_tokens=8_000,
        build_messages=scene._prompt,
        get_tool_definitions=lambda: [],
    )
    assert await consolidator.tick() == 1
    [fact] = await scene.store.facts([person_place(person_of(message.source))])
    assert fact.sources


async def test_a_clock_that_was_set_back_keeps_nobody_from_their_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 5 * 86_400)
    await scene.talk("I like fish very much indeed")
    monkeypatch.setattr(time, "time", right)
    assert await scene.consolidator().tick() == 1
    assert len(await scene.texts()) == 1
