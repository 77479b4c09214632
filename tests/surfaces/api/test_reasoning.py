"""What a model thinks reaches the program that asked, apart from the reply, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from parley.agent.tools import TOOLS
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.program import Program
from tests.surfaces.api.served import Served, served_api

THINKS = Reply(text="It is 42.", reasoning="Six times seven, then.", chunks=3)


async def thoughts_of(client: AsyncOpenAI, **more: Any) -> tuple[list[str], list[str]]:
    """Of a streamed completion: the pieces of its thoughts, and those of its text."""
    stream = await client.chat.completions.create(
        model="parley", messages=[user("go")], stream=True, **more
    )
    deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
    thoughts = [thought for d in deltas if (thought := getattr(d, "reasoning_content", None))]
    return thoughts, [d.content for d in deltas if d.content]


async def test_a_whole_completion_has_the_thoughts_beside_the_text(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(THINKS)
    made = await client.chat.completions.create(model="parley", messages=[user("go")])
    said: Any = made.choices[0].message
    assert (said.content, said.reasoning_content) == ("It is 42.", "Six times seven, then.")
    plain = await client.chat.completions.create(model="parley", messages=[user("go")])
    assert not hasattr(plain.choices[0].message, "reasoning_content")


async def test_thoughts_are_streamed_before_the_text(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(THINKS)
    thoughts, text = await thoughts_of(client)
    assert "".join(thoughts) == "Six times seven, then."
    assert "".join(text) == "It is 42."
    assert len(thoughts) > 1


async def test_thoughts_of_a_try_that_broke_are_a_paragraph_of_their_own(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(Reply(text="no", reasoning="Well, it", chunks=2, cut_after=2), THINKS)
    thoughts, text = await thoughts_of(client)
    assert "".join(thoughts) == "Well, it\n\nSix times seven, then."
    assert "".join(text) == "It is 42."


async def test_thoughts_go_neither_into_the_conversation_nor_back_to_the_model(
    served: Served, model: ScriptedModel, stage: Stage
) -> None:
    client = await served.client(**{"X-Parley-Session-Id": "mind"})
    stage.then(THINKS)
    made = await client.chat.completions.create(model="parley", messages=[user("go")])
    again: list[Any] = [user("go"), made.choices[0].message.model_dump(), user("sure?")]
    await client.chat.completions.create(model="parley", messages=again)
    assert b"Six times" not in model.requests[-1].body
    stage.then(THINKS)
    first = await client.responses.create(model="parley", input="go")
    given: list[Any] = [user("go"), *(item.model_dump() for item in first.output), user("sure?")]
    await client.responses.create(model="parley", input=given)
    assert b"Six times" not in model.requests[-1].body
    await client.responses.create(model="parley", input="so?", previous_response_id=first.id)
    assert b"Six times" not in model.requests[-1].body


async def test_people_never_see_thoughts(house: House, stage: Stage) -> None:
    desk = await house.open()
    stage.then(THINKS)
    assert await desk.ask("go") == "It is 42."
    assert "Six times" not in repr(desk.live)


async def test_a_response_has_the_thoughts_as_an_item(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(THINKS)
    made = await client.responses.create(model="parley", input="go")
    thought, message = made.output
    assert thought.type == "reasoning"
    assert thought.content is not None
    assert [part.text for part in thought.content] == ["Six times seven, then."]
    assert message.type == "message"
    assert made.output_text == "It is 42."
    kept = await client.responses.retrieve(made.id)
    assert kept.output == made.output
    events = [e async for e in await client.responses.retrieve(made.id, stream=True)]
    again = [e.text for e in events if e.type == "response.reasoning_text.done"]
    assert again == ["Six times seven, then."]


async def test_a_streamed_response_tells_the_thoughts_as_they_come(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(THINKS)
    async with client.responses.stream(model="parley", input="go") as stream:
        events: list[Any] = [event async for event in stream]
        final: Any = await stream.get_final_response()
    deltas = [e.delta for e in events if e.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == "Six times seven, then."
    assert len(deltas) > 1
    thought, message = final.output
    assert (thought.type, thought.status) == ("reasoning", "completed")
    assert thought.content is not None
    assert thought.content[0].text == "Six times seven, then."
    assert (message.type, final.output_text) == ("message", "It is 42.")
    kinds = [e.type for e in events]
    said = kinds.index("response.output_text.delta")
    assert kinds.index("response.reasoning_text.done") < said
    assert [e.sequence_number for e in events] == list(range(len(events)))


async def test_each_step_has_its_own_thoughts(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    steps = (
        Reply(reasoning="I look.", tool_calls=(("hand", {"word": "a"}),)),
        Reply(reasoning="I see.", text="Done."),
    )
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        client = await served.client()
        stage.then(*steps)
        made: Any = await client.chat.completions.create(model="parley", messages=[user("go")])
        assert made.choices[0].message.reasoning_content == "I look.\n\nI see."
        stage.then(*steps)
        thoughts, _ = await thoughts_of(client)
        assert "".join(thoughts) == "I look.\n\nI see."
        stage.then(*steps)
        async with client.responses.stream(model="parley", input="go") as stream:
            final: Any = await stream.get_final_response()
        assert [item.type for item in final.output] == ["reasoning", "reasoning", "message"]
        assert [item.content[0].text for item in final.output] == ["I look.", "I see.", "Done."]


async def test_a_repeat_with_the_same_key_has_the_thoughts_again(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    once: Any = {"extra_headers": {"Idempotency-Key": "one"}}
    stage.then(THINKS)
    first = await thoughts_of(client, **once)
    again = await thoughts_of(client, **once)
    assert ["".join(each) for each in again] == ["".join(each) for each in first]
    assert "".join(again[0]) == "Six times seven, then."
    assert model.total == 1


async def test_a_response_in_the_background_has_the_thoughts_too(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(THINKS)
    stream = await client.responses.create(model="parley", input="go", background=True, stream=True)
    events: list[Any] = [event async for event in stream]
    deltas = [e.delta for e in events if e.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == "Six times seven, then."
    made = await client.responses.retrieve(events[0].response.id)
    assert [item.type for item in made.output] == ["reasoning", "message"]


async def test_a_run_tells_the_thoughts(program: Program, stage: Stage) -> None:
    stage.then(THINKS)
    run = await program.start("go")
    log = await program.log(run["id"])
    thoughts = [told.data["delta"] for told in log if told.name == "reasoning.delta"]
    assert "".join(thoughts) == "Six times seven, then."
    ended = await program.run(run["id"])
    assert ended["output"] == "It is 42."
