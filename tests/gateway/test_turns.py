"""A message's way: admitted, answered, streamed, stored, delivered."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from parley.gateway.access import Refused
from parley.gateway.live import TurnEnded, TurnStarted
from parley.protocol import (
    Attachment,
    InboundMessage,
    SessionSource,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tests.gateway.desk import Desk, at
from tests.gateway.house import House
from tests.pdfs import pdf_of
from tests.servers.scripted_model import ScriptedModel
from tests.waiting import until


async def test_a_message_is_answered(house: House) -> None:
    desk = await house.open()
    receipt = await desk.say("hello", event_id="e1")
    await until(lambda: desk.sent)
    assert receipt.state == "queued"
    [reply] = desk.sent
    assert (reply.text, reply.kind, reply.answers) == ("echo: hello", "reply", ("e1",))
    assert reply.source.chat_id == "one"


async def test_words_are_shown_before_the_answer_is_whole(house: House) -> None:
    desk = await house.open()
    await desk.say("[[chunks 2]] [[pace 0.4]] a longish sentence")
    await until(desk.streamed)
    assert not desk.sent
    assert len(desk.streamed()) < len("echo: [[chunks 2]] [[pace 0.4]] a longish sentence")
    await until(lambda: desk.sent)
    assert desk.streamed() == desk.sent[0].text
    kinds = [type(event.event) for event in desk.live]
    assert kinds[0] is TurnStarted
    assert kinds.count(TextDelta) == 2
    await until(lambda: [ended.stopped for ended in desk.shown(TurnEnded)] == [False])


async def test_live_events_are_numbered_and_bound_to_their_turn(house: House) -> None:
    desk = await house.open()
    await desk.ask("[[tool now {}]] what time is it?")
    await until(lambda: desk.shown(TurnEnded))
    numbers = [event.number for event in desk.live]
    assert numbers == sorted(set(numbers))
    assert {(event.source.chat_id, event.turn) for event in desk.live} == {("one", 1)}
    assert [event.call.name for event in desk.shown(ToolStarted)] == ["now"]
    assert [event.ok for event in desk.shown(ToolFinished)] == [True]


async def test_a_pdf_reaches_the_model_as_text_or_with_the_reason_why_not(
    house: House, tmp_path: Path
) -> None:
    desk = await house.open()
    for name, data in (("a.pdf", pdf_of("The word is heron.")), ("b.pdf", pdf_of(""))):
        (tmp_path / name).write_bytes(data)
        file = Attachment(name, "application/pdf", str(tmp_path / name), len(data))
        await desk.admit(InboundMessage(at("one"), "Read.", name, attachments=(file,)))
        await until(partial(desk.answer_to, name))
    read, _, unread = house.words()
    assert "The word is heron." in read
    assert "b.pdf, application/pdf" in unread
    assert "not read: it has no text" in unread


async def test_the_transcript_keeps_every_step(house: House) -> None:
    desk = await house.open()
    await desk.ask("[[tool now {}]] time?")
    roles = [message.role for message in await house.transcript()]
    assert roles == ["user", "assistant", "tool", "assistant"]
    _, call, result, answer = await house.transcript()
    assert call.tool_calls[0].id == result.tool_call_id
    assert answer.text == f"tool said: {result.text}"


async def test_every_model_call_is_counted_in_the_ledger_and_the_session(house: House) -> None:
    desk = await house.open()
    await desk.ask("[[tool now {}]] time?")
    await desk.ask("thanks")
    session = await house.session()
    assert (session.turns, session.input_tokens, session.output_tokens) == (2, 21, 9)
    with sqlite3.connect(house.profile.database_file) as db:
        rows = db.execute(
            "SELECT session, turn, provider, model, input_tokens, output_tokens FROM usage"
        ).fetchall()
    assert [row[1] for row in rows] == [1, 1, 2]
    assert {row[0] for row in rows} == {session.id}
    assert {row[2:] for row in rows} == {("scripted", "scripted", 7, 3)}


async def test_the_same_event_is_answered_once(house: House) -> None:
    desk = await house.open()
    first = await desk.say("hello", event_id="e1")
    await until(lambda: desk.sent)
    again = await desk.say("hello", event_id="e1")
    assert (first.state, again.state) == ("queued", "duplicate")
    assert again.inbox_id == first.inbox_id
    await desk.ask("and this?")
    assert desk.texts() == ["echo: hello", "echo: and this?"]
    assert [text for role, text in await house.said() if role == "user"] == ["hello", "and this?"]


async def test_the_same_event_twice_at_once_is_answered_once(house: House) -> None:
    desk = await house.open()
    receipts = await asyncio.gather(*(desk.say("hello", event_id="e1") for _ in range(5)))
    assert sorted(r.state for r in receipts) == ["duplicate"] * 4 + ["queued"]
    await until(lambda: desk.sent)
    await desk.ask("bye")
    assert desk.texts() == ["echo: hello", "echo: bye"]


async def test_a_command_sent_twice_is_answered_once(house: House) -> None:
    desk = await house.open()
    await desk.say("/title Tea", event_id="e1")
    await desk.say("/title Tea", event_id="e1")
    await desk.ask("/title")
    assert len(desk.sent) == 2


async def test_the_same_id_on_another_account_is_another_event(house: House) -> None:
    house.more_surfaces = others = [Desk(account) for account in ("work", "work:e", "home")]
    desks = [await house.open(), *others]
    for desk in desks:
        assert (await desk.say("hello", event_id="e1")).state == "queued"
    # All of them are one conversation, and each message is answered by the account it came in by.
    await until(lambda: sum(len(reply.answers) for desk in desks for reply in desk.sent) == 4)


async def test_conversations_never_see_each_others_words(house: House) -> None:
    desk = await house.open()
    chats = [f"chat{n}" for n in range(8)]
    for round_ in ("first", "second", "third"):
        await asyncio.gather(*(desk.ask(f"{round_} of {chat}", chat=chat) for chat in chats))
    for request in house.model.requests:
        words = request.body.decode()
        assert sum(f"of {chat}" in words for chat in chats) == 1
    for chat in chats:
        assert desk.texts(chat) == [f"echo: {r} of {chat}" for r in ("first", "second", "third")]
        said = await house.said(chat)
        assert len(said) == 6
        assert all(chat in text for _, text in said)


async def test_conversations_run_side_by_side(house: House, model: ScriptedModel) -> None:
    desk = await house.open()
    await asyncio.gather(*(desk.ask("[[delay 0.2]]", chat=f"chat{n}") for n in range(20)))
    assert model.max_open_streams == 20


async def test_no_more_turns_run_than_may(house: House, model: ScriptedModel) -> None:
    desk = await house.open(gateway={"running_turns": 2})
    await asyncio.gather(*(desk.ask("[[delay 0.02]]", chat=f"chat{n}") for n in range(8)))
    assert model.max_open_streams == 2


async def test_a_surface_speaks_for_its_own_account_only(house: House) -> None:
    desk = await house.open()
    source = SessionSource("pigeon", "one", user_id="eve", account="loft", profile="coder")
    await desk.admit(InboundMessage(source, "hello", "e1"))
    await until(lambda: desk.sent)
    bound = desk.sent[0].source
    assert (bound.platform, bound.account, bound.profile) == ("desk", None, "default")


@pytest.mark.parametrize(
    "source", [SessionSource("desk"), SessionSource("desk", "", "group", user_id="ann")]
)
async def test_a_message_that_names_no_conversation_is_refused(
    house: House, model: ScriptedModel, source: SessionSource
) -> None:
    desk = await house.open()
    with pytest.raises(Refused, match="neither a chat nor a sender"):
        await desk.admit(InboundMessage(source, "hello", "e1"))
    assert model.total == 0
    assert house.store is not None
    assert await house.store.sessions() == []


async def test_a_surface_that_does_not_vouch_is_refused(house: House, model: ScriptedModel) -> None:
    class Counter(Desk):
        vouches = False

    house.desk_type = Counter
    desk = await house.open()
    with pytest.raises(Refused):
        await desk.say("hello")
    with pytest.raises(Refused):
        await desk.say("/status")
    assert model.total == 0
    assert not desk.sent


async def test_a_fault_of_the_provider_is_one_sentence(house: House) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]})
    await desk.say("[[status 401]]")
    await until(lambda: desk.sent)
    [reply] = desk.sent
    assert reply.kind == "error"
    assert "key" in reply.text
    assert "\n" not in reply.text
    assert [m.note for m in await house.transcript()] == [None, "failed"]
    assert await desk.ask("and now?") == "echo: [[status 401]] | and now?"


async def test_a_provider_that_is_not_set_up_is_said_and_the_gateway_lives(house: House) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]}, model={"provider": "openai"})
    assert "OPENAI_API_KEY" in await desk.ask("hello")
    assert "OPENAI_API_KEY" in await desk.ask("/status")
