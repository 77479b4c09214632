"""What goes wrong, as OpenAI's own client tells it: each of its errors for the right cause."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from parley.agent.providers.retry import RetryingProvider
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import say, user
from tests.surfaces.api.served import Served, a_key, served_api


async def test_a_wrong_key_is_an_authentication_error(served: Served) -> None:
    with pytest.raises(openai.AuthenticationError) as caught:
        await say(await served.client("sk-nobody"), "hi")
    assert caught.value.code == "invalid_api_key"
    assert caught.value.type == "authentication_error"


async def test_a_key_without_the_scope_is_denied(served: Served, house: House) -> None:
    client = await served.client(a_key(house.profile, scopes="runs"))
    with pytest.raises(openai.PermissionDeniedError, match="scope chat"):
        await say(client, "hi")


async def test_a_model_that_is_not_there_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-4o", messages=[user("hi")])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "hi"}], "n": 2}, "n"),
        ({"messages": [{"role": "user", "content": "hi"}], "temperature": 9}, "temperature"),
        ({"messages": [{"role": "nobody", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}, "messages[0]"),
    ],
)
async def test_a_bad_request_names_what_is_wrong(
    client: AsyncOpenAI, asked: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="default", **asked)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


# ── faults of the provider ──

FAULTS = [
    pytest.param(401, "", openai.InternalServerError, 502, "upstream_auth", id="401"),
    pytest.param(403, "", openai.InternalServerError, 502, "upstream_auth", id="403"),
    pytest.param(429, "", openai.RateLimitError, 429, "rate_limit_exceeded", id="429"),
    pytest.param(500, "", openai.InternalServerError, 503, "upstream_overloaded", id="500"),
    pytest.param(400, "", openai.BadRequestError, 400, "upstream_refused", id="400"),
    pytest.param(
        400,
        "context_length_exceeded",
        openai.BadRequestError,
        400,
        "context_length_exceeded",
        id="too-long",
    ),
]


def failing(status: int, code: str = "") -> Reply:
    """More than a minute is too long to wait for: it fails at once."""
    body = json.dumps({"error": {"message": "told by the provider", "code": code}})
    return Reply(status=status, body=body, headers={"Retry-After": "90"})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("status", "said", "kind", "told", "code"), FAULTS)
async def test_a_fault_of_the_provider_is_told_with_its_status(
    client: AsyncOpenAI,
    stage: Stage,
    status: int,
    said: str,
    kind: type[openai.APIStatusError],
    told: int,
    code: str,
    stream: bool,
) -> None:
    stage.then(*[failing(status, said)] * 4)
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(model="default", messages=[user("hi")], stream=stream)
    assert (caught.value.status_code, caught.value.code) == (told, code)
    assert caught.value.message.count("told by the provider") <= 1
    waits = {429: "90", 500: "90"}
    assert caught.value.response.headers.get("Retry-After") == waits.get(status)


@pytest.fixture
async def hasty(house: House, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncOpenAI]:
    """A client of a house that does not wait before it asks its model again."""
    defaults = RetryingProvider.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "base_delay", 0.001)
    async with served_api(house) as served:
        yield await served.client()


CUT = Reply(text="never whole", chunks=2, cut_after=1)


async def test_an_answer_that_is_never_whole_is_a_fault_of_the_provider(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(*[CUT] * 4)
    with pytest.raises(openai.InternalServerError) as caught:
        await say(hasty, "hi")
    assert (caught.value.status_code, caught.value.code) == (502, "upstream_broken")
    assert caught.value.type == "upstream_error"


async def test_an_error_in_the_middle_of_a_stream_ends_it(hasty: AsyncOpenAI, stage: Stage) -> None:
    stage.then(*[CUT] * 4)
    texts: list[str] = []
    with pytest.raises(openai.APIError) as caught:
        async with await hasty.chat.completions.create(
            model="default", messages=[user("hi")], stream=True
        ) as stream:
            async for chunk in stream:
                texts.append(chunk.choices[0].delta.content or "")
                assert chunk.choices[0].finish_reason is None
    assert "".join(texts).startswith("never")
    assert not isinstance(caught.value, openai.APIStatusError)
    assert caught.value.code == "upstream_broken"


async def test_a_stream_whose_model_begins_again_in_other_words_ends_with_an_error(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(CUT, Reply(text="Whole."))
    said = ""
    with pytest.raises(openai.APIError) as caught:
        async with await hasty.chat.completions.create(
            model="default", messages=[user("hi")], stream=True
        ) as stream:
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""
                assert chunk.choices[0].finish_reason is None
    assert caught.value.code == "upstream_broken"
    assert CUT.text.startswith(said)


async def test_a_stream_whose_model_begins_again_the_same_way_is_one_answer(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    whole = f"{CUT.text} and more."
    stage.then(CUT, Reply(text=whole, chunks=9))
    async with await hasty.chat.completions.create(
        model="default", messages=[user("hi")], stream=True
    ) as stream:
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_a_response_whose_model_begins_again_is_one_text_or_fails(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    whole = f"{CUT.text} and more."
    for second, status in ((whole, "completed"), ("Another.", "failed")):
        stage.then(CUT, Reply(text=second, chunks=9))
        async with await hasty.responses.create(model="default", input="hi", stream=True) as stream:
            events = [event async for event in stream]
        said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        last: Any = events[-1]
        assert last.response.status == status
        assert whole.startswith(said)
        assert (said == whole) == (status == "completed")


async def test_a_broken_answer_in_a_form_is_an_error_and_never_half_of_it(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    form: Any = {"type": "json_object"}
    stage.then(*[Reply(text='{"town": "Oslo", "is": 1}', chunks=5, cut_after=2)] * 4)
    with pytest.raises(openai.APIError) as caught:
        await hasty.chat.completions.create(
            model="default", messages=[user("hi")], response_format=form
        )
    assert caught.value.code == "upstream_broken"


async def test_an_error_in_the_middle_of_a_response_is_its_last_event(
    hasty: AsyncOpenAI, stage: Stage
) -> None:
    stage.then(*[CUT] * 4)
    async with await hasty.responses.create(model="default", input="hi", stream=True) as stream:
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error is not None
    with pytest.raises(openai.NotFoundError):
        await hasty.responses.retrieve(last.response.id)


async def test_a_limit_of_the_settings_cannot_be_processed(house: House, stage: Stage) -> None:
    stage.then(*[Reply(tool_calls=(("now", {}),))] * 2)
    async with served_api(house, agent={"max_steps": 1}) as served:
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await say(await served.client(), "hi")
    assert caught.value.code == "limit_exceeded"


async def test_the_client_itself_repeats_what_may_pass(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(status=503, headers={"Retry-After": "61"}, body="{}"), Reply(text="Well."))
    client = (await served.client()).with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError):
        await say(client, "hi")
    assert await say(client, "hi") == "Well."
    assert model.total == 2


async def test_a_wrong_key_of_the_provider_is_not_asked_for_twice(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(*[failing(401)] * 3)
    client = (await served.client()).with_options(max_retries=2)
    with pytest.raises(openai.InternalServerError):
        await say(client, "hi")
    assert model.total == 1


async def test_a_request_in_use_under_its_key_is_a_conflict(client: AsyncOpenAI) -> None:
    key = {"Idempotency-Key": "k"}
    await say(client, "one", extra_headers=key)
    with pytest.raises(openai.ConflictError) as caught:
        await say(client, "two", extra_headers=key)
    assert caught.value.code == "idempotency_key_reused"
    assert caught.value.param == "Idempotency-Key"


async def test_too_many_requests_of_a_key_are_told_when_to_come_again(
    served: Served, house: House
) -> None:
    client = await served.client(a_key(house.profile, per_minute=1))
    await say(client, "hi")
    with pytest.raises(openai.RateLimitError) as caught:
        await say(client, "hi")
    assert caught.value.code == "rate_limit_exceeded"
    assert 1 <= int(caught.value.response.headers["Retry-After"]) <= 60


@pytest.mark.parametrize("path", ["/audio/speech", "/files"])
async def test_what_is_not_there_is_not_found(client: AsyncOpenAI, path: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.post(path, cast_to=dict[str, Any], body={"input": "x"})
    assert caught.value.code == "unknown_url"
