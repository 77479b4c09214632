"""Programs that ask the near gateway, and a chain of three."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from parley.agent.tools import TOOLS
from parley.profiles import Profile
from parley.protocol import ApprovalAsked, ToolFinished
from tests.gateway.hand_tool import HandTool
from tests.proxy.houses import AskingDesk, Pair, ProxyHouse
from tests.servers.scripted_model import Reply, Usage
from tests.servers.stage import Stage
from tests.waiting import until

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How it is outside.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}
HI: Any = {"role": "user", "content": "hi"}
FORM: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "town",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture
async def client(pair: Pair) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own, at the near gateway."""
    await pair.open()
    async with AsyncOpenAI(
        base_url=f"{pair.near.url}/v1", api_key=pair.near.key, max_retries=0
    ) as made:
        yield made


async def test_a_programs_tools_travel_through_both(
    client: AsyncOpenAI, pair: Pair, stage: Stage
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)), Reply(text="It snows."))
    messages: list[Any] = [{"role": "user", "content": "Oslo?"}]
    asked: dict[str, Any] = {"model": "default", "tools": [WEATHER]}
    first = await client.chat.completions.create(messages=messages, **asked)
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"town": "Oslo"},
    )
    sent = [tool["function"]["name"] for tool in pair.model.requests[-1].json["tools"]]
    assert "weather" in sent
    messages += [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "snow"},
    ]
    second = await client.chat.completions.create(messages=messages, **asked)
    assert second.choices[0].message.content == "It snows."
    roles = [(m["role"], m["content"]) for m in pair.far.asked()]
    assert roles == [("user", "Oslo?"), ("assistant", None), ("tool", "snow")]


async def test_the_form_of_the_answer_and_other_wishes_travel_through_both(
    client: AsyncOpenAI, pair: Pair, stage: Stage
) -> None:
    stage.then(Reply(text='{"name": "Oslo"}', usage=Usage(30, 4, 2)))
    got = await client.chat.completions.create(
        model="default",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo?"}],
        response_format=FORM,
        temperature=0.5,
        max_tokens=50,
    )
    assert got.choices[0].message.content == '{"name": "Oslo"}'
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (30, 4)
    sent = pair.model.requests[-1].json
    assert sent["response_format"] == FORM
    assert sent["temperature"] == 0.5
    assert 50 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    [system] = [m["content"] for m in sent["messages"] if m["role"] == "system"]
    assert system.count("Be brief.") == 1


async def test_an_answer_cut_for_its_length_is_told_through_both(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(Reply(text="and so", finish_reason="length"))
    got = await client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "tell"}]
    )
    assert (got.choices[0].message.content, got.choices[0].finish_reason) == ("and so", "length")


@pytest.mark.parametrize("text", ["and so", ""])
async def test_an_answer_of_a_content_filter_is_told_through_both(
    client: AsyncOpenAI, stage: Stage, text: str
) -> None:
    stage.then(Reply(text=text, finish_reason="content_filter"))
    got = await client.chat.completions.create(model="default", messages=[HI])
    assert got.choices[0].finish_reason == "content_filter"
    assert got.choices[0].message.content == text


async def test_what_the_far_model_thinks_is_told_through_both(
    client: AsyncOpenAI, stage: Stage
) -> None:
    thinks = Reply(text="Yes.", reasoning="Is it so?", chunks=3, usage=Usage(9, 8, 0, 5))
    stage.then(thinks, thinks)
    got: Any = await client.chat.completions.create(model="default", messages=[HI])
    said = got.choices[0].message
    assert (said.content, said.reasoning_content) == ("Yes.", "Is it so?")
    assert got.usage.completion_tokens_details.reasoning_tokens == 5
    stream = await client.chat.completions.create(model="default", messages=[HI], stream=True)
    deltas: list[Any] = [chunk.choices[0].delta async for chunk in stream]
    pieces = [d.reasoning_content for d in deltas if hasattr(d, "reasoning_content")]
    assert "".join(pieces) == "Is it so?"
    assert len(pieces) > 1
    assert "".join(d.content or "" for d in deltas) == "Yes."


@pytest.mark.parametrize("breaks", [False, True], ids=["at once", "after a break"])
async def test_arguments_are_streamed_through_both(
    client: AsyncOpenAI, stage: Stage, breaks: bool
) -> None:
    town = {"town": "Oslo", "days": [1, 2]}
    calls = Reply(tool_calls=(("weather", town),), argument_chunks=4)
    if breaks:
        stage.then(replace(calls, cut_after=3))
    stage.then(calls)
    stream = await client.chat.completions.create(
        model="default", messages=[HI], tools=[WEATHER], stream=True
    )
    pieces, ids = list[str](), list[str]()
    async for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.function is not None
            pieces += [call.function.arguments] if call.function.arguments else []
            ids += [call.id] if call.id else []
    assert "".join(pieces) == json.dumps(town)
    assert len(pieces) > 2
    assert len(ids) == 1


