"""Slash commands, as a person types them."""

from __future__ import annotations

import re

import pytest

from parley.gateway.commands import COMMANDS, looks_like_command
from parley.protocol import InboundMessage
from parley.sessions.key import build_session_key
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)


@pytest.mark.parametrize(
    "text", ["/help", "/stop all", " /new ", "/NEW", "/resume 2", "/title a\nb", "/nonsense"]
)
def test_a_slash_and_a_word_is_a_command(text: str) -> None:
    assert looks_like_command(text)


@pytest.mark.parametrize(
    "text", ["/etc/hosts", "/etc/hosts is what?", "/", "//", "/ help", "a /help", "/42", "/new."]
)
def test_a_path_is_not_a_command(text: str) -> None:
    assert not looks_like_command(text)


async def test_a_path_reaches_the_model(house: House) -> None:
    desk = await house.open()
    assert await desk.ask("/etc/hosts") == "echo: /etc/hosts"


async def test_help_lists_every_command(house: House, model: ScriptedModel) -> None:
    desk = await house.open()
    listed = await desk.ask("/help")
    assert re.findall(r"^- `/(\w+)", listed, re.MULTILINE) == list(COMMANDS)
    assert model.total == 0


async def test_an_unknown_command_names_the_nearest(house: House, model: ScriptedModel) -> None:
    desk = await house.open()
    assert "Did you mean `/stop`?" in await desk.ask("/stpo")
    nothing_near = await desk.ask("/zzzzzz now")
    assert nothing_near == "There is no command `/zzzzzz`. `/help` lists them."
    assert model.total == 0


async def test_commands_do_not_enter_the_transcript(house: House) -> None:
    desk = await house.open()
    await desk.ask("/help")
    await desk.ask("hello")
    await desk.ask("/status")
    await desk.ask("again")
    assert house.words() == ["hello", "echo: hello", "again"]


async def test_new_starts_afresh_and_keeps_the_old_session(house: House) -> None:
    desk = await house.open()
    await desk.ask("hello")
    old = await house.session()
    assert "**Tea**" in await desk.ask("/new Tea")
    new = await house.session()
    assert (new.title, new.turns) == ("Tea", 0)
    assert new.id != old.id
    await desk.ask("who am I?")
    assert house.words() == ["who am I?"]
    assert house.store is not None
    assert [e.message.text for e in await house.store.transcript(old.id)] == [
        "hello",
        "echo: hello",
    ]


async def test_a_message_that_waits_when_new_is_said_is_answered_in_the_new_session(
    house: House, stage: Stage
) -> None:
    desk = await house.open(gateway={"busy": "queue"})
    stage.then(HANGS)
    await desk.say("old")
    await until(desk.streamed)
    await desk.say("waiting", event_id="w")
    await desk.ask("/new")
    await until(lambda: desk.answer_to("w"))
    assert house.words() == ["waiting"]


@pytest.mark.parametrize("how", ["number", "id", "prefix", "title", "TITLE"])
async def test_resume_goes_back(house: House, how: str) -> None:
    desk = await house.open()
    await desk.ask("/title Apples")
    await desk.ask("about apples")
    old = await house.session()
    await desk.ask("/new Pears")
    await desk.ask("about pears")
    wanted = {"number": "2", "id": old.id, "prefix": old.id[:8]}.get(how, "Apples")
    wanted = wanted.upper() if how == "TITLE" else wanted
    assert await desk.ask(f"/resume {wanted}") == f"Back in **Apples** (`{old.id}`)."
    await desk.ask("and now?")
    assert house.words() == ["about apples", "echo: about apples", "and now?"]


async def test_resume_never_reaches_another_conversations_session(house: House) -> None:
    desk = await house.open()
    await desk.ask("/title Secret", chat="two")
    await desk.ask("my secret is 42", chat="two")
    other = await house.session("two")
    for wanted in (other.id, other.id[:6], "Secret", "2"):
        assert "There is no one conversation" in await desk.ask(f"/resume {wanted}")
    await desk.ask("what is the secret?")
    assert "42" not in "".join(house.words())
    assert (await house.session("two")).id == other.id


async def test_resume_without_a_word_asks_which(house: House) -> None:
    desk = await house.open()
    assert "Which one?" in await desk.ask("/resume")


