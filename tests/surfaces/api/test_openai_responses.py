"""Responses, with OpenAI's own client: asked for, gone on from, and forgotten."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage
from tests.surfaces.api.served import Served, a_key

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    "strict": False,
}


async def ask(client: AsyncOpenAI, text: str, **more: Any) -> Response:
    made: Response = await client.responses.create(model="default", input=text, **more)
    return made


# ── one response ──


async def test_a_response_is_given_and_kept(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="Hello.", usage=Usage(11, 5, 2)))
    got = await ask(client, "hi", metadata={"for": "test"}, instructions="Be brief.")
    assert got.id.startswith("resp_")
    assert (got.status, got.output_text, got.model) == ("completed", "Hello.", "default")
    assert got.usage is not None
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.total_tokens) == (11, 5, 16)
    assert got.usage.input_tokens_details.cached_tokens == 2
    assert (got.metadata, got.instructions) == ({"for": "test"}, "Be brief.")
    assert await client.responses.retrieve(got.id) == got


async def events_of(client: AsyncOpenAI, **asked: Any) -> list[ResponseStreamEvent]:
    async with await client.responses.create(model="default", stream=True, **asked) as stream:
        return [event async for event in stream]


async def test_a_response_is_streamed_event_by_event(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=0.02))
    events = await events_of(client, input="hi")
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed"
    assert text == last.response.output_text == "one two three"
    assert last.response.usage is not None
    assert await client.responses.retrieve(last.response.id) == last.response


async def test_the_clients_own_stream_helper_reads_it(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text="Noon.", chunks=2))
    async with client.responses.stream(model="default", input="hi") as stream:
        final = await stream.get_final_response()
    assert final.status == "completed"
    assert final.output_text.endswith("Noon.")


async def test_a_deleted_response_is_gone(client: AsyncOpenAI) -> None:
    got = await ask(client, "hi")
    await client.responses.delete(got.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(got.id)
    with pytest.raises(openai.NotFoundError) as caught:
        await ask(client, "more", previous_response_id=got.id)
    assert caught.value.param == "previous_response_id"


async def test_a_response_is_its_own_keys_alone(served: Served, house: House) -> None:
    ann = await served.client(a_key(house.profile, "ann"))
    ben = await served.client(a_key(house.profile, "ben"))
    got = await ask(ann, "my secret")
    for attempt in (
        ben.responses.retrieve(got.id),
        ben.responses.delete(got.id),
        ask(ben, "and?", previous_response_id=got.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert (await ann.responses.retrieve(got.id)).id == got.id


async def test_a_response_is_still_there_after_a_restart(served: Served, house: House) -> None:
    client = await served.client()
    first = await ask(client, "one")
    await served.restart()
    assert (await client.responses.retrieve(first.id)) == first
    await ask(client, "two", previous_response_id=first.id)
    assert house.words() == ["one", "echo: one", "two"]


# ── going on ──


async def test_a_conversation_goes_on_from_its_last_response(
    client: AsyncOpenAI, house: House
) -> None:
    first = await ask(client, "one")
    second = await ask(client, "two", previous_response_id=first.id)
    await ask(client, "three", previous_response_id=second.id)
    assert house.words() == ["one", "echo: one", "two", "echo: two", "three"]


async def test_an_earlier_response_is_where_another_branch_begins(
    client: AsyncOpenAI, house: House
) -> None:
    first = await ask(client, "one")
    second = await ask(client, "two", previous_response_id=first.id)
    branch = await ask(client, "two b", previous_response_id=first.id)
    assert house.words() == ["one", "echo: one", "two b"]
    await ask(client, "three b", previous_response_id=branch.id)
    assert house.words() == ["one", "echo: one", "two b", "echo: two b", "three b"]
    await ask(client, "three", previous_response_id=second.id)
    assert house.words() == ["one", "echo: one", "two", "echo: two", "three"]


async def test_two_at_once_go_on_from_one_response_without_hearing_each_other(
    client: AsyncOpenAI, house: House, model: ScriptedModel
) -> None:
    first = await ask(client, "one")
    got = await asyncio.gather(
        *(ask(client, f"[[delay 0.05]] {n}", previous_response_id=first.id) for n in range(4))
    )
    assert {each.output_text for each in got} == {f"echo: [[delay 0.05]] {n}" for n in range(4)}
    asked = [house.words(number) for number in range(1, 5)]
    assert sorted(asked) == [["one", "echo: one", f"[[delay 0.05]] {n}"] for n in range(4)]
    assert model.total == 5


async def test_instructions_are_for_one_response_only(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    first = await ask(client, "one", instructions="Speak like a pirate.")
    assert "pirate" in model.requests[-1].body.decode()
    await ask(client, "two", previous_response_id=first.id)
    assert "pirate" not in model.requests[-1].body.decode()


async def test_items_of_a_conversation_may_be_given_instead(
    client: AsyncOpenAI, house: House
) -> None:
    items: Any = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ]
    await client.responses.create(model="default", input=items)
    assert house.words() == ["one", "first", "two"]


# ── what is not to be stored ──


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_is_not_to_be_stored_leaves_nothing(
    served: Served, client: AsyncOpenAI, stream: bool
) -> None:
    kept = await ask(client, "kept")
    if stream:
        last = (await events_of(client, input="secret", store=False))[-1]
        assert last.type == "response.completed"
        got = last.response
    else:
        got = await ask(client, "secret", store=False)
    assert got.output_text == "echo: secret"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(got.id)
    with pytest.raises(openai.NotFoundError):
        await ask(client, "more", previous_response_id=got.id)
    await until_only_the_kept_is_left(served)
    assert (await client.responses.retrieve(kept.id)).id == kept.id


async def test_what_is_not_to_be_stored_leaves_nothing_when_it_fails(
    served: Served, client: AsyncOpenAI, stage: Stage
) -> None:
    await ask(client, "kept")
    stage.then(Reply(status=401, body="{}"))
    with pytest.raises(openai.InternalServerError):
        await ask(client, "secret", store=False)
    await until_only_the_kept_is_left(served)


async def test_what_is_not_to_be_stored_leaves_nothing_when_its_client_leaves(
    served: Served, client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    await ask(client, "kept")
    stage.then(Reply(text="never whole", chunks=2, chunk_delay=30))
    asking = asyncio.create_task(ask(client, "secret", store=False))
    await model.until(lambda seen: seen.open_streams == 1)
    asking.cancel()
    await model.until(lambda seen: seen.aborted == 1)
    await until_only_the_kept_is_left(served)


async def until_only_the_kept_is_left(served: Served) -> None:
    async with asyncio.timeout(60):
        while [one for one in await served.transcripts() if one] != [await served.transcript(0)]:
            await asyncio.sleep(0.005)
    assert [one.text for one in await served.transcript(0)] == ["kept", "echo: kept"]


# ── functions, and the form of the answer ──


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_function_of_the_client_is_called_and_its_output_answered(
    client: AsyncOpenAI, stage: Stage, house: House, stream: bool
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)))
    if stream:
        events = await events_of(client, input="rain?", tools=[WEATHER])
        last = events[-1]
        assert last.type == "response.completed"
        got = last.response
        done = [e for e in events if e.type == "response.function_call_arguments.done"]
        assert [json.loads(event.arguments) for event in done] == [{"town": "Oslo"}]
    else:
        got = await ask(client, "rain?", tools=[WEATHER])
    [call] = [item for item in got.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"town": "Oslo"})
    stage.then(Reply(text="It rains."))
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    got = await client.responses.create(
        model="default", input=output, previous_response_id=got.id, tools=[WEATHER]
    )
    assert got.output_text == "It rains."
    asked = house.asked()
    assert [message["role"] for message in asked] == ["user", "assistant", "tool"]
    assert asked[1]["tool_calls"][0]["id"] == asked[2]["tool_call_id"] == call.call_id


async def test_a_branch_may_begin_at_a_call(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)))
    got = await ask(client, "rain?", tools=[WEATHER])
    [call] = [item for item in got.output if item.type == "function_call"]
    for weather in ("rain", "sun"):
        output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": weather}]
        await client.responses.create(
            model="default", input=output, previous_response_id=got.id, tools=[WEATHER]
        )
        assert [message["content"] for message in house.asked()][2:] == [weather]


class Town(BaseModel):
    name: str


async def test_the_form_of_the_answer_reaches_the_provider(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text='{"name": "Oslo"}'))
    got = await client.responses.parse(model="default", input="where?", text_format=Town)
    assert got.output_parsed == Town(name="Oslo")
    sent = model.requests[-1].json["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["schema"]["properties"].keys() == {"name"}


async def test_an_answer_that_was_cut_for_its_length_is_incomplete(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(Reply(text="and so", finish_reason="length"))
    got = await ask(client, "tell")
    assert got.status == "incomplete"
    assert got.incomplete_details is not None
    assert got.incomplete_details.reason == "max_output_tokens"
    assert (await client.responses.retrieve(got.id)).status == "incomplete"


async def test_the_session_of_a_response_is_told_and_can_be_gone_on_with(
    served: Served, client: AsyncOpenAI, house: House
) -> None:
    raw = await client.responses.with_raw_response.create(model="default", input="one")
    session = raw.headers["X-Parley-Session-Id"]
    other = await served.client(**{"X-Parley-Session-Id": session})
    await ask(other, "two")
    assert house.words() == ["one", "echo: one", "two"]
