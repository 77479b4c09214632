"""Changes of a conversation beside responses that are added to it: nothing of them is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.gateway.house import House
from tests.surfaces.api.served import Served
from tests.surfaces.api.test_conversations import ask, item, texts


async def test_a_response_before_leads_away_from_its_conversation(
    client: AsyncOpenAI, house: House
) -> None:
    made = await client.conversations.create()
    got = await ask(client, "one", made.id)
    aside = await client.responses.create(
        model="default", input="aside", previous_response_id=got.id
    )
    assert house.words() == ["one", "echo: one", "aside"]
    assert await texts(client, made.id) == ["one", "echo: one"]
    await ask(client, "two", made.id)
    assert house.words() == ["one", "echo: one", "two"]
    await client.responses.create(model="default", input="more", previous_response_id=aside.id)
    assert house.words() == ["one", "echo: one", "aside", "echo: aside", "more"]


async def test_what_is_answered_while_items_are_taken_out_is_remembered(
    served: Served, client: AsyncOpenAI, house: House
) -> None:
    made = await client.conversations.create(items=[item(f"note {n}") for n in range(20)])
    listed: Any = await client.conversations.items.list(made.id, limit=100)
    notes = [each.id for each in listed.data]

    async def take_out() -> None:
        for id in notes:
            while True:
                try:
                    await client.conversations.items.delete(id, conversation_id=made.id)
                    break
                except openai.ConflictError:
                    await asyncio.sleep(0)

    async def talk() -> None:
        for n in range(20):
            await ask(client, f"word {n}", made.id, store=False)

    await asyncio.gather(take_out(), talk())
    kept = await texts(client, made.id)
    await ask(client, "last", made.id)
    assert house.words() == [*kept, "last"]
    assert [each for each in kept if each.startswith("word")] == [f"word {n}" for n in range(20)]


@pytest.mark.parametrize("background", [False, True], ids=["waits", "background"])
async def test_an_item_that_is_named_again_is_another_one_there(
    client: AsyncOpenAI, house: House, background: bool
) -> None:
    made = await client.conversations.create(items=[item("note")])
    [note] = (await client.conversations.items.list(made.id)).data
    id: str = getattr(note, "id", "")
    named: Any = [{"type": "item_reference", "id": id}, item("two")]
    got = await ask(client, named, made.id, background=background)
    while got.status in {"queued", "in_progress"}:
        got = await client.responses.retrieve(got.id)
    listed: list[Any] = []
    async for each in client.conversations.items.list(made.id, order="asc", limit=1):
        listed.append(each)
        assert len(listed) <= 4  # a page that begins behind an item of this id has an end
    assert [each.content[0].text for each in listed][:3] == ["note", "note", "two"]
    assert len({each.id for each in listed}) == 4
    await client.conversations.items.delete(id, conversation_id=made.id)
    assert (await texts(client, made.id))[:2] == ["note", "two"]
    await ask(client, "three", made.id)
    assert house.words()[:2] == ["note", "two"]