async def test_people_at_the_near_end_never_see_what_the_far_model_thinks(
    pair: Pair, stage: Stage
) -> None:
    desk = await pair.open()
    stage.then(Reply(text="Yes.", reasoning="Is it so?"))
    assert await desk.ask("go") == "Yes."
    assert "Is it so?" not in repr(desk.live)


async def test_a_stream_flows_through_both(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=0.02))
    stream = await client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "count"}], stream=True
    )
    pieces = [c.choices[0].delta.content async for c in stream if c.choices[0].delta.content]
    assert "".join(pieces) == "one two three"
    assert len(pieces) > 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("form", [None, {"type": "json_object"}], ids=["text", "json"])
async def test_a_far_end_that_dies_is_an_error_and_adds_no_text(
    client: AsyncOpenAI, pair: Pair, stage: Stage, stream: bool, form: Any
) -> None:
    whole = '{"town": "Oslo ", "is": "in Norway"}'
    stage.then(Reply(text=whole, chunks=4, chunk_delay=30))
    said = ""
    more = {} if form is None else {"response_format": form}

    async def ask() -> None:
        nonlocal said
        if not stream:
            await client.chat.completions.create(model="default", messages=[HI], **more)
            return
        async with await client.chat.completions.create(
            model="default", messages=[HI], stream=True, **more
        ) as chunks:
            async for chunk in chunks:
                said += chunk.choices[0].delta.content or ""
                assert chunk.choices[0].finish_reason is None

    asked = asyncio.create_task(ask())
    await pair.model.until(lambda model: model.open_streams == 1)
    if stream:
        await until(lambda: said)
    await pair.far.close()
    with pytest.raises(openai.APIError) as caught:
        await asked
    assert caught.value.code in {"upstream_broken", "upstream_overloaded"}
    assert whole.startswith(said)


async def test_a_program_that_leaves_stops_the_far_model(
    client: AsyncOpenAI, pair: Pair, stage: Stage
) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=30))
    stream = await client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "count"}], stream=True
    )
    async for _ in stream:
        break
    await stream.close()
    await pair.model.until(lambda model: model.aborted == 1)


# ── three in a row ──


@pytest.fixture
async def last(pair: Pair, tmp_path: Path) -> AsyncIterator[ProxyHouse]:
    """A house behind whose proxy there is another proxy."""
    made = ProxyHouse(Profile("default", tmp_path / "nearest"), pair.model, pair.near)
    made.desk_type = AskingDesk
    yield made
    await made.close()


async def test_a_chain_of_three_is_one_conversation(
    pair: Pair, last: ProxyHouse, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    await pair.open(agent={"tools": ["hand"]})
    desk = await last.open()
    stage.then(Reply(text="I look.", tool_calls=(("hand", {"word": "a"}),)), Reply(text="Done."))
    assert await desk.ask("do it") == "Done."
    assert [finished.ok for finished in desk.shown(ToolFinished)] == [True]
    assert await desk.ask("two") == "echo: two"
    roles = [m["role"] for m in pair.far.asked()]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    await desk.ask("/undo")
    await desk.ask("three")
    assert pair.far.words() == ["do it", "I look.", "Done.", "three"]
    [system] = [m for m in pair.model.requests[-1].json["messages"] if m["role"] == "system"]
    assert system["content"].count("with Ann") == 1


async def test_a_question_travels_through_the_chain_and_its_answer_back(
    pair: Pair, last: ProxyHouse, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", replace(hand.tool, needs_approval=True))
    await pair.open(agent={"tools": ["hand"]})
    desk = await last.open()
    stage.then(Reply(tool_calls=(("hand", {"word": "a"}),)), Reply(text="Done."))
    await desk.say("do it", event_id="e1")
    await until(lambda: desk.shown(ApprovalAsked))
    assert hand.began == []
    await desk.ask("/approve")
    await until(lambda: desk.answer_to("e1"))
    assert hand.began == ["a"]


async def test_stop_reaches_the_end_of_the_chain(
    pair: Pair, last: ProxyHouse, stage: Stage
) -> None:
    await pair.open()
    desk = await last.open()
    stage.then(Reply(text="a long story", chunks=3, chunk_delay=30))
    await desk.say("tell")
    await until(desk.streamed)
    assert await desk.ask("/stop") == "Stopped."
    await pair.model.until(lambda model: model.aborted == 1)
