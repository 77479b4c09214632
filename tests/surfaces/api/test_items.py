"""Items of responses, one by one, with OpenAI's own client: listed, named again, streamed again."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseInputMessageItem

from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER, user
from tests.surfaces.api.served import Served, a_key

TOOL: Any = {"type": "function", "strict": False, **WEATHER["function"]}


def reference(id: str) -> Any:
    return {"type": "item_reference", "id": id}


# ── what a response was given ──


async def test_what_a_response_was_given_is_listed(client: AsyncOpenAI, served: Served) -> None:
    items: Any = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "eins"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ]
    got = await client.responses.create(model="default", input=items)
    listed = await client.responses.input_items.list(got.id, order="asc")
    assert [item.type for item in listed.data] == ["message"] * 4
    given: list[Any] = list(listed.data)
    texts = [part.text for item in given for part in item.content]
    assert texts == ["Be brief.", "one", "eins", "two"]
    assert [item.role for item in given] == ["developer", "user", "assistant", "user"]
    assert len({item.id for item in given}) == 4
    await served.restart()
    again = await client.responses.input_items.list(got.id, order="asc")
    assert again.data == listed.data, "their ids stay"


async def test_a_plain_text_is_one_item(client: AsyncOpenAI) -> None:
    got = await client.responses.create(model="default", input="hi")
    [item] = (await client.responses.input_items.list(got.id)).data
    assert isinstance(item, ResponseInputMessageItem)
    assert (item.role, item.content[0].type) == ("user", "input_text")


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_the_list_comes_in_pages(client: AsyncOpenAI, order: Any) -> None:
    items: Any = [user(f"{number}") for number in range(25)]
    got = await client.responses.create(model="default", input=items)
    first = await client.responses.input_items.list(got.id, order=order)
    assert (len(first.data), first.has_more) == (20, True)
    texts: list[str] = []
    async for item in client.responses.input_items.list(got.id, order=order, limit=7):
        whole: Any = item
        texts.append(whole.content[0].text)
    expected = [f"{number}" for number in range(25)]
    assert texts == (expected if order == "asc" else expected[::-1])


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up"])
async def test_a_page_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    client = await served.client()
    got = await client.responses.create(model="default", input="hi")
    assert (await served.get(f"/v1/responses/{got.id}/input_items?{query}")).status == 400


async def test_the_item_after_which_a_page_begins_must_be_in_the_list(client: AsyncOpenAI) -> None:
    got = await client.responses.create(model="default", input="hi")
    other = await client.responses.create(model="default", input="ho")
    [item] = (await client.responses.input_items.list(other.id)).data
    with pytest.raises(openai.NotFoundError):
        await client.responses.input_items.list(got.id, after=item.id or "")


# ── items that are only named ──


async def test_an_item_that_is_named_stands_for_itself(client: AsyncOpenAI, house: House) -> None:
    first = await client.responses.create(model="default", input="one")
    [given] = (await client.responses.input_items.list(first.id)).data
    items: Any = [reference(given.id or ""), reference(first.output[0].id or ""), user("two")]
    second = await client.responses.create(model="default", input=items)
    assert house.words() == ["one", "echo: one", "two"]
    listed = await client.responses.input_items.list(second.id, order="asc")
    assert [item.id for item in listed.data][:2] == [given.id, first.output[0].id]


async def test_a_reference_without_a_type_is_one_too(client: AsyncOpenAI, house: House) -> None:
    first = await client.responses.create(model="default", input="one")
    items: Any = [user("one"), {"id": first.output[0].id}, user("two")]
    await client.responses.create(model="default", input=items)
    assert house.words() == ["one", "echo: one", "two"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_call_may_be_named_beside_its_result(
    client: AsyncOpenAI, stage: Stage, house: House, stream: bool
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"}))))
    if stream:
        async with client.responses.stream(model="default", input="both?", tools=[TOOL]) as got:
            first: Any = await got.get_final_response()
    else:
        first = await client.responses.create(model="default", input="both?", tools=[TOOL])
    calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    items: Any = [user("both?")]
    for call in calls:
        items += [
            reference(call.id or ""),
            {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
        ]
    await client.responses.create(model="default", input=items, tools=[TOOL])
    asked = house.asked()
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "assistant", "tool"]
    made = [call["function"]["arguments"] for m in asked for call in m.get("tool_calls", ())]
    assert len(made) == 2


async def test_a_run_takes_references_too(served: Served, house: House) -> None:
    client = await served.client()
    first = await client.responses.create(model="default", input="one")
    body = {"input": [user("one"), reference(first.output[0].id or ""), user("two")]}
    assert (await served.post("/v1/runs", body)).status == 202
    await house.model.until(lambda m: m.total == 2)
    assert house.words() == ["one", "echo: one", "two"]


async def test_what_was_not_stored_cannot_be_named(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="default", input="one", store=False)
    items: Any = [reference(first.output[0].id or ""), user("two")]
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="default", input=items)
    assert (caught.value.param, caught.value.code) == ("input[0].id", "item_not_found")


async def test_items_go_with_their_response(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="default", input="one")
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.input_items.list(first.id)
    items: Any = [reference(first.output[0].id or ""), user("two")]
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="default", input=items)


async def test_items_are_their_own_keys_alone(served: Served, house: House) -> None:
    ann = await served.client(a_key(house.profile, "ann"))
    ben = await served.client(a_key(house.profile, "ben"))
    got = await ann.responses.create(model="default", input="my secret")
    named: Any = [reference(got.output[0].id or ""), user("and?")]
    for attempt in (
        ben.responses.input_items.list(got.id),
        ben.responses.create(model="default", input=named),
        ben.responses.retrieve(got.id, stream=True),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert house.model.total == 1


async def test_an_id_that_a_client_makes_up_names_nothing_of_others(
    served: Served, house: House
) -> None:
    """Two keys may use the same id; each gets its own item."""
    ann = await served.client(a_key(house.profile, "ann"))
    ben = await served.client(a_key(house.profile, "ben"))
    for client, text in ((ann, "ann's"), (ben, "ben's")):
        items: Any = [{"id": "msg_1", "type": "message", "role": "user", "content": text}]
        await client.responses.create(model="default", input=items)
    for client, text in ((ann, "ann's"), (ben, "ben's")):
        named: Any = [reference("msg_1")]
        await client.responses.create(model="default", input=named)
        assert house.words() == [text]


# ── streamed once more ──


async def test_a_stored_response_is_streamed_once_more(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="one two three", chunks=3))
    got = await client.responses.create(model="default", input="hi")
    async with await client.responses.retrieve(got.id, stream=True) as stream:
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response == got
    after = events[3].sequence_number
    again = await client.responses.retrieve(got.id, stream=True, starting_after=after)
    async with again as rest:
        assert [event async for event in rest] == events[4:]


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=-1"])
async def test_a_stream_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    client = await served.client()
    got = await client.responses.create(model="default", input="hi")
    assert (await served.get(f"/v1/responses/{got.id}?{query}")).status == 400
