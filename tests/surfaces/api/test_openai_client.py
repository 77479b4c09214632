"""OpenAI's own client, unmodified, against the API: chat completions."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import BaseModel

from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage
from tests.surfaces.api.asking import say, user
from tests.surfaces.api.served import Served

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


# ── an answer, whole and in chunks ──


async def test_a_question_is_answered(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="Hello, Ann.", usage=Usage(11, 5, 2)))
    got = await client.chat.completions.create(model="default", messages=[user("hi")])
    assert got.id.startswith("chatcmpl")
    assert got.object == "chat.completion"
    assert got.model == "default"
    [choice] = got.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello, Ann.")
    assert choice.finish_reason == "stop"
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (11, 5)
    assert got.usage.total_tokens == 16
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 2


@pytest.mark.parametrize("name", ["default", "parley", "hermes-agent", ""])
async def test_a_client_that_must_name_some_model_is_answered(
    client: AsyncOpenAI, name: str
) -> None:
    got = await client.chat.completions.create(model=name, messages=[user("hi")])
    assert got.model == "default"


async def chunks_of(client: AsyncOpenAI, **asked: Any) -> list[ChatCompletionChunk]:
    asked = {"model": "default", "messages": [user("hi")], **asked}
    async with await client.chat.completions.create(**asked, stream=True) as stream:
        return [chunk async for chunk in stream]


async def test_an_answer_comes_in_chunks_as_it_is_made(client: AsyncOpenAI, stage: Stage) -> None:
    stage.then(Reply(text="one two three four", chunks=4, chunk_delay=0.02))
    chunks = await chunks_of(client)
    texts = [each.choices[0].delta.content for each in chunks if each.choices[0].delta.content]
    assert "".join(texts) == "one two three four"
    assert len(texts) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [each.choices[0].finish_reason for each in chunks][-1] == "stop"
    assert len({each.id for each in chunks}) == 1
    assert all(each.usage is None for each in chunks)


async def test_the_last_chunk_counts_the_tokens_of_all_model_calls(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(
        Reply(tool_calls=(("now", {}),), usage=Usage(10, 1)),
        Reply(text="Noon.", usage=Usage(20, 2)),
    )
    chunks = await chunks_of(client, stream_options={"include_usage": True})
    *before, last = chunks
    assert all(each.usage is None and each.choices for each in before)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (30, 3)


async def test_an_answer_that_was_cut_for_its_length_says_so(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="and so", finish_reason="length"))
    got = await client.chat.completions.create(
        model="default", messages=[user("tell")], max_completion_tokens=7, temperature=0.5, stop="X"
    )
    assert got.choices[0].finish_reason == "length"
    assert got.choices[0].message.content == "and so"
    sent = model.requests[-1].json
    assert 7 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    assert (sent["temperature"], sent["stop"]) == (0.5, ["X"])


async def test_the_words_of_every_step_reach_a_stream_and_the_last_are_the_answer(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text="Noon."))
    texts = [each.choices[0].delta.content for each in await chunks_of(client)]
    # What sets two messages apart is a chunk of its own; the others are as the model said them.
    assert [text for text in texts if text] == ["I look.", "\n\n", "Noon."]
    stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text="Noon."))
    assert await say(client, "again?") == "Noon."


async def test_the_stream_of_one_structured_answer_is_the_models_text_alone(
    client: AsyncOpenAI, stage: Stage
) -> None:
    wanted = '{"time": "noon"}'
    stage.then(Reply(tool_calls=(("now", {}),)), Reply(text=wanted, chunks=4))
    async with client.chat.completions.stream(
        model="default", messages=[user("time?")], response_format={"type": "json_object"}
    ) as stream:
        completion = await stream.get_final_completion()
    assert completion.choices[0].message.content == wanted


async def test_the_clients_system_message_is_added_to_the_profiles_own(
    client: AsyncOpenAI, house: House, model: ScriptedModel
) -> None:
    (house.profile.home / "SOUL.md").write_text("You are Parley of the harbour.")
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Rhyme."},
        {"role": "developer", "content": "In French."},
        user("hi"),
    ]
    await client.chat.completions.create(model="default", messages=messages)
    [system] = [m for m in model.requests[-1].json["messages"] if m["role"] == "system"]
    assert "harbour" in system["content"]
    assert system["content"].endswith("Rhyme.\n\nIn French.")


async def test_the_sync_client_works_from_a_thread(served: Served, stage: Stage) -> None:
    stage.then(Reply(text="first"), Reply(text="second", chunks=3))

    def talk(base: str, key: str) -> tuple[str | None, str, list[str]]:
        with OpenAI(base_url=base, api_key=key, max_retries=0) as client:
            asked: list[ChatCompletionMessageParam] = [user("hi")]
            whole = client.chat.completions.create(model="default", messages=asked)
            stream = client.chat.completions.create(model="default", messages=asked, stream=True)
            text = "".join(each.choices[0].delta.content or "" for each in stream)
            return whole.choices[0].message.content, text, [m.id for m in client.models.list()]

    got = await asyncio.to_thread(talk, served.base, served.key)
    assert got == ("first", "second", ["default"])


async def test_the_sync_client_goes_on_from_responses_and_raises_its_errors(
    served: Served, house: House
) -> None:
    def talk(base: str, key: str) -> str:
        with OpenAI(base_url=base, api_key=key, max_retries=0) as client:
            first = client.responses.create(model="default", input="one")
            with client.responses.stream(
                model="default", input="two", previous_response_id=first.id
            ) as stream:
                text = stream.get_final_response().output_text
            client.responses.delete(first.id)
            with pytest.raises(openai.NotFoundError):
                client.responses.retrieve(first.id)
        with (
            OpenAI(base_url=base, api_key="sk-nobody", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()
        return text

    assert await asyncio.to_thread(talk, served.base, served.key) == "echo: two"
    assert house.words() == ["one", "echo: one", "two"]


async def test_models_are_listed_and_one_is_retrieved(client: AsyncOpenAI) -> None:
    listed = [each async for each in client.models.list()]
    assert [(each.id, each.object) for each in listed] == [("default", "model")]
    assert (await client.models.retrieve("default")).id == "default"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-4o")


# ── files, and the form of the answer ──


async def test_pictures_and_files_reach_the_model(client: AsyncOpenAI, house: House) -> None:
    data = base64.b64encode(PIXEL).decode()
    content: Any = [
        {"type": "text", "text": "What are these?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}},
        {
            "type": "file",
            "file": {
                "filename": "notes.txt",
                "file_data": "data:text/plain;base64," + base64.b64encode(b"buy milk").decode(),
            },
        },
    ]
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": content}]
    await client.chat.completions.create(model="default", messages=messages)
    [asked] = house.asked()
    pictures = [part["image_url"]["url"] for part in asked["content"] if part["type"] != "text"]
    words = "".join(part["text"] for part in asked["content"] if part["type"] == "text")
    assert pictures == [f"data:image/png;base64,{data}", "https://example.org/cat.jpg"]
    assert "What are these?" in words
    assert "notes.txt" in words
    assert "buy milk" in words


class Town(BaseModel):
    name: str
    people: int


async def test_a_schema_for_the_answer_reaches_the_provider(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text='{"name": "Oslo", "people": 717710}'))
    got = await client.chat.completions.parse(
        model="default", messages=[user("Oslo?")], response_format=Town
    )
    assert got.choices[0].message.parsed == Town(name="Oslo", people=717710)
    sent = model.requests[-1].json["response_format"]
    assert sent["type"] == "json_schema"
    assert sent["json_schema"]["name"] == "Town"
    assert sent["json_schema"]["strict"] is True
    assert set(sent["json_schema"]["schema"]["properties"]) == {"name", "people"}


async def test_an_answer_may_be_asked_for_as_some_json(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    await say(client, "x", response_format={"type": "json_object"})
    assert model.requests[-1].json["response_format"] == {"type": "json_object"}
