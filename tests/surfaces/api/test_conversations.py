"""Conversations that programs make, with OpenAI's own client."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.served import Served, a_key

HANGS = Reply(text="one two three four", chunks=4, chunk_delay=30)


def assistant(text: str) -> Any:
    return {"type": "message", "role": "assistant", "content": text}


def item(text: str, role: str = "user") -> Any:
    return {"type": "message", "role": role, "content": text}


async def texts(client: AsyncOpenAI, id: str) -> list[str]:
    listed = client.conversations.items.list(id, order="asc")
    found: list[Any] = [each async for each in listed]
    return [part.text for each in found for part in each.content]


async def ask(client: AsyncOpenAI, text: Any, id: str, **more: Any) -> Any:
    return await client.responses.create(model="default", input=text, conversation=id, **more)


async def test_a_conversation_is_made_noted_and_forgotten(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(metadata={"topic": "demo"})
    assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
    assert await client.conversations.retrieve(made.id) == made
    changed = await client.conversations.update(made.id, metadata={"topic": "other"})
    assert changed.metadata == {"topic": "other"}
    assert await client.conversations.retrieve(made.id) == changed
    gone = await client.conversations.delete(made.id)
    assert (gone.id, gone.deleted, gone.object) == (made.id, True, "conversation.deleted")
    for attempt in (
        client.conversations.retrieve(made.id),
        client.conversations.delete(made.id),
        ask(client, "hi", made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_responses_are_added_to_it(
    served: Served, house: House, client: AsyncOpenAI, stream: bool
) -> None:
    made = await client.conversations.create(items=[item("before"), assistant("yes")])
    for text in ("one", "two"):
        if stream:
            opened = client.responses.stream(model="default", input=text, conversation=made.id)
            async with opened as events:
                got: Any = await events.get_final_response()
        else:
            got = await ask(client, text, made.id)
        assert got.conversation is not None
        assert got.conversation.id == made.id
    said = ["before", "yes", "one", "echo: one", "two"]
    assert house.words() == said
    assert await texts(client, made.id) == [*said, "echo: two"]
    await served.restart()
    await ask(client, "three", made.id)
    assert house.words() == [*said, "echo: two", "three"]


async def test_items_are_added_shown_and_taken_out(client: AsyncOpenAI, house: House) -> None:
    made = await client.conversations.create()
    await ask(client, "one", made.id)
    added = await client.conversations.items.create(made.id, items=[item("note"), item("more")])
    assert [each.type for each in added.data] == ["message", "message"]
    await ask(client, "two", made.id)
    assert house.words() == ["one", "echo: one", "note", "more", "two"]
    note: Any = added.data[0]
    shown: Any = await client.conversations.items.retrieve(note.id, conversation_id=made.id)
    assert shown == note
    await client.conversations.items.delete(note.id, conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(note.id, conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.delete(note.id, conversation_id=made.id)
    await ask(client, "three", made.id)
    left = ["one", "echo: one", "more", "two", "echo: note | more | two", "three"]
    assert house.words() == left
    assert (await texts(client, made.id))[:-1] == left


async def test_what_a_response_said_may_be_taken_out(client: AsyncOpenAI, house: House) -> None:
    made = await client.conversations.create()
    got = await ask(client, "one", made.id)
    await client.conversations.items.delete(got.output[0].id, conversation_id=made.id)
    await ask(client, "two", made.id)
    assert "echo: one" not in house.words()
    assert (await client.responses.retrieve(got.id)).output_text == "echo: one"


async def test_items_that_instruct_count_for_every_response(
    client: AsyncOpenAI, model: ScriptedModel, house: House
) -> None:
    made = await client.conversations.create(items=[item("Speak like a pirate.", "system")])
    for text in ("one", "two"):
        got = await ask(client, text, made.id)
        assert "pirate" in model.requests[-1].body.decode()
        assert got.instructions is None
    assert house.words() == ["one", "echo: one", "two"]


async def test_the_items_come_in_pages(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[item(str(n)) for n in range(20)])
    await client.conversations.items.create(made.id, items=[item(str(n)) for n in range(20, 25)])
    first = await client.conversations.items.list(made.id)
    assert (len(first.data), first.has_more) == (20, True)
    assert await texts(client, made.id) == [str(n) for n in range(25)]


async def test_no_more_than_twenty_items_at_once(client: AsyncOpenAI) -> None:
    many = [item(str(n)) for n in range(21)]
    with pytest.raises(openai.BadRequestError):
        await client.conversations.create(items=many)
    made = await client.conversations.create()
    with pytest.raises(openai.BadRequestError):
        await client.conversations.items.create(made.id, items=many)


async def test_either_a_conversation_or_a_response_before(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    got = await ask(client, "one", made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, "two", made.id, previous_response_id=got.id)
    assert caught.value.param == "conversation"


async def test_a_response_that_is_not_stored_is_in_the_conversation_all_the_same(
    client: AsyncOpenAI, house: House
) -> None:
    made = await client.conversations.create()
    got = await ask(client, "one", made.id, store=False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(got.id)
    assert await texts(client, made.id) == ["one", "echo: one"]
    await ask(client, "two", made.id)
    assert house.words() == ["one", "echo: one", "two"]


async def test_a_deleted_response_leaves_its_conversation_whole(
    client: AsyncOpenAI, house: House
) -> None:
    made = await client.conversations.create()
    got = await ask(client, "one", made.id)
    await client.responses.delete(got.id)
    assert await texts(client, made.id) == ["one", "echo: one"]
    await ask(client, "two", made.id)
    assert house.words() == ["one", "echo: one", "two"]


async def test_a_response_in_the_background_is_added_when_it_is_over(
    client: AsyncOpenAI, house: House
) -> None:
    made = await client.conversations.create()
    begun = await ask(client, "one", made.id, background=True)
    async with await client.responses.retrieve(begun.id, stream=True) as stream:
        assert [event.type async for event in stream][-1] == "response.completed"
    assert await texts(client, made.id) == ["one", "echo: one"]


async def test_a_conversation_is_not_changed_under_a_running_turn(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    made = await client.conversations.create(items=[item("note")])
    [note] = (await client.conversations.items.list(made.id)).data
    stage.then(HANGS)
    begun = await ask(client, "one", made.id, background=True)
    await model.until(lambda m: m.open_streams == 1)
    for attempt in (
        client.conversations.delete(made.id),
        client.conversations.items.delete(getattr(note, "id", ""), conversation_id=made.id),
    ):
        with pytest.raises(openai.ConflictError):
            await attempt
    await client.responses.cancel(begun.id)
    await client.conversations.delete(made.id)


async def test_deleting_it_forgets_all_that_was_said_in_it(
    client: AsyncOpenAI, served: Served
) -> None:
    made = await client.conversations.create(items=[item("secret")])
    got = await ask(client, "one", made.id)
    await client.conversations.delete(made.id)
    assert [each for each in await served.transcripts() if each] == []
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(got.id)


async def test_it_is_its_own_keys_alone(served: Served, house: House) -> None:
    ann = await served.client(a_key(house.profile, "ann"))
    ben = await served.client(a_key(house.profile, "ben"))
    made = await ann.conversations.create(items=[item("my secret")])
    [mine] = (await ann.conversations.items.list(made.id)).data
    id: str = getattr(mine, "id", "")
    for attempt in (
        ben.conversations.retrieve(made.id),
        ben.conversations.update(made.id, metadata={}),
        ben.conversations.delete(made.id),
        ben.conversations.items.list(made.id),
        ben.conversations.items.create(made.id, items=[item("x")]),
        ben.conversations.items.retrieve(id, conversation_id=made.id),
        ben.conversations.items.delete(id, conversation_id=made.id),
        ask(ben, "and?", made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt
    assert house.model.total == 0
    assert await texts(ann, made.id) == ["my secret"]


async def test_the_same_key_makes_one_conversation(client: AsyncOpenAI) -> None:
    key = {"Idempotency-Key": "k1"}
    first = await client.conversations.create(metadata={"a": "b"}, extra_headers=key)
    assert await client.conversations.create(metadata={"a": "b"}, extra_headers=key) == first
    with pytest.raises(openai.ConflictError):
        await client.conversations.create(metadata={"a": "c"}, extra_headers=key)
    more = {"Idempotency-Key": "k2"}
    for _ in range(2):
        await client.conversations.items.create(first.id, items=[item("x")], extra_headers=more)
    assert await texts(client, first.id) == ["x"]
