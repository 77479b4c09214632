"""How answers look on Matrix while they are made and when they are done."""

from __future__ import annotations

import re

from tests.gateway.house import House
from tests.gateway.workshop import Scenes, let_go, run, waiting
from tests.servers.scripted_model import Reply
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import Agent, an_agent, meet
from tests.surfaces.matrix.person import Message, Person
from tests.waiting import until

MARKDOWN = (
    "# A title\n\nSome **bold** words, `code`, and [a link](https://example.org/a).\n\n"
    "- one\n- two\n\n<script>alert(1)</script><img src=x onerror=alert(2)>\n\n"
    "[bad](javascript:alert(3))\n\nThe end of it."
)


def replies(person: Person, agent: Agent, room: str) -> list[Message]:
    """What the agent said there, apart from notices."""
    return [each for each in person.from_sender(agent.user_id, room) if each.kind == "m.text"]


async def whole(person: Person, agent: Agent, text: str, room: str) -> Message:
    """The reply that says just this."""
    return await person.wait_for_message(
        lambda each: each in replies(person, agent, room) and each.text == text
    )


async def test_an_answer_is_one_message_that_grows_and_ends_as_sanitised_html(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("tell me", Reply(text=MARKDOWN, chunks=12, chunk_delay=0.1))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        asked = await alice.send(room, "tell me")
        answer = await whole(alice, agent, MARKDOWN, room)
        assert len(replies(alice, agent, room)) == 1
        assert len(answer.texts) >= 3
        assert all(text.endswith("…") for text in answer.texts[:-1])
        words = [text.removesuffix("…").rstrip() for text in answer.texts]
        assert all(MARKDOWN.startswith(each) for each in words)
        sizes = [len(each) for each in words]
        assert sizes == sorted(sizes)
        html = answer.html or ""
        assert "<h1>A title</h1>" in html
        assert "<strong>bold</strong>" in html
        assert "<li>one</li>" in html
        assert 'href="https://example.org/a"' in html
        for bad in ("<script", "<img", '="javascript:'):
            assert bad not in html
        # Seen while it was made.
        assert (room, agent.user_id) in alice.typed
        await until(lambda: alice.receipts.get((room, agent.user_id)) == asked)
        await until(lambda: not alice.typing.get(room))


async def test_what_the_agent_does_is_shown_while_it_does_it(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    scenes.when("work", run(waiting("go", "echo done")), Reply(text="It is done."))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "work")
        running = await alice.wait_for_text(agent.user_id, "*terminal…*", room_id=room)
        let_go(house, "go")
        answer = await whole(alice, agent, "It is done.", room)
        assert answer is running
        assert len(replies(alice, agent, room)) == 1


async def test_a_long_answer_comes_in_parts_that_keep_their_code_together(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    code = [f"    line_{number} = {'x' * 60}" for number in range(900)]
    text = "Here it is:\n\n```python\n" + "\n".join(code) + "\n```\n\nThat was all."
    scenes.when("long", Reply(text=text, chunks=8, chunk_delay=0.03))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "long")
        await alice.wait_for_text(agent.user_id, "That was all.", room_id=room)
        parts = replies(alice, agent, room)
        await until(lambda: not any(each.text.endswith("…") for each in parts))
        assert len(parts) > 2
        for part in parts:
            assert part.text.count("```") % 2 == 0
            assert "<pre><code" in (part.html or "")
        found = re.findall(r"line_(\d+) = x{60}$", "\n".join(p.text for p in parts), re.MULTILINE)
        assert found == [str(number) for number in range(900)]


async def test_a_turn_that_fails_or_is_stopped_says_so(
    synapse: Synapse, house: House, scenes: Scenes
) -> None:
    words = "One sentence. " + "and so on " * 200
    scenes.when("fail", Reply(status=400, body='{"error": {"message": "no such thing"}}'))
    scenes.when("for ever", Reply(text=words, chunks=400, chunk_delay=0.05))
    async with an_agent(synapse, house) as agent, Person.on(synapse, name="Alice") as alice:
        room = await meet(agent, alice)
        await alice.send(room, "fail")
        failed = await alice.wait_for_text(agent.user_id, "cannot answer right now", room_id=room)
        assert "no such thing" not in failed.text  # Alice is a guest

        await alice.send(room, "for ever")
        running = await alice.wait_for_text(agent.user_id, "One sentence.", room_id=room)
        await until(lambda: (room, agent.user_id) in alice.typed)
        await alice.send(room, "!stop")
        await alice.wait_for_text(agent.user_id, "Stopped.", room_id=room)
        await until(lambda: running.text.endswith("— stopped"))
        assert words.startswith(running.text.removesuffix("— stopped").rstrip())
        await alice.send(room, "are you there?")
        await whole(alice, agent, "heard: are you there?", room)
        assert running.text.endswith("— stopped")
        await until(lambda: not alice.typing.get(room))