async def test_sessions_lists_this_conversations_sessions_only(house: House) -> None:
    desk = await house.open()
    await desk.ask("hello", chat="two")
    await desk.ask("hello")
    first = await house.session()
    await desk.ask("/new Second one")
    listed = (await desk.ask("/sessions")).splitlines()
    assert listed[0].startswith("1. **Second one**")
    assert listed[0].endswith("← here")
    assert f"2. `{first.id}` · 1 turn " in listed[1]
    assert listed[2] == ""


async def test_undo_takes_back_the_question_and_its_answer(house: House) -> None:
    desk = await house.open()
    await desk.ask("keep this")
    await desk.ask("[[tool now {}]] forget this")
    assert await desk.ask("/undo") == "Taken back: “[[tool now {}]] forget this”"
    await desk.ask("go on")
    assert house.words() == ["keep this", "echo: keep this", "go on"]
    await desk.ask("/undo")
    await desk.ask("/undo")
    assert await desk.ask("/undo") == "There is nothing to undo."


async def test_undo_while_running_takes_back_the_running_turn(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    await desk.ask("keep this")
    stage.then(HANGS)
    await desk.say("not this")
    await until(lambda: "one" in desk.streamed())
    assert await desk.ask("/undo") == "Taken back: “not this”"
    await model.until(lambda m: m.aborted == 1)
    await desk.ask("go on")
    assert house.words() == ["keep this", "echo: keep this", "go on"]


async def test_retry_asks_the_same_again(house: House, stage: Stage) -> None:
    desk = await house.open()
    await desk.ask("before")
    stage.then(Reply(text="a poor answer"))
    await desk.say("the question", event_id="q")
    await until(lambda: desk.answer_to("q"))
    assert await desk.ask("/retry") == "Trying again."
    await until(lambda: desk.texts()[-1] == "echo: the question")
    assert house.words() == ["before", "echo: before", "the question"]
    assert (await house.said())[-2:] == [
        ("user", "the question"),
        ("assistant", "echo: the question"),
    ]


async def test_retry_while_running_stops_and_starts_again(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    stage.then(HANGS)
    await desk.say("the question")
    await until(desk.streamed)
    assert await desk.ask("/retry") == "Trying again."
    await until(lambda: "echo: the question" in desk.texts())
    await model.until(lambda m: m.aborted == 1)
    assert house.words() == ["the question"]
    assert await house.said() == [("user", "the question"), ("assistant", "echo: the question")]


async def test_retry_of_a_failed_turn_answers_it(house: House, stage: Stage) -> None:
    desk = await house.open()
    stage.then(Reply(status=400, body='{"error": {"message": "no"}}'))
    await desk.say("the question")
    await until(lambda: desk.sent)
    assert desk.sent[0].kind == "error"
    await desk.ask("/retry")
    await until(lambda: desk.texts()[-1] == "echo: the question")


async def test_retry_with_nothing_to_try_says_so(house: House) -> None:
    desk = await house.open()
    assert await desk.ask("/retry") == "There is nothing to try again."


async def test_title_names_and_tells(house: House) -> None:
    desk = await house.open()
    assert await desk.ask("/title") == "It has no title."
    assert await desk.ask("/title  Tea and cake ") == "This conversation is now **Tea and cake**."
    assert await desk.ask("/title") == "This conversation is called **Tea and cake**."
    assert "at most 120" in await desk.ask("/title " + "x" * 121)
    assert (await house.session()).title == "Tea and cake"


async def test_usage_counts_this_conversation(house: House) -> None:
    desk = await house.open()
    await desk.ask("hello", chat="two")
    await desk.ask("hello")
    await desk.ask("again")
    assert await desk.ask("/usage") == "This conversation: 14 tokens in, 6 out, 2 turns."


async def test_status_tells_what_is_going_on(house: House, stage: Stage) -> None:
    desk = await house.open()
    stage.then(HANGS)
    await desk.say("hello")
    await until(desk.streamed)
    told = await desk.ask("/status")
    assert "scripted · scripted" in told
    assert "one running" in told
    assert "1 running, 0 waiting" in told


async def test_model_tells_and_chooses_for_this_conversation_only(house: House) -> None:
    desk = await house.open(
        providers={
            "scripted": house.settings["providers"]["scripted"],
            "other": {"base_url": house.model.base_url, "model": "bigger"},
        }
    )
    told = await desk.ask("/model")
    assert "scripted · scripted" in told
    assert "`other`" in told
    assert await desk.ask("/model other") == (
        "From now on this conversation is answered by other · bigger."
    )
    await desk.ask("hello")
    assert house.model.requests[-1].json["model"] == "bigger"
    await desk.ask("hello", chat="two")
    assert house.model.requests[-1].json["model"] == "scripted"
    assert "scripted · tiny" in await desk.ask("/model scripted tiny")
    await desk.ask("hello")
    assert house.model.requests[-1].json["model"] == "tiny"
    assert "scripted · scripted" in await desk.ask("/model default")
    await desk.ask("hello")
    assert house.model.requests[-1].json["model"] == "scripted"


@pytest.mark.parametrize("name", ["x.gguf", "/tmp/x", "~/x.gguf", "../x"])
async def test_only_an_owner_chooses_a_file_of_this_machine(house: House, name: str) -> None:
    desk = await house.open()
    told = await desk.ask(f"/model local {name}")
    assert told == "Only an owner can choose a file of this machine."
    assert await desk.ask("hello") == "echo: hello"
    await house.close()
    desk = await house.open(access={"owners": ["desk:ann"]})
    assert "local" in await desk.ask(f"/model local {name}")


async def test_an_unknown_provider_is_named_and_nothing_changes(house: House) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]})
    assert await desk.ask("/model scriptd") == (
        "There is no provider named scriptd: did you mean scripted?"
    )
    assert await desk.ask("hello") == "echo: hello"


