"""Responses in the background, with OpenAI's own client: polled, followed, cancelled, resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response, ResponseStreamEvent

from tests.gateway.house import House
from tests.servers.api_server import local_key
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER
from tests.surfaces.api.served import Served, a_key

TOOL: Any = {"type": "function", "strict": False, **WEATHER["function"]}
HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)


async def begin(client: AsyncOpenAI, text: Any = "hi", **more: Any) -> Response:
    made: Response = await client.responses.create(
        model="default", input=text, background=True, **more
    )
    return made


async def over(client: AsyncOpenAI, id: str) -> Response:
    async with asyncio.timeout(60):
        while True:
            found = await client.responses.retrieve(id)
            if found.status not in {"queued", "in_progress"}:
                return found
            await asyncio.sleep(0.02)


async def events_of(client: AsyncOpenAI, id: str, **more: Any) -> list[ResponseStreamEvent]:
    async with await client.responses.retrieve(id, stream=True, **more) as stream:
        return [event async for event in stream]


async def first_text(client: AsyncOpenAI, id: str) -> list[ResponseStreamEvent]:
    """Follow it until there is text."""
    seen = []
    async with await client.responses.retrieve(id, stream=True) as stream:
        async for event in stream:
            seen.append(event)
            if event.type == "response.output_text.delta":
                break
    return seen


async def test_it_is_given_at_once_and_answered_by_itself(
    client: AsyncOpenAI, house: House
) -> None:
    begun = await begin(client, "hello", metadata={"for": "test"})
    assert begun.status in {"queued", "in_progress"}
    assert (begun.background, begun.output) == (True, [])
    done = await over(client, begun.id)
    assert (done.status, done.output_text, done.metadata) == (
        "completed",
        "echo: hello",
        {"for": "test"},
    )
    assert done.usage is not None
    [given] = (await client.responses.input_items.list(done.id)).data
    assert given.type == "message"
    again = await client.responses.create(
        model="default", input="and?", previous_response_id=done.id
    )
    assert again.status == "completed"
    assert house.words() == ["hello", "echo: hello", "and?"]


async def test_what_it_was_given_is_listed_while_it_runs(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(HANGS)
    begun = await begin(client, "hello")
    before = (await client.responses.input_items.list(begun.id)).data
    await client.responses.cancel(begun.id)
    assert (await client.responses.input_items.list(begun.id)).data == before


async def test_it_is_followed_as_it_is_made_and_from_any_event(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text="one two", chunks=2))
    begun = await begin(client)
    live = await events_of(client, begun.id)
    assert [event.sequence_number for event in live] == list(range(len(live)))
    assert live[0].type == "response.created"
    last = live[-1]
    assert last.type == "response.completed"
    assert last.response == await client.responses.retrieve(begun.id)
    assert [item.type for item in last.response.output] == ["message", "message"]
    assert last.response.output_text == "I look.one two"
    assert await events_of(client, begun.id) == live
    for after in (0, 3, len(live) - 2):
        assert await events_of(client, begun.id, starting_after=after) == live[after + 1 :]
    assert await events_of(client, begun.id, starting_after=len(live)) == []


async def test_it_may_be_followed_from_the_start(client: AsyncOpenAI) -> None:
    stream: Any = await client.responses.create(
        model="default", input="hello", background=True, stream=True
    )
    async with stream:
        events = [event async for event in stream]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "echo: hello"
    assert await events_of(client, events[-1].response.id) == events


async def test_its_calls_come_back_to_the_client(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"}))))
    begun = await begin(client, "both?", tools=[TOOL])
    done = await over(client, begun.id)
    assert [item.type for item in done.output] == ["function_call", "function_call"]
    results: Any = [
        {"type": "function_call_output", "call_id": getattr(item, "call_id", ""), "output": "rain"}
        for item in done.output
    ]
    again = await begin(client, results, tools=[TOOL], previous_response_id=done.id)
    assert (await over(client, again.id)).status == "completed"


async def test_a_client_that_leaves_does_not_stop_it(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two three four", chunks=4, chunk_delay=0.1))
    begun = await begin(client)
    await first_text(client, begun.id)
    assert (await over(client, begun.id)).output_text == "one two three four"
    assert model.total == 1


async def test_a_failure_is_kept(client: AsyncOpenAI) -> None:
    begun = await begin(client, "[[status 401]]")
    done = await over(client, begun.id)
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.message
    events = await events_of(client, begun.id)
    assert events[-1].type == "response.failed"
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="default", input="and?", previous_response_id=done.id)
    assert caught.value.param == "previous_response_id"


# ── cancelled ──


async def test_it_is_cancelled_down_to_the_model(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    begun = await begin(client)
    await first_text(client, begun.id)
    stopped = await client.responses.cancel(begun.id)
    assert stopped.status == "cancelled"
    await model.until(lambda m: m.open_streams == 0)
    assert await client.responses.cancel(begun.id) == stopped, "twice is the same"
    assert await client.responses.retrieve(begun.id) == stopped
    assert (await events_of(client, begun.id))[-1].type == "response.failed"


async def test_what_is_over_stays_as_it_ended(client: AsyncOpenAI) -> None:
    done = await over(client, (await begin(client)).id)
    assert await client.responses.cancel(done.id) == done


async def test_only_what_is_in_the_background_is_cancelled(client: AsyncOpenAI) -> None:
    got = await client.responses.create(model="default", input="hi")
    with pytest.raises(openai.BadRequestError):
        await client.responses.cancel(got.id)


async def test_one_that_is_deleted_is_stopped(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(HANGS)
    begun = await begin(client)
    await first_text(client, begun.id)
    await client.responses.delete(begun.id)
    await model.until(lambda m: m.open_streams == 0)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(begun.id)


async def test_it_is_its_own_keys_alone(served: Served, house: House, stage: Stage) -> None:
    ann = await served.client(a_key(house.profile, "ann"))
    ben = await served.client(a_key(house.profile, "ben"))
    stage.then(HANGS)
    begun = await begin(ann, "my secret")
    for attempt in (
        ben.responses.retrieve(begun.id),
        ben.responses.retrieve(begun.id, stream=True),
        ben.responses.cancel(begun.id),
        ben.responses.input_items.list(begun.id),
        ben.responses.delete(begun.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert (await ann.responses.cancel(begun.id)).status == "cancelled"


async def test_what_is_not_stored_cannot_be_in_the_background(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await begin(client, store=False)
    assert caught.value.param == "background"


async def test_one_that_runs_cannot_be_gone_on_from(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(HANGS)
    begun = await begin(client)
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model="default", input="and?", previous_response_id=begun.id)
    await client.responses.cancel(begun.id)


async def test_the_same_key_gives_the_same_response(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await begin(client, "hello", extra_headers=key)
    second = await begin(client, "hello", extra_headers=key)
    assert second.id == first.id
    done = await over(client, first.id)
    assert await begin(client, "hello", extra_headers=key) == done
    assert model.total == 1
    with pytest.raises(openai.ConflictError):
        await begin(client, "another", extra_headers=key)


# ── after a restart ──


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_it_goes_on_after_a_restart(
    served: Served, stage: Stage, house: House, how: str
) -> None:
    stage.then(HANGS, Reply(text="quite another answer", chunks=3))
    begun = await begin(await served.client())
    seen = await first_text(await served.client(), begun.id)
    if how == "stop":
        await served.restart()
    else:
        await served.crash()
        await served.open()
    client = await served.client()
    done = await over(client, begun.id)
    assert (done.status, done.output_text) == ("completed", "quite another answer")
    events = await events_of(client, begun.id)
    assert events[: len(seen)] == seen, "what was seen stays as it was"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response == done
    after = seen[-1].sequence_number
    assert await events_of(client, begun.id, starting_after=after) == events[after + 1 :]
    items = [item.id for item in done.output]
    named: Any = [{"type": "item_reference", "id": items[-1]}, {"role": "user", "content": "x"}]
    await client.responses.create(model="default", input=named)
    assert house.words() == ["quite another answer", "x"]


@pytest.mark.timeout(240)  # a busy machine is slow to start a process four times
async def test_every_one_is_answered_once_though_the_gateway_is_killed(tmp_path: Path) -> None:
    with ModelProcess() as model, GatewayProcess(tmp_path) as gateway:
        port = free_port()
        profile = write_config(tmp_path, model_url=model.base_url, gateway={"port": port})
        gateway.start()
        await gateway.until_ready()
        made = AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=local_key(profile))
        async with made as client:
            talk = await client.conversations.create()
            texts = [f"[[chunks 10]][[pace 0.1]] {number}" for number in range(3)]
            begun = [await begin(client, text, conversation=talk.id) for text in texts]
            seen = await first_text(client, begun[0].id)
            for _ in range(3):
                gateway.kill()
                gateway.start()
                await gateway.until_ready()
            done = [await over(client, each.id) for each in begun]
            assert [each.output_text for each in done] == [f"echo: {text}" for text in texts]
            events = await events_of(client, begun[0].id)
            assert events[: len(seen)] == seen
            items: list[Any] = [
                each async for each in client.conversations.items.list(talk.id, order="asc")
            ]
            said = [text for item in items for part in item.content if (text := part.text)]
            assert said == [text for each in texts for text in (each, f"echo: {each}")]
