"""An agent that asks first: a thumb below the question is the person's word."""

from __future__ import annotations

import pytest

from parley.agent.tools import TOOLS
from tests.agent.shown_text import page_text, read_arguments
from tests.gateway.asking_tool import AskingTool
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls
from tests.servers.scripted_model import Reply
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Message, Person
from tests.waiting import until


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch, house: House, scenes: Scenes) -> AskingTool:
    tool = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", tool.tool)
    house.settings["agent"] = {"tools": ["deed"]}
    for word in ("first", "second", "third", "fourth"):
        asks, ends = calls(("deed", {"word": word})), Reply(text=f"the {word} is settled")
        scenes.when(word, asks, ends)
    return tool


async def question(person: Person, agent: Agent, word: str) -> Message:
    """The question about this deed, with the answers to tap on below it."""
    asked = await person.wait_for_message(
        lambda each: each.sender == agent.user_id and f'"{word}"' in each.text
    )
    offered = {(agent.user_id, key, asked.event_id) for key in ("👍", "👎")}
    await until(lambda: offered <= set(person.reactions))
    return asked


async def settled(person: Person, agent: Agent, word: str) -> None:
    await person.wait_for_text(agent.user_id, f"the {word} is settled")


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_thumbs_and_words_answer_a_question(
    synapse: Synapse, house: House, deed: AskingTool, encrypted: bool
) -> None:
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted)
        await alice.send(room, "the first")
        asked = await question(alice, agent, "first")
        assert (asked.kind, deed.done) == ("m.text", [])
        await alice.react(room, asked.event_id, "👍")
        await settled(alice, agent, "first")
        assert [each["word"] for each in deed.done] == ["first"]

        await alice.send(room, "the second")
        asked = await question(alice, agent, "second")
        await alice.react(room, asked.event_id, "👎🏽")
        await settled(alice, agent, "second")
        assert len(deed.done) == 1

        await alice.send(room, "the third")
        await question(alice, agent, "third")
        await alice.send(room, "!yes")
        await settled(alice, agent, "third")
        assert [each["word"] for each in deed.done] == ["first", "third"]

        await alice.send(room, "the fourth")
        await question(alice, agent, "fourth")
        await alice.send(room, "!no")
        await settled(alice, agent, "fourth")
        assert len(deed.done) == 2


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_the_text_and_the_html_of_a_question_read_back_to_what_is_done(
    synapse: Synapse, house: House, scenes: Scenes, deed: AskingTool, encrypted: bool
) -> None:
    word = "a\nb\\n\u202e\u200b  `c` <b>⟨ e\u0301 " + "x" * 100
    scenes.when("odd one", calls(("deed", {"word": word})), Reply(text="it is settled"))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice, encrypted=encrypted)
        await alice.send(room, "the odd one")
        asked = await alice.wait_for_message(
            lambda each: each.sender == agent.user_id and each.text.startswith("May I ")
        )
        assert read_arguments(asked.text) == {"word": word}
        assert asked.html is not None
        assert read_arguments(page_text(asked.html)) == {"word": word}
        await alice.react(room, asked.event_id, "👍")
        await alice.wait_for_text(agent.user_id, "it is settled")
        assert [each["word"] for each in deed.done] == [word]


async def test_nobody_elses_thumb_counts(synapse: Synapse, house: House, deed: AskingTool) -> None:
    async with (
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Bob") as bob,
        Person.on(synapse, name="Eve") as eve,
        an_agent(synapse, house, allow=[alice.user_id, bob.user_id]) as agent,
    ):
        others = (bob, eve)
        room = await alice.create_room(invite=[agent.user_id, *(each.user_id for each in others)])
        for each in others:
            await each.wait_for_invite()
            await each.join(room)
        await alice.wait_for_member(room, agent.user_id)
        await alice.send(room, "the first", mentions=[agent.user_id])
        asked = await question(alice, agent, "first")
        for each in others:
            await each.react(room, asked.event_id, "👍")
        await alice.react(room, asked.event_id, "🎉")
        await alice.send(room, "!status", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "one running", room_id=room)
        assert deed.done == []
        await alice.react(room, asked.event_id, "👍")
        await settled(alice, agent, "first")
        assert len(deed.done) == 1