async def test_a_provider_without_its_key_is_not_chosen(house: House) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]})
    assert "OPENAI_API_KEY" in await desk.ask("/model openai")
    assert (await house.session()).provider is None


async def test_a_command_accepted_before_a_crash_is_answered_once(house: House) -> None:
    desk = await house.open()
    await desk.ask("hello")
    assert house.store is not None
    await house.store.submit(
        build_session_key(at("one")),
        "desk::c1",
        InboundMessage(at("one"), "/title Found", "c1"),
        kind="command",
    )
    await house.crash()
    desk = await house.open()
    await until(lambda: desk.answer_to("c1"))
    assert desk.texts() == ["This conversation is now **Found**."]
    assert (await house.session()).title == "Found"
    await house.crash()
    desk = await house.open()
    assert await desk.ask("/title") == "This conversation is called **Found**."
    assert len(desk.sent) == 1


async def test_a_chat_of_long_ago_can_be_named_archived_opened_and_gone_back_to(
    house: House,
) -> None:
    desk = await house.open()
    await desk.ask("the word is plum")
    for number in range(25):
        await desk.ask(f"/new Chat {number}")
    listed = (await desk.ask("/chats")).splitlines()
    assert listed[0] == "- 6 older ones, from **C1** on"
    assert len([line for line in listed if line.startswith("- **C")]) == 20
    assert "- **C1**" in await desk.ask("/chats all")
    assert await desk.ask("/rename C1 Plums") == "C1 is now **Plums**."
    assert "**C1** Plums is archived" in await desk.ask("/archive C1")
    assert "C1 is archived" in await desk.ask("/chat C1")
    assert "- **C1** · Plums · archived" in await desk.ask("/chats all")
    assert "**C1** Plums is open again" in await desk.ask("/unarchive C1")
    assert await desk.ask("/chat C1") == "Back in **C1** Plums."
    await desk.ask("which word?")
    assert house.words() == ["the word is plum", "echo: the word is plum", "which word?"]


async def test_a_chat_of_long_ago_that_was_never_listed_has_a_number_too(house: House) -> None:
    desk = await house.open()
    for number in range(25):
        await desk.ask(f"/new Chat {number}")
    assert await desk.ask("/rename C2 Second") == "C2 is now **Second**."
    assert "- **C2** · Second" in await desk.ask("/chats all")


@pytest.mark.parametrize("how", ["number", "id", "title"])
async def test_resume_does_not_enter_an_archived_chat(house: House, how: str) -> None:
    desk = await house.open()
    await desk.ask("/title Apples")
    await desk.ask("about apples")
    old = await house.session()
    await desk.ask("/archive")
    await desk.ask("about pears")
    wanted = {"number": "2", "id": old.id, "title": "Apples"}[how]
    assert await desk.ask(f"/resume {wanted}") == (
        "C1 is archived; `/unarchive C1` opens it again."
    )
    assert (await desk.ask("/sessions")).count("archived") == 1
    assert (await house.session()).id != old.id
    await desk.ask("/unarchive C1")
    assert await desk.ask(f"/resume {wanted}") == f"Back in **Apples** (`{old.id}`)."
