"""The agent's loop against a model on loopback: tools, faults, and the end of a turn."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from parley.agent.loop import run_agent
from parley.agent.prompt import UNKNOWN_OUTCOME
from parley.agent.providers.openai import OpenAIProvider
from parley.agent.tools import ToolError
from parley.protocol import (
    ChatMessage,
    Failed,
    Final,
    StepTaken,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from tests.agent.builders import all_of, make_task, results, run
from tests.agent.providers.builders import openai
from tests.gateway.hand_tool import HandTool
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until


@pytest.fixture
async def provider(model: ScriptedModel) -> AsyncIterator[OpenAIProvider]:
    made = openai(model)
    yield made
    await made.close()


def calls(*words: tuple[str, str]) -> Reply:
    return Reply(tool_calls=tuple((name, {"word": word}) for name, word in words))


def sent(model: ScriptedModel, number: int = -1) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = model.requests[number].json["messages"]
    return messages


async def test_an_answer_streams_and_ends(provider: OpenAIProvider, stage: Stage) -> None:
    stage.then(Reply(text="one two three", chunks=3))
    events = await run(make_task(provider))
    assert "".join(e.text for e in all_of(events, TextDelta)) == "one two three"
    assert isinstance(events[-1], Final)
    assert events[-1].text == "one two three"
    assert events[-1].usage is not None


async def test_parallel_tools_run_side_by_side(provider: OpenAIProvider, stage: Stage) -> None:
    left, right = HandTool("left", parallel=True), HandTool("right", parallel=True)
    stage.then(calls(("left", "a"), ("right", "b")))
    running = asyncio.create_task(run(make_task(provider, left, right)))
    await until(lambda: left.began and right.began)
    right.let_go()
    await until(lambda: right.words("ended"))
    left.let_go()
    events = await running
    assert results(events) == ["right did b", "left did a"]
    assert isinstance(events[-1], Final)


async def test_other_tools_run_one_after_the_other_in_order(
    provider: OpenAIProvider, stage: Stage
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(calls(("hand", "a"), ("hand", "b"), ("hand", "c")))
    await run(make_task(provider, hand))
    assert hand.log == [(what, word) for word in "abc" for what in ("began", "ended")]


async def test_a_tool_that_is_not_parallel_waits_for_those_before_it(
    provider: OpenAIProvider, stage: Stage
) -> None:
    beside, alone = HandTool("beside", parallel=True), HandTool("alone")
    alone.let_go()
    stage.then(calls(("beside", "a"), ("beside", "b"), ("alone", "c"), ("beside", "d")))
    running = asyncio.create_task(run(make_task(provider, beside, alone)))
    await until(lambda: beside.began == ["a", "b"])
    assert alone.began == []
    beside.let_go()
    events = await running
    assert results(events)[2:] == ["alone did c", "beside did d"]


async def test_the_model_sees_each_result_after_its_call(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(calls(("hand", "a"), ("hand", "b")))
    await run(make_task(provider, hand))
    _, _, asked, first, second = sent(model)
    ids = [call["id"] for call in asked["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert [first["content"], second["content"]] == ["hand did a", "hand did b"]


async def test_ids_that_a_server_uses_again_for_later_calls_do_not_confuse_the_loop(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(*(_call_zero(word) for word in "abc"))
    events = await run(make_task(provider, hand))
    assert hand.words("ended") == ["a", "b", "c"]
    assert isinstance(events[-1], Final)
    roles = [message["role"] for message in sent(model)]
    assert roles == ["system", "user", *("assistant", "tool") * 3]


def _call_zero(word: str) -> Reply:
    from tests.agent.providers.builders import delta, sse

    call = {
        "index": 0,
        "id": "call_0",
        "function": {"name": "hand", "arguments": f'{{"word": "{word}"}}'},
    }
    return sse(delta(tool_calls=[call]), delta(finish="tool_calls"), "[DONE]")


async def test_wrong_arguments_are_explained_to_the_model(
    provider: OpenAIProvider, stage: Stage
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(Reply(tool_calls=(("hand", {"word": 5, "colour": "red"}),)))
    events = await run(make_task(provider, hand))
    [told] = results(events)
    assert told.startswith("Wrong arguments: ")
    assert "`word`" in told
    assert "`colour`" in told
    assert "pydantic" not in told
    assert [event.ok for event in all_of(events, ToolFinished)] == [False]
    assert hand.began == []
    assert isinstance(events[-1], Final)


async def test_an_unknown_tool_is_answered_with_those_there_are(
    provider: OpenAIProvider, stage: Stage
) -> None:
    stage.then(calls(("foot", "a")))
    events = await run(make_task(provider, HandTool()))
    assert results(events) == ["There is no tool foot; there are: hand."]
    assert isinstance(events[-1], Final)


async def test_arguments_that_are_not_json_are_answered(
    provider: OpenAIProvider, stage: Stage
) -> None:
    from tests.agent.providers.builders import delta, sse

    call = {"index": 0, "id": "c1", "function": {"name": "hand", "arguments": '{"word": '}}
    stage.then(sse(delta(tool_calls=[call]), delta(finish="tool_calls"), "[DONE]"))
    hand = HandTool()
    events = await run(make_task(provider, hand))
    assert results(events) == ["The arguments were not valid JSON for hand."]
    assert hand.began == []
    assert isinstance(events[-1], Final)


async def test_a_tool_that_takes_too_long_is_ended(provider: OpenAIProvider, stage: Stage) -> None:
    hand = HandTool(timeout_seconds=0.05)
    stage.then(calls(("hand", "a")))
    events = await run(make_task(provider, hand))
    assert hand.cancelled == ["a"]
    assert "took longer than" in results(events)[0]
    assert isinstance(events[-1], Final)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "hand failed: No space left on device."),
        (ConnectionResetError("gone"), "hand failed: gone."),
        (ToolError("Try the other one."), "Try the other one."),
    ],
)
async def test_a_tool_that_fails_tells_the_model_and_the_turn_goes_on(
    provider: OpenAIProvider, stage: Stage, fault: Exception, told: str
) -> None:
    hand = HandTool(fails_with=fault)
    hand.let_go()
    stage.then(calls(("hand", "a")))
    events = await run(make_task(provider, hand))
    assert results(events) == [told]
    assert isinstance(events[-1], Final)


async def test_a_long_result_is_cut(provider: OpenAIProvider, stage: Stage) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(calls(("hand", "x" * 30_000)))
    [result] = results(await run(make_task(provider, hand)))
    assert len(result) < 21_000
    assert "more characters were left out" in result


async def test_each_step_is_told_before_the_next_begins(
    provider: OpenAIProvider, stage: Stage
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(Reply(text="Let me see.", tool_calls=(("hand", {"word": "a"}),)))
    events = await run(make_task(provider, hand))
    kinds = [type(e) for e in events if not isinstance(e, TextDelta)]
    assert kinds == [StepTaken, ToolStarted, ToolFinished, StepTaken, Final]
    first = all_of(events, StepTaken)[0]
    assert first.messages[0].text == "Let me see."
    assert first.usage is not None


async def test_closing_in_the_midst_of_a_stream_closes_the_connection(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two", chunks=2, chunk_delay=30))
    async with aclosing(run_agent(make_task(provider))) as events:
        async for event in events:
            assert isinstance(event, TextDelta)
            break
    await model.until(lambda m: m.aborted == 1 and m.open_streams == 0)


async def test_cancelling_closes_the_connection(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(text="late", delay=30))
    running = asyncio.create_task(run(make_task(provider)))
    await model.until(lambda m: m.open_streams == 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await model.until(lambda m: m.aborted == 1 and m.open_streams == 0)


async def test_closing_between_two_results_has_ended_the_other_tools_when_it_returns(
    provider: OpenAIProvider, stage: Stage
) -> None:
    quick, slow = HandTool("quick", parallel=True), HandTool("slow", parallel=True)
    quick.let_go()
    stage.then(calls(("quick", "a"), ("slow", "b")))
    async with aclosing(run_agent(make_task(provider, quick, slow))) as events:
        async for event in events:
            if isinstance(event, ToolFinished):
                break
    assert slow.cancelled == ["b"]


@pytest.mark.parametrize("safe", [True, False])
async def test_a_resumed_turn_repeats_only_what_is_safe(
    provider: OpenAIProvider, model: ScriptedModel, safe: bool
) -> None:
    hand = HandTool(safe_to_repeat=safe)
    hand.let_go()
    progress = (
        ChatMessage("user", "hello"),
        ChatMessage("assistant", tool_calls=(ToolCall("c1", "hand", {"word": "a"}),)),
    )
    events = await run(make_task(provider, hand, progress=progress, resumed=True))
    assert results(events) == ["hand did a" if safe else UNKNOWN_OUTCOME]
    assert model.total == 1


async def test_a_tool_that_is_gone_after_a_restart_has_an_unknown_outcome(
    provider: OpenAIProvider,
) -> None:
    progress = (
        ChatMessage("user", "hello"),
        ChatMessage("assistant", tool_calls=(ToolCall("c1", "gone", {}),)),
    )
    events = await run(make_task(provider, progress=progress, resumed=True))
    assert results(events) == [UNKNOWN_OUTCOME]
    assert isinstance(events[-1], Final)


async def test_a_fault_of_the_provider_ends_the_turn_in_a_sentence(
    provider: OpenAIProvider, stage: Stage
) -> None:
    stage.then(Reply(status=403, body='{"error": {"message": "not for you"}}'))
    [end] = await run(make_task(provider))
    assert isinstance(end, Failed)
    assert "here" in end.sentence
    assert "auth" in end.cause
