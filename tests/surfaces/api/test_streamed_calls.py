"""The arguments of a client's own tools come as the model writes them, with OpenAI's client."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from parley.agent.tools import TOOLS
from tests.gateway.hand_tool import HandTool
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER, user
from tests.surfaces.api.served import served_api

OSLO = {"town": "Oslo", "days": [1, 2], "a": "ü"}
ROME = {"town": "Rome"}
BOTH = Reply(tool_calls=(("weather", OSLO), ("weather", ROME)), argument_chunks=4)
FLAT: Any = {"type": "function", **WEATHER["function"]}


class Streamed:
    """The calls of a streamed completion: each with its id, its name and its pieces."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.pieces: dict[int, list[str]] = {}
        self.reason: str | None = None
        self.text = ""

    @property
    def written(self) -> list[str]:
        return ["".join(self.pieces[index]) for index in sorted(self.pieces)]

    async def read(self, client: AsyncOpenAI, **more: Any) -> None:
        stream = await client.chat.completions.create(
            model="parley", messages=[user("go")], tools=[WEATHER], stream=True, **more
        )
        async for chunk in stream:
            [choice] = chunk.choices
            self.reason = choice.finish_reason or self.reason
            self.text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                if call.id is not None:
                    assert call.index not in self.ids
                    assert call.function.arguments == ""
                    self.ids[call.index] = call.id
                    self.names[call.index] = call.function.name or ""
                    self.pieces[call.index] = []
                elif call.function.arguments:
                    self.pieces[call.index].append(call.function.arguments)


async def test_arguments_come_in_pieces_that_make_up_what_the_model_wrote(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(BOTH)
    streamed = Streamed()
    await streamed.read(client)
    assert streamed.written == [json.dumps(OSLO), json.dumps(ROME)]
    assert [len(pieces) for pieces in streamed.pieces.values()] == [4, 4]
    assert list(streamed.names.values()) == ["weather", "weather"]
    assert streamed.reason == "tool_calls"


async def test_a_streamed_call_is_answered_under_its_id(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(BOTH)
    async with client.chat.completions.stream(
        model="parley", messages=[user("go")], tools=[WEATHER]
    ) as stream:
        made = (await stream.get_final_completion()).choices[0].message
    messages: list[Any] = [user("go"), made.model_dump(exclude_none=True)]
    for call in made.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"at {call.id}"})
    await client.chat.completions.create(model="parley", messages=messages, tools=[WEATHER])
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "tool"]
    asked = house.asked()[1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in asked] == [OSLO, ROME]


async def test_a_call_that_broke_off_goes_on_when_it_is_written_the_same_again(
    client: AsyncOpenAI, stage: Stage, model: ScriptedModel, house: House
) -> None:
    stage.then(Reply(tool_calls=(("weather", OSLO),), argument_chunks=4, cut_after=3), BOTH)
    streamed = Streamed()
    await streamed.read(client, extra_headers={"X-Parley-Session-Id": "again"})
    assert streamed.written == [json.dumps(OSLO), json.dumps(ROME)]
    assert model.total == 2
    # Under the ids that were told, the results are those of the calls that were made.
    results: list[Any] = [
        {"role": "tool", "tool_call_id": id, "content": "rain"} for id in streamed.ids.values()
    ]
    await client.chat.completions.create(
        model="parley",
        messages=results,
        tools=[WEATHER],
        extra_headers={"X-Parley-Session-Id": "again"},
    )
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "tool"]
    made = [call["id"] for call in house.asked()[1]["tool_calls"]]
    assert made == list(streamed.ids.values())


@pytest.mark.parametrize(
    "second",
    [
        Reply(tool_calls=(("weather", ROME),), argument_chunks=2),
        Reply(tool_calls=(("weather", ROME),)),
        Reply(text="I do not know."),
    ],
    ids=["other arguments", "other arguments at once", "no call"],
)
async def test_a_call_that_is_written_otherwise_again_ends_the_stream_with_an_error(
    client: AsyncOpenAI, stage: Stage, second: Reply
) -> None:
    broken = Reply(tool_calls=(("weather", OSLO),), argument_chunks=2, cut_after=2)
    stage.then(broken, second)
    streamed = Streamed()
    with pytest.raises(openai.APIError) as caught:
        await streamed.read(client)
    assert caught.value.code == "upstream_broken"
    assert json.dumps(OSLO).startswith("".join(streamed.written))
    stage.then(broken, second)
    stream = await client.responses.create(model="parley", input="go", tools=[FLAT], stream=True)
    last: Any = [event async for event in stream][-1]
    assert last.type == "response.failed"
    assert {item.status for item in last.response.output} <= {"incomplete", "completed"}
    assert last.response.output[0].status == "incomplete"


async def test_calls_of_the_profiles_own_tools_are_not_streamed(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandTool()
    hand.let_go()
    monkeypatch.setitem(TOOLS, "hand", hand.tool)
    ours, theirs = ("hand", {"word": "secret"}), ("weather", OSLO)
    async with served_api(house, agent={"tools": ["hand"]}) as served:
        client = await served.client()
        stage.then(Reply(tool_calls=(ours,), argument_chunks=3))
        stage.then(Reply(tool_calls=(ours, theirs), argument_chunks=3))
        streamed = Streamed()
        await streamed.read(client)
        assert streamed.names == {0: "weather"}
        assert streamed.written == [json.dumps(OSLO)]
        assert streamed.reason == "tool_calls"


async def test_what_is_no_object_is_put_right_before_it_is_sent(
    client: AsyncOpenAI, stage: Stage
) -> None:
    for written, sent in (("", "{}"), ("null", "{}"), (json.dumps('{"town":"Oslo"}'), None)):
        call = {"index": 0, "id": "c1", "function": {"name": "weather", "arguments": written}}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
        raw = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
        stage.then(Reply(raw=(raw, b"data: [DONE]\n\n")))
        streamed = Streamed()
        await streamed.read(client)
        assert streamed.written == [sent or '{"town":"Oslo"}']


async def test_responses_tell_the_arguments_in_pieces_too(
    client: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(replace(BOTH, text="Let me see."))
    async with client.responses.stream(model="parley", input="go", tools=[FLAT]) as stream:
        events: list[Any] = [event async for event in stream]
        final: Any = await stream.get_final_response()
    kind = "response.function_call_arguments"
    pieces = [(e.output_index, e.delta) for e in events if e.type == f"{kind}.delta"]
    assert len(pieces) == 8
    for index, arguments in ((1, OSLO), (2, ROME)):
        whole = "".join(piece for place, piece in pieces if place == index)
        assert whole == json.dumps(arguments) == final.output[index].arguments
    assert [e.arguments for e in events if e.type == f"{kind}.done"] == [
        json.dumps(OSLO),
        json.dumps(ROME),
    ]
    assert [item.type for item in final.output] == ["message", "function_call", "function_call"]
    assert {item.status for item in final.output} == {"completed"}
    kept: Any = await client.responses.retrieve(final.id)
    assert [item.arguments for item in kept.output[1:]] == [json.dumps(OSLO), json.dumps(ROME)]
