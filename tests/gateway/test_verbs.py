"""`/word` and `!word`: told from other text, the same everywhere, written as people there do."""

from __future__ import annotations

import re

import pytest

from parley.gateway.commands import COMMANDS, looks_like_command
from tests.gateway.chat_rooms import RoomServer, open_roomy
from tests.gateway.house import House
from tests.servers.scripted_model import ScriptedModel

VERBS = (
    *("start", "new", "chats", "chat", "rename", "archive", "unarchive", "settings", "skills"),
    *("connectors", "soul", "safety", "status", "yes", "no", "help", "reset"),
    *("memory", "forget", "compact"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_command_with_either_sign(verb: str) -> None:
    for text in (f"!{verb}", f"/{verb}", f"  !{verb.upper()} C1 tea\n"):
        assert looks_like_command(text)


@pytest.mark.parametrize(
    "text",
    [
        "!!!",
        "!",
        "! new",
        "!important note",
        "!newish",
        "!nwish",
        "!new.",
        "wow!new",
        "!42",
        "!=",
        "",
    ],
)
def test_an_exclamation_is_not_a_command(text: str) -> None:
    assert not looks_like_command(text)


async def test_what_is_only_an_exclamation_reaches_the_model(house: House) -> None:
    desk = await house.open()
    assert await desk.ask("!important note") == "echo: !important note"


async def test_help_is_in_groups_and_in_the_sign_of_the_surface(
    house: House, model: ScriptedModel
) -> None:
    desk = await house.open()
    listed = await desk.ask("!help")
    assert await desk.ask("/help") == listed
    assert re.findall(r"^- `/(\w+)", listed, re.MULTILINE) == list(COMMANDS)
    assert re.findall(r"^\*\*(.+)\*\*$", listed, re.MULTILINE)[0] == "Chats"
    await house.close()
    there = await open_roomy(house, RoomServer())
    listed = await there.hear("ann", "/help")
    assert re.findall(r"^- `!(\w+)", listed, re.MULTILINE) == list(COMMANDS)
    assert "Did you mean `!stop`?" in await there.hear("ann", "/stpo")
    assert model.total == 0


# ── chats where there are no rooms ──


async def test_chats_are_the_sessions_of_a_conversation(house: House) -> None:
    desk = await house.open()
    await desk.ask("the first")
    await desk.ask("!new Pears")
    await desk.ask("the second")
    listed = await desk.ask("!chats")
    assert listed.splitlines()[:2] == ["- **C1**", "- **C2** · Pears ← here"]
    assert await desk.ask("!rename C1 Apples") == "C1 is now **Apples**."
    assert await desk.ask("/chat c1") == "Back in **C1** Apples."
    await desk.ask("and now?")
    assert house.words() == ["the first", "echo: the first", "and now?"]
    assert await desk.ask("!rename Quinces") == "C1 is now **Quinces**."
    assert (await house.session()).title == "Quinces"
    await desk.ask("/title Plums")
    assert "- **C1** · Plums ← here" in await desk.ask("!chats")
    assert "There is no such chat here" in await desk.ask("!chat C9")
    assert "There is no such chat here" in await desk.ask("!chat C2", chat="two")


async def test_an_archived_session_is_left_out_until_it_is_opened_again(house: House) -> None:
    desk = await house.open()
    await desk.ask("!title Apples")
    await desk.ask("about apples")
    said = await desk.ask("!archive")
    assert said == (
        "**C1** Apples is archived; `/unarchive C1` opens it again. A new conversation begins here."
    )
    await desk.ask("hello")
    assert house.words() == ["hello"]
    assert "Apples" not in await desk.ask("!chats")
    assert "- **C1** · Apples · archived" in await desk.ask("!chats all")
    assert "is archived" in await desk.ask("!chat C1")
    await house.close()
    desk = await house.open()
    assert "Apples" not in await desk.ask("!chats")
    assert "`/chat C1`" in await desk.ask("!unarchive C1")
    await desk.ask("!chat C1")
    await desk.ask("what about?")
    assert house.words() == ["about apples", "echo: about apples", "what about?"]
    assert "Which one?" in await desk.ask("!unarchive")


async def test_start_greets_where_there_are_no_rooms(house: House) -> None:
    desk = await house.open()
    assert (await desk.ask("/start")).startswith("Hello, Ann! I am Parley")
    await desk.ask("!soul name Max")
    assert "I am Max," in await desk.ask("!start")


async def test_a_reset_and_every_trigger_begin_afresh_in_place(house: House) -> None:
    server = RoomServer()
    house.settings["sessions"] = {"reset_triggers": ["/new", "fresh start", "/stop"]}
    desk = await open_roomy(house, server)
    for said in ("!reset", "Fresh START", "/stop"):
        await desk.hear("ann", "words")
        assert (await desk.hear("ann", said)).startswith("A new conversation.")
        await desk.hear("ann", "next")
        assert house.words() == ["next"]
    assert server.made == {}
    await desk.hear("ann", "/new")
    assert list(server.made) == [("desk:ann", 1)]
