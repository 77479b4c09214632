"""`Idempotency-Key`: a request that is made twice is answered once."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER
from tests.surfaces.api.asking_twice import (
    BODIES,
    CHAT,
    RESPONSES,
    ask,
    both_routes,
    streamed,
    text_of,
)
from tests.surfaces.api.served import Got, Served, a_key


def streamed_text(got: Got) -> str:
    pieces = [each["choices"][0]["delta"].get("content") for each in streamed(got)]
    return "".join(piece for piece in pieces if piece)


# ── the first result, again ──


@both_routes
async def test_the_same_request_gets_the_first_result_byte_for_byte(
    served: Served, model: ScriptedModel, path: str
) -> None:
    first = await ask(served, path)
    again = await ask(served, path)
    assert (first.status, again.status) == (200, 200)
    assert again.body == first.body
    assert again.session == first.session
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert model.total == 1


@both_routes
@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="cut off", finish_reason="length"),
        Reply(text="  spaced  \n"),
        Reply(text="See.", tool_calls=(("weather", {"town": "Orø"}),)),
    ],
    ids=["length", "spaces", "calls"],
)
async def test_the_result_is_the_same_however_it_ended(
    served: Served, stage: Stage, path: str, reply: Reply
) -> None:
    tool = WEATHER if path == CHAT else {"type": "function", **WEATHER["function"]}
    stage.then(reply)
    first = await ask(served, path, tools=[tool])
    again = await ask(served, path, tools=[tool])
    assert first.status == 200
    assert again.body == first.body


@both_routes
async def test_the_steps_of_the_first_are_in_the_second_too(
    served: Served, stage: Stage, path: str
) -> None:
    stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text="Noon."))
    first = await ask(served, path)
    assert (await ask(served, path)).body == first.body


async def test_a_stream_gets_the_first_result_as_a_stream(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=0.01))
    more: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    first = await ask(served, **more)
    again = await ask(served, **more)
    assert streamed_text_before_usage(again) == streamed_text_before_usage(first)
    assert streamed(again)[-1] == streamed(first)[-1]
    assert streamed(again)[0] == streamed(first)[0]
    assert again.body.endswith(b"data: [DONE]\n\n")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert model.total == 1


def streamed_text_before_usage(got: Got) -> str:
    pieces = [each["choices"][0]["delta"].get("content") for each in streamed(got)[:-1]]
    return "".join(piece for piece in pieces if piece)


async def test_what_was_streamed_can_be_had_whole_and_the_other_way_round(
    served: Served, model: ScriptedModel
) -> None:
    first = await ask(served, stream=True)
    whole = await ask(served)
    assert text_of(whole) == streamed_text(first) == "echo: hi"
    assert json.loads(whole.body)["id"] == streamed(first)[0]["id"]
    assert model.total == 1


async def test_a_streamed_response_ends_with_the_same_response(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=0.01))
    first = await ask(served, RESPONSES, stream=True)
    again = await ask(served, RESPONSES, stream=True)
    assert [each["type"] for each in streamed(again) if "delta" not in each] == [
        each["type"] for each in streamed(first) if "delta" not in each
    ]
    assert streamed(again)[-1]["response"] == streamed(first)[-1]["response"]
    assert model.total == 1


async def test_the_clients_stream_helper_reads_a_response_that_comes_again(
    served: Served, stage: Stage
) -> None:
    client = await served.client(**{"Idempotency-Key": "k1"})
    function: Any = {"type": "function", "strict": False, **WEATHER["function"]}
    stage.then(Reply(text="See.", tool_calls=(("weather", {"town": "Oslo"}),)))
    got = []
    for _ in range(2):
        async with client.responses.stream(model="default", input="hi", tools=[function]) as stream:
            got.append(await stream.get_final_response())
    assert got[0] == got[1]
    assert [item.type for item in got[1].output] == ["message", "function_call"]


@both_routes
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_who_asks_while_the_first_still_runs_waits_for_it(
    served: Served, stage: Stage, model: ScriptedModel, path: str, stream: bool
) -> None:
    stage.then(Reply(text="Here.", delay=0.2))
    first = asyncio.create_task(ask(served, path, stream=stream))
    await model.until(lambda seen: seen.open_streams == 1)
    others = await asyncio.gather(*(ask(served, path, stream=stream) for _ in range(3)))
    got = await first
    for other in others:
        assert last_of(other, stream) == last_of(got, stream)
        assert other.headers["Idempotent-Replayed"] == "true"
    assert model.total == 1


def last_of(got: Got, stream: bool) -> Any:
    """What a client has in the end."""
    if not stream:
        return got.body
    last = streamed(got)[-1]
    return last.get("response", last)


async def test_many_at_the_same_moment_are_answered_once(
    served: Served, model: ScriptedModel
) -> None:
    got = await asyncio.gather(*(ask(served) for _ in range(10)))
    assert len({each.body for each in got}) == 1
    assert model.total == 1


# ── other requests ──


@both_routes
async def test_another_body_with_the_same_key_is_a_conflict(
    served: Served, model: ScriptedModel, path: str
) -> None:
    await ask(served, path)
    got = await ask(served, path, temperature=0.5)
    assert got.status == 409
    error = json.loads(got.body)["error"]
    assert (error["code"], error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
    assert model.total == 1


async def test_the_same_key_on_another_route_is_a_conflict(served: Served) -> None:
    await ask(served, CHAT)
    assert (await ask(served, RESPONSES)).status == 409


async def test_the_same_key_in_another_session_is_a_conflict(served: Served) -> None:
    named = {"Idempotency-Key": "k1"}
    await served.post(CHAT, BODIES[CHAT], headers={**named, "X-Parley-Session-Id": "a"})
    got = await served.post(CHAT, BODIES[CHAT], headers={**named, "X-Parley-Session-Id": "b"})
    assert got.status == 409


async def test_json_that_is_only_written_differently_is_the_same(
    served: Served, model: ScriptedModel
) -> None:
    head = {"Authorization": f"Bearer {served.key}", "Idempotency-Key": "k1"}
    head["Content-Type"] = "application/json"
    bodies = (
        b'{"model":"default","messages":[{"role":"user","content":"hi"}]}',
        b'{ "messages": [{"content": "h\\u0069", "role": "user"}], "model": "default" }',
    )
    got = []
    for body in bodies:
        async with served.http.post(served.api.where + CHAT, data=body, headers=head) as answer:
            got.append(await answer.read())
    assert got[0] == got[1]
    assert model.total == 1


async def test_the_keys_of_different_callers_are_apart(
    served: Served, house: House, model: ScriptedModel
) -> None:
    ann, ben = a_key(house.profile, "ann"), a_key(house.profile, "ben")
    first, other = await ask(served, key=ann), await ask(served, key=ben)
    assert json.loads(first.body)["id"] != json.loads(other.body)["id"]
    assert (await ask(served, key=ben, temperature=1)).status == 409
    assert model.total == 2


@pytest.mark.parametrize("given", ["", "x" * 256, "caf\u00e9", "tab\tin"])
async def test_a_key_that_cannot_be_kept_is_refused(
    served: Served, model: ScriptedModel, given: str
) -> None:
    got = await ask(served, id=given)
    assert got.status == 400
    assert model.total == 0


# ── failures ──


@both_routes
async def test_a_failure_frees_the_key(
    served: Served, stage: Stage, model: ScriptedModel, path: str
) -> None:
    stage.then(Reply(status=401, body="{}"), Reply(text="Now."))
    assert (await ask(served, path)).status == 502
    assert text_of(await ask(served, path)) == "Now."
    assert text_of(await ask(served, path)) == "Now."
    assert model.total == 2


async def test_a_request_that_was_refused_leaves_its_key_free(
    served: Served, model: ScriptedModel
) -> None:
    assert (await ask(served, temperature=99)).status == 400
    assert text_of(await ask(served)) == "echo: hi"


async def test_who_waits_for_one_that_fails_is_answered_in_its_place(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(status=401, body="{}", delay=0.2), Reply(text="Now."))
    first = asyncio.create_task(ask(served))
    await model.until(lambda seen: seen.open_streams == 1)
    other = await ask(served)
    assert (await first).status == 502
    assert text_of(other) == "Now."
    assert (await ask(served)).body == other.body
    assert model.total == 2
