"""Replies in rooms of a real homeserver: each once, whole, where it belongs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from parley.gateway.delivery import NotSent, Unreachable
from parley.gateway.live import TurnStarted
from parley.protocol import TextDelta
from parley.surfaces.matrix.connection import MatrixFault
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.person import Person
from tests.surfaces.matrix.speaker import Speaker, a_delivery, a_source, talking
from tests.waiting import until

both = pytest.mark.parametrize("encrypted", [False, True], ids=["open", "encrypted"])


@both
async def test_a_reply_is_markdown_with_html_and_sent_again_it_is_the_same_event(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    async with talking(synapse, tmp_path, encrypted=encrypted) as (speaker, person, room):
        reply = a_delivery(a_source(room), "Hello **you**", turn=1)
        sent = await speaker.deliver(reply)
        speaker.outgoing._sent.clear()
        speaker.outgoing._heads.clear()
        assert await speaker.deliver(reply) == sent
        notice = a_delivery(a_source(room), "plain words", dedupe="command:1", kind="notice")
        await speaker.deliver(notice)

        await person.wait_for_text(speaker.connection.user_id, "plain words")
        first, second = person.from_sender(speaker.connection.user_id)
        assert (first.event_id, first.text) == (sent, "Hello **you**")
        assert first.html == "<p>Hello <strong>you</strong></p>"
        assert (first.kind, second.kind) == ("m.text", "m.notice")
        assert first.edits == 0
        assert second.html is None
        assert first.encrypted is encrypted
        for each in (first, second):
            assert each.content["org.parley.agent"] == {"v": 1}
            assert each.content["m.mentions"] == {}
            assert "m.relates_to" not in each.content


@both
async def test_a_long_reply_comes_in_parts_that_keep_their_code(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    code = "\n".join(f"print('Zeile {number} — größer')" for number in range(1200))
    text = f"So geht es:\n\n```python\n{code}\n```\n\nFertig."
    async with talking(synapse, tmp_path, encrypted=encrypted) as (speaker, person, room):
        await speaker.deliver(a_delivery(a_source(room), text, turn=1))
        await person.wait_for_text(speaker.connection.user_id, "Fertig.")
        parts = person.from_sender(speaker.connection.user_id)
        assert len(parts) > 3
        said = [line for each in parts for line in each.text.split("\n") if "print" in line]
        assert "\n".join(said) == code
        for each in parts:
            assert each.html is not None
            assert each.html.count("<pre>") == 1


async def test_letters_that_take_much_room_still_fit_an_encrypted_room(
    synapse: Synapse, tmp_path: Path
) -> None:
    text = "**важно** " + "слово и ещё одно. " * 1000
    source_turns = (1, 2)
    async with talking(synapse, tmp_path, encrypted=True) as (speaker, person, room):
        source = a_source(room)
        speaker.show(source, 1, TurnStarted(), TextDelta("Сначала это. "))
        await person.wait_for_text(speaker.connection.user_id, "Сначала")
        for turn in source_turns:
            await speaker.deliver(a_delivery(source, text, turn=turn))
        said = 2 * "".join(text.split())
        await until(
            lambda: (
                sum(
                    len("".join(each.text.split()))
                    for each in person.from_sender(speaker.connection.user_id)
                )
                == len(said)
            )
        )
        heads = [e for e in person.from_sender(speaker.connection.user_id) if "важно" in e.text]
        assert len(heads) == 2
        assert all("<strong>важно</strong>" in (each.html or "") for each in heads)


async def test_in_a_thread_it_answers_there_and_in_a_group_to_the_person(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talking(synapse, tmp_path) as (speaker, person, room):
        bot = speaker.connection.user_id
        asked = await person.send(room, "question")
        in_thread = await person.in_thread(room, asked, "more")
        group = {"chat_type": "group", "user_id": person.user_id}
        threaded = a_source(room, **group, thread_id=asked)
        plain = a_source(room, **group)
        speaker.show(threaded, 1, TurnStarted(), TextDelta("So far. "), answers=(in_thread,))
        await person.wait_for_text(bot, "So far.")
        await speaker.deliver(a_delivery(threaded, "in thread", turn=1, answers=(in_thread,)))
        await speaker.deliver(a_delivery(plain, "in group", turn=2, answers=("x", asked)))

        there = await person.wait_for_text(bot, "in thread")
        assert there.thread == asked
        assert there.first["m.relates_to"]["m.in_reply_to"] == {"event_id": in_thread}
        assert there.edits >= 1
        here = await person.wait_for_text(bot, "in group")
        assert (here.thread, here.reply_to) == (None, asked)
        for each in (there, here):
            assert each.content["m.mentions"] == {"user_ids": [person.user_id]}
        edits = [
            event["content"]
            for _, event in person.events
            if event["content"].get("m.relates_to", {}).get("rel_type") == "m.replace"
        ]
        assert edits
        assert all("m.relates_to" not in edit["m.new_content"] for edit in edits)
        assert all(edit["m.mentions"] == {} for edit in edits)


async def test_a_question_can_be_answered_with_a_tap(synapse: Synapse, tmp_path: Path) -> None:
    async with talking(synapse, tmp_path, encrypted=True) as (speaker, person, room):
        question = a_delivery(a_source(room), "May I?", dedupe="ask:q7", kind="notice")
        for _ in range(2):
            await speaker.deliver(question)
        asked = await person.wait_for_text(speaker.connection.user_id, "May I?")
        assert asked.content["org.parley.question"] == {"id": "q7"}
        assert asked.kind == "m.text"
        await until(lambda: len(person.reactions) == 2)
        assert {what for _, what, to in person.reactions if to == asked.event_id} == {"👍", "👎"}


@both
async def test_what_a_killed_process_has_shown_becomes_the_reply(
    synapse: Synapse, tmp_path: Path, encrypted: bool
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as person:
        room = await person.create_dm(account.user_id, encrypted=encrypted)
        source = a_source(room)
        async with Speaker.on(synapse, account, tmp_path / "keys") as killed:
            await killed.join(room)
            await person.wait_for_member(room, account.user_id)
            killed.show(source, 5, TurnStarted(), TextDelta("Half of it. "))
            shown = await person.wait_for_text(account.user_id, "Half of it.")
        async with Speaker.on(synapse, account, tmp_path / "keys") as again:
            await again.join(room)
            assert await again.deliver(a_delivery(source, "All of *it*.", turn=5)) == shown.event_id
        async with Speaker.on(synapse, account, tmp_path / "keys") as third:
            await third.join(room)
            assert await third.deliver(a_delivery(source, "All of *it*.", turn=5)) == shown.event_id
            await third.deliver(a_delivery(source, "The next.", turn=6))
        await person.wait_for_text(account.user_id, "The next.")
        first, second = person.from_sender(account.user_id)
        assert first.text == "All of *it*."
        assert first.html == "<p>All of <em>it</em>.</p>"
        assert first.texts.count("All of *it*.") == 1
        assert second.edits == 0


async def test_a_reply_to_what_was_redacted_is_seen_all_the_same(
    synapse: Synapse, tmp_path: Path
) -> None:
    account = await asyncio.to_thread(synapse.register)
    async with Person.on(synapse) as person:
        room = await person.create_dm(account.user_id, encrypted=False)
        source = a_source(room)
        async with Speaker.on(synapse, account, tmp_path / "keys") as killed:
            await killed.join(room)
            killed.show(source, 5, TurnStarted(), TextDelta("Half of it. "))
            shown = await person.wait_for_text(account.user_id, "Half of it.")
        await person.redact(room, shown.event_id)
        async with Speaker.on(synapse, account, tmp_path / "keys") as again:
            await again.join(room)
            await again.deliver(a_delivery(source, "All of it.", turn=5))
            await person.wait_for_text(account.user_id, "All of it.")
        assert len(person.from_sender(account.user_id)) == 1


async def test_a_room_that_is_encrypted_in_the_middle_gets_no_more_plain_text(
    synapse: Synapse, tmp_path: Path
) -> None:
    async with talking(synapse, tmp_path) as (speaker, person, room):
        source, bot = a_source(room), speaker.connection.user_id
        speaker.show(source, 1, TurnStarted(), TextDelta("In the open. "))
        await person.wait_for_text(bot, "In the open.")
        speaker.connection.note_encrypted(room)
        reply = a_delivery(source, "A secret.", turn=1)
        with pytest.raises(NotSent):
            await speaker.deliver(reply)
        content = {"algorithm": "m.megolm.v1.aes-sha2"}
        await person.set_state(room, "m.room.encryption", content)
        await until(lambda: speaker.connection.nio.rooms[room].encrypted)
        await until(lambda: person.is_encrypted(room))
        await speaker.deliver(reply)
        found = await person.wait_for_text(bot, "A secret.")
        assert len(person.from_sender(bot)) == 1
        assert found.edits >= 1

        def as_the_server_has_it() -> dict[str, Any]:
            path = f"/_matrix/client/v3/rooms/{room}/messages?dir=b&limit=100"
            return synapse.call("GET", path, token=person.account.token)

        seen = await asyncio.to_thread(as_the_server_has_it)
        assert "In the open." in str(seen)
        assert "secret" not in str(seen)


async def test_faults_of_the_homeserver_are_told_apart(synapse: Synapse, tmp_path: Path) -> None:
    async with talking(synapse, tmp_path) as (speaker, _person, room):
        await speaker.connection.call("POST", f"/v3/rooms/{room}/leave", {})
        with pytest.raises(Unreachable):
            await speaker.deliver(a_delivery(a_source(room), "Hello?", turn=1))
        for status, wanted in ((0, NotSent), (502, NotSent), (429, NotSent), (404, Unreachable)):
            fault = MatrixFault("x", status=status, after=7 if status == 429 else None)
            outcome = speaker.outgoing._outcome(fault, attempts=9)
            assert isinstance(outcome, wanted)
            if isinstance(outcome, NotSent):
                assert outcome.after is not None
                assert 0 < outcome.after <= 30
