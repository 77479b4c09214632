"""Tools that the client passes and runs itself, with OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from parley.agent.tools import TOOLS
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER, say, user
from tests.surfaces.api.served import Served, served_api


async def test_a_tool_of_the_client_is_called_and_its_result_is_answered(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(Reply(text="Let me see.", tool_calls=(("weather", {"town": "Oslo"}),)))
    messages: list[Any] = [user("Is it raining in Oslo?")]
    got = await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    [choice] = got.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    [call] = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"town": "Oslo"},
    )
    stage.then(Reply(text="It rains."))
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    got = await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    assert got.choices[0].message.content == "It rains."
    asked = house.asked()
    assert [m["role"] for m in asked] == ["user", "assistant", "tool"]
    assert asked[1]["tool_calls"][0]["id"] == asked[2]["tool_call_id"]
    assert asked[2]["content"] == "rain"


async def test_in_a_session_only_the_result_of_a_call_need_be_sent(
    served: Served, stage: Stage, house: House
) -> None:
    client = await served.client(**{"X-Hermes-Session-Id": "trip"})
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)))
    got = await client.chat.completions.create(
        model="default", messages=[user("rain?")], tools=[WEATHER]
    )
    [call] = got.choices[0].message.tool_calls or []
    stage.then(Reply(text="It rains."))
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    got = await client.chat.completions.create(model="default", messages=[result], tools=[WEATHER])
    assert got.choices[0].message.content == "It rains."
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool"]
    assert house.asked()[1]["tool_calls"][0]["id"] == house.asked()[2]["tool_call_id"]
    await say(client, "and tomorrow?")
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "assistant", "user"]


async def test_in_a_session_the_whole_exchange_may_be_sent_too(
    served: Served, stage: Stage, house: House
) -> None:
    client = await served.client(**{"X-Hermes-Session-Id": "trip"})
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)))
    messages: list[Any] = [user("rain?")]
    got = await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    [call] = got.choices[0].message.tool_calls or []
    messages += [
        got.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool"]
    assert len(house.asked()[1]["tool_calls"]) == 1


async def test_calls_are_streamed_and_parallel_ones_come_together(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"}))))
    async with client.chat.completions.stream(
        model="default", messages=[user("both?")], tools=[WEATHER], parallel_tool_calls=True
    ) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments)["town"] for call in calls] == ["Oslo", "Rome"]
    assert len({call.id for call in calls}) == 2
    assert final.choices[0].finish_reason == "tool_calls"
    assert model.requests[-1].json["parallel_tool_calls"] is True


async def test_parallel_results_are_answered_together(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"}))))
    messages: list[Any] = [user("both?")]
    got = await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    messages.append(got.choices[0].message)
    for call in got.choices[0].message.tool_calls or []:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"at {call.id}"})
    await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "tool"]
    assert {m["content"] for m in house.asked()[2:]} == {
        f"at {c['id']}" for c in house.asked()[1]["tool_calls"]
    }


async def test_the_profiles_own_tool_and_the_clients_are_called_in_one_reply(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        client = await served.client(**{"X-Hermes-Session-Id": "trip"})
        stage.then(
            Reply(tool_calls=(("hand", {"word": "lift"}), ("weather", {"town": "Oslo"}))),
        )
        got = await client.chat.completions.create(
            model="default", messages=[user("both")], tools=[WEATHER]
        )
        calls: list[Any] = list(got.choices[0].message.tool_calls or [])
        assert [call.function.name for call in calls] == ["weather"]
        assert hand.words("ended") == ["lift"]
        result: Any = {"role": "tool", "tool_call_id": calls[0].id, "content": "rain"}
        await client.chat.completions.create(model="default", messages=[result], tools=[WEATHER])
        asked = house.asked()
        made = [call["function"]["name"] for m in asked for call in m.get("tool_calls", ())]
        results = [m["content"] for m in asked if m["role"] == "tool"]
        assert sorted(made) == ["hand", "weather"]
        assert results == ["hand did lift", "rain"]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        (
            {"type": "function", "function": {"name": "weather"}},
            {"type": "function", "function": {"name": "weather"}},
        ),
    ],
)
async def test_what_must_be_called_reaches_the_provider(
    client: AsyncOpenAI, model: ScriptedModel, choice: Any, sent: Any
) -> None:
    await say(client, "go", tools=[WEATHER], tool_choice=choice)
    request = model.requests[-1].json
    assert request.get("tool_choice", "auto") == sent
    assert "weather" in [tool["function"]["name"] for tool in request["tools"]]


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "weather"}}],
    ids=["any", "named"],
)
async def test_only_the_clients_tools_are_offered_when_one_must_be_called(
    house: House, stage: Stage, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch, choice: Any
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        client = await served.client()
        # A server that ignores what is offered calls the profile's tool all the same.
        stage.then(
            Reply(tool_calls=(("hand", {"word": "lift"}),)),
            Reply(tool_calls=(("weather", {"town": "Oslo"}),)),
        )
        got = await client.chat.completions.create(
            model="default", messages=[user("go")], tools=[WEATHER], tool_choice=choice
        )
    calls: list[Any] = list(got.choices[0].message.tool_calls or [])
    assert [call.function.name for call in calls] == ["weather"]
    assert hand.words("began") == []
    assert len(model.requests) == 2
    for request in model.requests:
        assert [tool["function"]["name"] for tool in request.json["tools"]] == ["weather"]
        assert request.json["tool_choice"] == choice
    refusal = model.requests[-1].json["messages"][-1]["content"]
    assert refusal == "There is no tool hand; there are: weather."


async def test_results_are_answered_with_another_call_when_one_must_be_made_again(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(tool_calls=(("weather", {"town": "Oslo"}),)))
    messages: list[Any] = [user("go")]
    got = await client.chat.completions.create(
        model="default", messages=messages, tools=[WEATHER], tool_choice="required"
    )
    [call] = got.choices[0].message.tool_calls or []
    messages += [got.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "-"}]
    stage.then(Reply(tool_calls=(("weather", {"town": "Rome"}),)))
    got = await client.chat.completions.create(
        model="default", messages=messages, tools=[WEATHER], tool_choice="required"
    )
    assert got.choices[0].finish_reason == "tool_calls"
    assert model.requests[-1].json["tool_choice"] == "required"


async def test_a_tool_of_the_profile_is_called_when_the_client_has_none(
    house: House, stage: Stage, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        client = await served.client()
        stage.then(Reply(tool_calls=(("hand", {"word": "lift"}),)), Reply(text="lifted"))
        got = await client.chat.completions.create(
            model="default", messages=[user("go")], tool_choice="required"
        )
    assert got.choices[0].message.content == "lifted"
    assert hand.words("ended") == ["lift"]
    assert "tool_choice" not in model.requests[-1].json


async def test_nothing_is_offered_when_no_tool_may_be_called(
    client: AsyncOpenAI, model: ScriptedModel
) -> None:
    await say(client, "go", tools=[WEATHER], tool_choice="none")
    assert not model.requests[-1].json.get("tools")


async def test_a_choice_of_a_tool_that_was_not_given_is_refused(client: AsyncOpenAI) -> None:
    other: Any = {"type": "function", "function": {"name": "other"}}
    with pytest.raises(openai.BadRequestError) as caught:
        await say(client, "go", tools=[WEATHER], tool_choice=other)
    assert caught.value.param is not None
    assert caught.value.param.startswith("tool_choice")


async def test_a_result_of_no_call_is_refused_and_no_model_asked(
    served: Served, model: ScriptedModel
) -> None:
    lost = {"role": "tool", "tool_call_id": "nobody", "content": "12"}
    headers = {"X-Parley-Session-Id": "tools"}
    got = await served.post("/v1/chat/completions", {"messages": [lost]}, headers=headers)
    assert got.status == 400, got.body
    assert b"belongs to no call" in got.body
    assert model.total == 0
