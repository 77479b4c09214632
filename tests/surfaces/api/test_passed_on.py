"""What a program asks for reaches the model's server, and what that says reaches the program."""

from __future__ import annotations

import base64
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from parley.config.settings import ApiConfig
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER, say, user
from tests.surfaces.api.served import Served, served_api

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()


async def test_penalties_and_effort_are_passed_on(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    await say(
        client, "go", presence_penalty=0.5, frequency_penalty=-1.0, reasoning_effort="minimal"
    )
    sent = model.requests[-1].json
    assert (sent["presence_penalty"], sent["frequency_penalty"]) == (0.5, -1.0)
    assert sent["reasoning_effort"] == "minimal"
    await client.responses.create(model="parley", input="go", reasoning={"effort": "high"})
    assert model.requests[-1].json["reasoning_effort"] == "high"


@pytest.mark.parametrize("name", ["presence_penalty", "reasoning_effort"])
async def test_what_a_server_does_not_take_is_refused_and_not_left_out(
    client: AsyncOpenAI, stage: Stage, name: str
) -> None:
    body = json.dumps({"error": {"message": f"Unsupported parameter: {name}"}})
    stage.then(Reply(status=400, body=body))
    wish: Any = {name: "low" if name == "reasoning_effort" else 1.0}
    with pytest.raises(openai.BadRequestError, match=f"does not offer `{name}`"):
        await say(client, "go", **wish)


async def test_a_strict_tool_is_strict(client: AsyncOpenAI, model: ScriptedModel) -> None:
    strict: Any = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    await say(client, "go", tools=[strict])
    [told] = [t for t in model.requests[-1].json["tools"] if t["function"]["name"] == "weather"]
    assert told["function"]["strict"] is True
    flat: Any = {"type": "function", **strict["function"]}
    made = await client.responses.create(model="parley", input="go", tools=[flat])
    assert made.tools[0].strict is True  # type: ignore[union-attr]
    [told] = [t for t in model.requests[-1].json["tools"] if t["function"]["name"] == "weather"]
    assert told["function"]["strict"] is True


async def test_how_closely_to_look_at_a_picture_is_passed_on(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    far = "https://example.org/a.png"
    pictures: list[Any] = [
        {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": far, "detail": "high"}},
        {"type": "image_url", "image_url": {"url": far}},
    ]
    asked: Any = {"role": "user", "content": [{"type": "text", "text": "look"}, *pictures]}
    await client.chat.completions.create(model="parley", messages=[asked])
    parts = model.requests[-1].json["messages"][-1]["content"]
    shown = [part["image_url"].get("detail") for part in parts if part["type"] == "image_url"]
    assert shown == ["low", "high", None]
    item: Any = {
        "role": "user",
        "content": [{"type": "input_image", "image_url": PNG, "detail": "low"}],
    }
    await client.responses.create(model="parley", input=[item])
    [part] = model.requests[-1].json["messages"][-1]["content"]
    assert part["image_url"]["detail"] == "low"


async def test_who_of_several_speaks_is_passed_on(served: Served, model: ScriptedModel) -> None:
    client = await served.client(**{"X-Parley-Session-Id": "several"})
    messages: list[Any] = [{**user("hello"), "name": "ann"}]
    await client.chat.completions.create(model="parley", messages=messages)
    assert model.requests[-1].json["messages"][-1]["name"] == "ann"
    await say(client, "and now?")
    sent = model.requests[-1].json["messages"]
    assert [message.get("name") for message in sent[-3:]] == ["ann", None, None]


async def test_a_reply_that_was_filtered_says_so(client: AsyncOpenAI, stage: Stage) -> None:
    for text in ("I will", ""):
        stage.then(Reply(text=text, finish_reason="content_filter"))
        made = await client.chat.completions.create(model="parley", messages=[user("go")])
        assert made.choices[0].finish_reason == "content_filter"
        assert made.choices[0].message.content == text
        stage.then(Reply(text=text, finish_reason="content_filter"))
        stream = await client.chat.completions.create(
            model="parley", messages=[user("go")], stream=True
        )
        reasons = [chunk.choices[0].finish_reason async for chunk in stream]
        assert reasons[-1] == "content_filter"
    stage.then(Reply(text="I will", finish_reason="content_filter"))
    got = await client.responses.create(model="parley", input="go")
    assert got.status == "incomplete"
    assert got.incomplete_details is not None
    assert got.incomplete_details.reason == "content_filter"


async def test_tokens_of_thoughts_are_counted(client: AsyncOpenAI, stage: Stage) -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 8,
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    choice = {"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}
    raw = json.dumps({"choices": [choice], "usage": usage}).encode()
    reply = Reply(raw=(b"data: " + raw + b"\n\n", b"data: [DONE]\n\n"))
    stage.then(reply, reply)
    made = await client.chat.completions.create(model="parley", messages=[user("go")])
    assert made.usage is not None
    assert made.usage.completion_tokens_details is not None
    assert made.usage.completion_tokens_details.reasoning_tokens == 5
    got = await client.responses.create(model="parley", input="go")
    assert got.usage is not None
    assert got.usage.output_tokens_details.reasoning_tokens == 5


async def test_an_address_that_the_models_server_does_not_have_is_no_404(
    client: AsyncOpenAI, stage: Stage
) -> None:
    body = json.dumps({"error": {"message": "The model `x` does not exist"}})
    stage.then(Reply(status=404, body=body))
    with pytest.raises(openai.InternalServerError) as caught:
        await say(client, "go")
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_not_found")
    assert caught.value.response.headers["X-Should-Retry"] == "false"


async def test_a_server_that_wants_to_be_left_alone_for_long_is_not_waited_for(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(status=429, headers={"Retry-After": "11"}))
    with pytest.raises(openai.RateLimitError) as caught:
        await say(client, "go")
    assert caught.value.response.headers["Retry-After"] == "11"
    assert model.total == 1


async def test_the_name_for_whoever_answers_is_a_model_too(client: AsyncOpenAI) -> None:
    assert (await client.models.retrieve("parley")).id == "parley"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-4o")


async def test_a_profile_may_have_other_names(house: House) -> None:
    config = ApiConfig(models={"gpt-4o": "default", "gpt-5": "nobody"})
    async with served_api(house, config=config) as served:
        client = await served.client()
        assert [each.id async for each in client.models.list()] == ["default", "gpt-4o"]
        assert (await client.models.retrieve("gpt-4o")).id == "gpt-4o"
        made = await client.chat.completions.create(model="gpt-4o", messages=[user("hi")])
        assert made.model == "default"
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="gpt-5", messages=[user("hi")])


async def test_old_completions_say_what_to_use(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="use /v1/chat/completions"):
        await client.completions.create(model="parley", prompt="hi")
