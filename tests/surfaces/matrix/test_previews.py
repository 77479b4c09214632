"""Replies that are seen while they are made, on a real homeserver."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from parley.gateway.delivery import NotSent
from parley.gateway.live import LiveEvent, TurnEnded, TurnStarted
from parley.protocol import (
    SessionSource,
    StepTaken,
    TextDelta,
    TextReset,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from parley.storage.contract import Delivery
from parley.surfaces.matrix.pace import Pace
from parley.surfaces.matrix.previews import Preview
from parley.surfaces.matrix.progress import Progress
from parley.surfaces.matrix.typing_notice import TypingNotice
from tests.servers.synapse import Synapse, running_synapse
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.speaker import Speaker, a_delivery, a_source, talking
from tests.waiting import until

both = pytest.mark.parametrize("encrypted", [False, True], ids=["open", "encrypted"])
_CALL = ToolCall("c1", "web_search")


@both
async def test_a_reply_grows_before_ones_eyes_and_ends_as_it_was_said(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    async with talking(synapse, tmp_path, encrypted=encrypted) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        speaker.show(source, 1, TurnStarted(), TextDelta("Let me look. "))
        await person.wait_for_text(bot, "Let me look. …")
        speaker.show(source, 1, StepTaken(()), ToolStarted(_CALL))
        seen = await person.wait_for_text(bot, "*web\\_search…*")
        assert seen.html is not None
        assert "<em>web_search…</em>" in seen.html
        speaker.show(source, 1, ToolFinished(_CALL, ok=True), TextDelta("It is wrong"))
        await person.wait_for_text(bot, "wrong …")
        speaker.show(source, 1, TextReset(), TextDelta("It is **right"))
        await person.wait_for_text(bot, "Let me look.\n\nIt is **right …")
        speaker.show(source, 1, TextDelta("**."), TurnEnded())
        await speaker.deliver(a_delivery(source, "It is **right**.", turn=1))
        speaker.show(source, 1, TextDelta("late"), TurnStarted(), TextDelta("late"))

        found = await person.wait_for_text(bot, "It is **right**.")
        await speaker.deliver(a_delivery(source, "Next.", turn=2))
        await person.wait_for_text(bot, "Next.")
        assert found.text == "It is **right**."
        assert found.encrypted is encrypted
        assert [each.text for each in person.from_sender(bot)] == ["It is **right**.", "Next."]
        assert not speaker.previews._running
        assert not speaker.previews._next_edit


async def test_a_reply_that_overtakes_its_own_events_is_not_shown_twice(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talking(synapse, tmp_path) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        await speaker.deliver(a_delivery(source, "Quick.", turn=1))
        speaker.show(source, 1, TurnStarted(), TextDelta("Quick. "))
        assert not speaker.previews._running
        speaker.show(source, 1, TurnEnded())
        await speaker.deliver(a_delivery(source, "Next.", turn=2))
        await person.wait_for_text(bot, "Next.")
        assert [(each.text, each.edits) for each in person.from_sender(bot)] == [
            ("Quick.", 0),
            ("Next.", 0),
        ]


async def test_a_reply_waits_for_what_is_being_sent_of_its_preview(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talking(synapse, tmp_path, encrypted=True) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        async with speaker.connection.keys._sharing.setdefault(room, asyncio.Lock()):
            speaker.show(source, 1, TurnStarted(), TextDelta("Under way. "))
            [(name, running)] = speaker.previews._running.items()
            await until(lambda: running.unsure)
            taking = asyncio.create_task(speaker.previews.take(name))
            speaker.show(source, 1, TextDelta("Too late. "))
            await until(running.over.is_set)
            assert not taking.done()
        found = await taking
        shown = await person.wait_for_text(bot, "Under way. …")
        assert found == Preview(shown.event_id, known=True, room_id=room)
        assert not speaker.previews._running


@both
async def test_what_is_stopped_says_so_or_goes_away(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    async with talking(synapse, tmp_path, encrypted=encrypted) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        speaker.show(source, 1, TurnStarted(), TextDelta("I was about to. "))
        await person.wait_for_text(bot, "about to. …")
        speaker.show(source, 1, TurnEnded(stopped=True))
        await person.wait_for_text(bot, "I was about to. — stopped")

        speaker.show(source, 2, TurnStarted(), ToolStarted(_CALL))
        shown = await person.wait_for_text(bot, "search…*")
        speaker.show(source, 2, TurnEnded(stopped=True))
        await until(lambda: shown.redacted)

        speaker.show(source, 3, TurnStarted(), TurnEnded(stopped=True))
        await until(lambda: not speaker.previews._running)
        assert len(person.from_sender(bot)) == 1


@both
async def test_a_turn_that_begins_again_goes_on_in_the_same_message(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as person:
        room = await person.create_dm(account.user_id, encrypted=encrypted)
        source = a_source(room)
        async with Speaker.on(synapse, account, tmp_path / "keys") as killed:
            await killed.join(room)
            await person.wait_for_member(room, account.user_id)
            killed.show(source, 5, TurnStarted(), TextDelta("First try. "))
            await person.wait_for_text(account.user_id, "First try.")
        async with Speaker.on(synapse, account, tmp_path / "keys") as again:
            again.show(source, 5, TurnStarted(resumed=True), TextDelta("Second try. "))
            await person.wait_for_text(account.user_id, "Second try. …")
            again.show(source, 5, TurnEnded(stopped=True))
            await person.wait_for_text(account.user_id, "Second try. — stopped")
        assert len(person.from_sender(account.user_id)) == 1


async def test_only_the_first_part_of_a_long_reply_is_shown_while_it_is_made(
    synapse: Synapse, tmp_path: Path
) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(100))
    async with talking(synapse, tmp_path) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        speaker.show(source, 1, TurnStarted())
        for start in range(0, len(text), 50):
            speaker.show(source, 1, TextDelta(text[start : start + 50]))
        shown = await person.wait_for_text(bot, "\n\n…")
        assert "Paragraph 99" not in shown.text
        await speaker.deliver(a_delivery(source, text, turn=1))
        await person.wait_for_text(bot, "Paragraph 99")
        whole = "\n\n".join(each.text for each in person.from_sender(bot))
        assert "".join(whole.split()) == "".join(text.split())
        assert shown.edits <= 2


async def test_under_flood_control_there_is_one_message_and_it_ends_whole(tmp_path: Path) -> None:
    said: list[str] = []
    limits = {"rc_message": {"per_second": 1, "burst_count": 3}}
    with running_synapse(extra=limits) as synapse:
        async with talking(synapse, tmp_path) as (speaker, person, room):
            source, bot = a_source(room), speaker.connection.user_id
            speaker.show(source, 1, TurnStarted())

            def the_server_complains_of_more() -> bool:
                said.append(f"word{len(said)} ")
                speaker.show(source, 1, TextDelta(said[-1]))
                return speaker.previews.pace.silence > 0

            await until(the_server_complains_of_more)
            speaker.show(source, 1, TurnEnded())
            text = "".join(said) + "end."
            attempts = await _patiently(speaker, a_delivery(source, text, turn=1))
            for turn in range(2, 6):
                attempts += await _patiently(speaker, a_delivery(source, f"No {turn}.", turn=turn))
            await person.wait_for_text(bot, "No 5.")
            first, *others = person.from_sender(bot)
            assert first.text == text
            assert first.edits >= 2
            assert [each.text for each in others] == ["No 2.", "No 3.", "No 4.", "No 5."]
            assert 6 <= attempts < 20


async def _patiently(speaker: Speaker, delivery: Delivery) -> int:
    """As the outbox does it."""
    for attempt in range(1, 50):
        try:
            await speaker.deliver(delivery)
        except NotSent as reason:
            assert reason.after is not None
            await asyncio.sleep(reason.after)
        else:
            return attempt
    raise AssertionError("it never went")


async def test_while_the_homeserver_is_away_events_are_taken_and_the_reply_is_whole(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talking(synapse, tmp_path) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        speaker.show(source, 1, TurnStarted(), TextDelta("Before. "))
        await person.wait_for_text(bot, "Before.")
        synapse.pause()
        try:
            begun = time.monotonic()
            for _ in range(100):
                speaker.show(source, 1, TextDelta("more "))
            assert time.monotonic() - begun < 10
            reply = a_delivery(source, "All of it.", turn=1)
            sending = asyncio.create_task(_patiently(speaker, reply))
            await asyncio.sleep(0)
        finally:
            synapse.resume()
        await sending
        found = await person.wait_for_text(bot, "All of it.")
        await _patiently(speaker, a_delivery(source, "Next.", turn=2))
        await person.wait_for_text(bot, "Next.")
        assert found.text == "All of it."
        assert len(person.from_sender(bot)) == 2


async def test_typing_is_shown_while_a_turn_runs(synapse: Synapse, tmp_path: Path) -> None:
    async with talking(synapse, tmp_path) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        notice = TypingNotice(speaker.connection)
        events = _live(source)
        notice.show(events[0], room_id=room)
        await until(lambda: person.typing.get(room) == (bot,))
        notice.show(events[1], room_id=room)
        await until(lambda: person.typing.get(room) == ())
        assert not notice._rooms
        notice.show(events[0], room_id="!nowhere:localhost")
        notice.show(events[1], room_id="!nowhere:localhost")
        await until(lambda: not notice._rooms)
        notice.show(events[0], room_id=room)
        await notice.close()


def _live(source: SessionSource) -> list[LiveEvent]:
    return [
        LiveEvent(1, "lane", 1, source, TurnStarted()),
        LiveEvent(2, "lane", 1, source, TurnEnded()),
    ]


def test_previews_queue_and_get_rarer_for_a_slow_server_a_strict_one_and_for_replies() -> None:
    now = [100.0]
    pace = Pace(per_second=10, at_once=2, clock=lambda: now[0])
    tickets = [pace.reserve() for _ in range(6)]
    waits = [pace.wait_for(each) for each in tickets]
    assert waits == pytest.approx([0, 0, 0.1, 0.2, 0.3, 0.4])
    pace.spend()
    assert pace.wait_for(tickets[2]) == pytest.approx(0.2)
    pace.give_back()
    for _ in range(60):
        pace.worked(0.5)
    assert pace.wait_for(tickets[3]) == pytest.approx(1.0, rel=0.01)
    now[0] += 1
    assert [pace.wait_for(each) > 0 for each in tickets] == [False] * 4 + [True] * 2
    now[0] += 100
    pace.limited(5.0)
    pace.limited(5.0)
    assert pace.wait_for(tickets[5]) == pytest.approx(7.7)
    now[0] += 8
    assert pace.silence == 0
    later = [pace.wait_for(pace.reserve()) for _ in range(3)]
    assert later == pytest.approx([2.0, 12.0, 22.0], rel=0.01)


def test_progress_keeps_little_of_much() -> None:
    progress = Progress()
    for _ in range(10_000):
        progress.take(TextDelta("x" * 100))
    assert len(progress.words) < 20_000
    assert len(progress.shown().encode()) <= 12_100


def test_progress_in_code_closes_the_fence_before_the_cursor() -> None:
    progress = Progress()
    progress.take(TextDelta("Look:\n```py\nx = 1"))
    assert progress.shown() == "Look:\n```py\nx = 1\n```\n\n…"
