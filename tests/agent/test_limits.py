"""What one turn may use: steps, time, tokens, and the model's window."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from parley.agent.loop import Limits
from parley.agent.providers.openai import OpenAIProvider
from parley.protocol import ChatMessage, Failed, Final, HistoryTrimmed
from tests.agent.builders import all_of, make_task, results, run
from tests.agent.providers.builders import openai
from tests.gateway.hand_tool import HandTool
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage

AGAIN = Reply(tool_calls=(("hand", {"word": "a"}),))
TOO_LONG = Reply(status=400, body='{"error": {"message": "maximum context length is 2048 tokens"}}')


@pytest.fixture
async def provider(model: ScriptedModel) -> AsyncIterator[OpenAIProvider]:
    made = openai(model)
    yield made
    await made.close()


def long_history(turns: int) -> list[ChatMessage]:
    return [
        message
        for number in range(turns)
        for message in (
            ChatMessage("user", f"question {number} " + "x" * 200),
            ChatMessage("assistant", f"answer {number} " + "y" * 200),
        )
    ]


async def test_at_the_step_limit_the_model_answers_without_tools(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(AGAIN, AGAIN, AGAIN, Reply(text="that is what I know"))
    events = await run(make_task(provider, hand, limits=Limits(3, 20, 100_000)))
    assert events[-1:] == [Final("that is what I know", all_of(events, Final)[0].usage)]
    assert len(hand.began) == 3
    *with_tools, last = (request.json for request in model.requests)
    assert all("tools" in request for request in with_tools)
    assert "tools" not in last
    assert "use no more tools" in last["messages"][-1]["content"]


async def test_a_model_that_calls_tools_even_then_is_stopped(
    provider: OpenAIProvider, stage: Stage
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(*[AGAIN] * 10)
    events = await run(make_task(provider, hand, limits=Limits(2, 20, 100_000)))
    assert isinstance(events[-1], Failed)
    assert "agent.max_steps" in events[-1].sentence
    assert len(hand.began) == 2


async def test_steps_taken_before_a_restart_count(provider: OpenAIProvider, stage: Stage) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(*[AGAIN] * 10)
    from parley.protocol import ToolCall

    earlier = [ChatMessage("user", "hello")]
    for number in range(3):
        call = ToolCall(f"c{number}", "hand", {"word": "x"})
        earlier += [
            ChatMessage("assistant", tool_calls=(call,)),
            ChatMessage("tool", "done", tool_call_id=call.id, tool_name="hand"),
        ]
    task = make_task(provider, hand, progress=earlier, resumed=True, limits=Limits(4, 20, 100_000))
    await run(task)
    assert len(hand.began) == 1


async def test_the_token_limit_ends_a_turn(provider: OpenAIProvider, stage: Stage) -> None:
    hand = HandTool()
    hand.let_go()
    dear = Reply(tool_calls=(("hand", {"word": "a"}),), usage=Usage(600, 100))
    stage.then(dear, dear, dear)
    events = await run(make_task(provider, hand, limits=Limits(10, 20, 1000)))
    assert isinstance(events[-1], Failed)
    assert "1,400 tokens" in events[-1].sentence
    assert "agent.turn_tokens" in events[-1].sentence
    assert hand.began == ["a"]


@pytest.mark.parametrize(
    "reply",
    [Reply(text="late", delay=30), Reply(text="one two", chunks=2, chunk_delay=30), AGAIN],
    ids=["before the first word", "between words", "in a tool"],
)
async def test_the_time_limit_ends_a_turn_wherever_it_is(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel, reply: Reply
) -> None:
    hand = HandTool()
    stage.then(reply)
    before = time.monotonic()
    events = await run(make_task(provider, hand, limits=Limits(10, 0.2, 100_000)))
    assert time.monotonic() - before < 20
    assert isinstance(events[-1], Failed)
    assert "agent.turn_seconds" in events[-1].sentence
    assert hand.cancelled == hand.began
    await model.until(lambda m: m.open_streams == 0)


async def test_an_empty_answer_is_said_to_be_empty(provider: OpenAIProvider, stage: Stage) -> None:
    stage.then(Reply(text="  \n"))
    events = await run(make_task(provider))
    assert isinstance(events[-1], Failed)
    assert "empty answer" in events[-1].sentence
    assert "/retry" in events[-1].sentence


async def test_a_cut_answer_says_so(provider: OpenAIProvider, stage: Stage) -> None:
    stage.then(Reply(text="and then", finish_reason="length"))
    events = await run(make_task(provider))
    assert isinstance(events[-1], Final)
    assert events[-1].text.startswith("and then\n\n(The answer was cut")


async def test_a_window_that_is_smaller_than_told_is_found(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(TOO_LONG)
    events = await run(make_task(provider, history=long_history(30)))
    assert isinstance(events[-1], Final)
    first, second = (request.json["messages"] for request in model.requests)
    assert len(second) < len(first)
    assert second[0] == first[0]
    assert second[1]["role"] == "user"
    assert second[-1] == first[-1]
    [trimmed] = all_of(events, HistoryTrimmed)
    number = 61 - (len(second) - 2)
    assert trimmed.keep_from == number


async def test_what_never_fits_is_a_sentence(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(*[TOO_LONG] * 5)
    events = await run(make_task(provider, history=long_history(30)))
    assert isinstance(events[-1], Failed)
    assert "too_long" in events[-1].cause
    assert model.total == 3


async def test_a_long_conversation_is_trimmed_before_it_is_sent(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    events = await run(make_task(provider, history=long_history(100)))
    [trimmed] = all_of(events, HistoryTrimmed)
    messages = model.requests[0].json["messages"]
    assert len(model.requests[0].body) < 8192 * 3
    assert messages[1]["role"] == "user"
    assert trimmed.keep_from == 201 - (len(messages) - 2)


async def test_results_count_towards_the_window(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    """A turn that grows by what its tools bring pushes the oldest history out."""
    hand = HandTool()
    hand.let_go()
    stage.then(Reply(tool_calls=(("hand", {"word": "z" * 9000}),)))
    events = await run(make_task(provider, hand, history=long_history(35)))
    assert results(events)
    assert all_of(events, HistoryTrimmed)
    first, second = (request.json["messages"] for request in model.requests)
    assert len(second) < len(first)
    assert [m["role"] for m in second][-3:] == ["user", "assistant", "tool"]


async def test_a_model_that_runs_away_is_stopped(provider: OpenAIProvider, stage: Stage) -> None:
    stage.then(Reply(text="on and " * 300_000, chunks=300))
    events = await run(make_task(provider))
    assert isinstance(events[-1], Failed)
    assert "1,000,000 characters" in events[-1].sentence
