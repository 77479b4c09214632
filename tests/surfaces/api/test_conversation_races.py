"""Changes of a conversation beside responses that are added to it: nothing of them is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
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
