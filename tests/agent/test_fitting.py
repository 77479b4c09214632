"""No request is larger than the model's window, however long the turn itself becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.fitting import cut_middle
from parley.agent.loop import AgentTask
from parley.agent.providers.openai import OpenAIProvider
from parley.agent.tokens import Calibration, estimate_tokens, margin_of, tokens_of_text
from parley.protocol import (
    Attachment,
    ChatMessage,
    Failed,
    Final,
    HistoryTrimmed,
    Request,
    ToolCall,
    Wishes,
)
from tests.agent.builders import all_of, make_task, results, run
from tests.agent.providers.builders import openai
from tests.gateway.hand_tool import HandTool
from tests.servers.scripted_model import Reply, ScriptedModel, Usage
from tests.servers.stage import Stage

WINDOW = 8192


@pytest.fixture
async def provider(model: ScriptedModel) -> AsyncIterator[OpenAIProvider]:
    made = openai(model)
    yield made
    await made.close()


def with_results(*texts: str) -> list[ChatMessage]:
    """A turn that has called a tool so often, one call after the other."""
    said = [ChatMessage("user", "look around")]
    for number, text in enumerate(texts):
        call = ToolCall(f"c{number}", "hand", {"word": "x"})
        said += [
            ChatMessage("assistant", tool_calls=(call,)),
            ChatMessage("tool", text, tool_call_id=call.id, tool_name="hand"),
        ]
    return said


def sent(model: ScriptedModel, number: int = -1) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = model.requests[number].json["messages"]
    return messages


def tokens(model: ScriptedModel, number: int = -1) -> int:
    """Of the messages of a request, calls left out."""
    return sum(tokens_of_text(each["content"] or "") for each in sent(model, number))


def resumed(provider: OpenAIProvider, *texts: str) -> AgentTask:
    return make_task(provider, progress=with_results(*texts), resumed=True)


# ── results of this turn ──


async def test_old_results_are_shortened_and_the_newest_stays_whole(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    events = await run(resumed(provider, "a" * 9_000, "b" * 9_000, "c" * 9_000))
    assert isinstance(events[-1], Final)
    first, second, third = (each["content"] for each in sent(model) if each["role"] == "tool")
    assert third == "c" * 9_000
    assert second == "b" * 9_000 or len(second) < 800
    assert len(first) < 800
    assert first.startswith("aaa")
    assert first.endswith("aaa")
    assert "characters of this are left out here" in first
    assert tokens(model) <= WINDOW * 3 // 4


async def test_the_transcript_keeps_results_whole(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    hand = HandTool()
    hand.let_go()
    word = "z" * 40_000
    stage.then(Reply(tool_calls=(("hand", {"word": "a"}),)))
    task = make_task(provider, hand, progress=with_results(word), resumed=True)
    events = await run(task)
    assert isinstance(events[-1], Final)
    assert len(sent(model, 0)[-1]["content"]) < 21_000
    assert task.progress[-1].text == word
    assert results(events) == ["hand did a"]


async def test_results_the_model_has_not_seen_share_the_room(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    calls = tuple(ToolCall(f"c{n}", "hand", {"word": "x"}) for n in range(3))
    texts = ("a" * 30_000, "b" * 30_000, "short")
    progress = [
        ChatMessage("user", "look"),
        ChatMessage("assistant", tool_calls=calls),
        *(ChatMessage("tool", t, tool_call_id=c.id) for t, c in zip(texts, calls, strict=True)),
    ]
    await run(make_task(provider, progress=progress, resumed=True))
    first, second, third = (each["content"] for each in sent(model)[-3:])
    assert third == "short"
    assert abs(len(first) - len(second)) < 10
    assert 5_000 < len(first) < 11_000


async def test_what_was_shortened_stays_the_same_in_the_next_steps(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    hand = HandTool()
    hand.let_go()
    stage.then(*[Reply(tool_calls=(("hand", {"word": "more"}),))] * 3)
    progress = with_results("a" * 9_000, "b" * 9_000, "c" * 3_000)
    await run(make_task(provider, hand, progress=progress, resumed=True))
    assert model.total == 4
    for number in range(3):
        earlier = sent(model, number)
        assert sent(model, number + 1)[: len(earlier)] == earlier


# ── what cannot be shortened ──


async def test_a_message_that_never_fits_is_said_to_be_too_long_and_nobody_is_asked(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    events = await run(make_task(provider, text="x" * 70_000))
    assert isinstance(events[-1], Failed)
    assert events[-1].kind == "too_long"
    assert events[-1].sentence == (
        "This message is about 20,008 tokens long, and about 6,646 fit the window of "
        "scripted: send less of it at once."
    )
    assert model.total == 0


async def test_a_message_that_only_just_fits_is_asked_with_a_shorter_reply(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    events = await run(make_task(provider, text="x" * 22_000))
    assert isinstance(events[-1], Final)
    limit = model.requests[0].json["max_tokens"]
    assert tokens(model) + limit <= WINDOW - margin_of(WINDOW)
    assert limit >= WINDOW // 8


async def test_tools_that_fill_the_window_are_said_to(model: ScriptedModel) -> None:
    small = openai(model, context_window=512)
    hand = HandTool()
    wordy = replace(hand.tool, description="Do it. " * 400)
    task = replace(make_task(small), tools={"hand": wordy})
    events = await run(task)
    await small.close()
    assert isinstance(events[-1], Failed)
    assert events[-1].kind == "too_long"
    assert "agent.tools" in events[-1].sentence
    assert model.total == 0


async def test_a_very_small_window_still_answers(model: ScriptedModel) -> None:
    small = openai(model, context_window=512)
    history = [ChatMessage("user", "hello " * 30), ChatMessage("assistant", "well " * 30)] * 5
    events = await run(make_task(small, text="and now? " * 20, history=history))
    await small.close()
    assert isinstance(events[-1], Final)
    assert all_of(events, HistoryTrimmed)
    assert tokens(model) <= 512 - 128 - 64


async def test_a_file_that_is_only_named_is_no_long_message(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    files = (
        Attachment("big.zip", "application/zip", "/nowhere/big.zip", 90_000_000),
        Attachment("long.txt", "text/plain", "/nowhere/long.txt", 150_000),
    )
    task = make_task(provider, progress=[ChatMessage("user", "look", attachments=files)])
    assert isinstance((await run(task))[-1], Final)
    assert "long.txt" in str(sent(model)[-1]["content"])


async def test_a_longer_reply_than_fits_is_not_asked_for(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    wishes = Wishes(max_output_tokens=8_000)
    request = Request("r1", (ChatMessage("user", "hello"),), wishes=wishes)
    await run(replace(make_task(provider), request=request))
    assert 7_000 < model.requests[0].json["max_tokens"] < 8_192 - margin_of(WINDOW)
    modest = replace(request, wishes=Wishes(max_output_tokens=100))
    await run(replace(make_task(provider), request=modest))
    assert model.requests[1].json["max_tokens"] == 100


# ── what the provider tells ──


async def test_what_the_provider_tells_corrects_the_next_request(
    provider: OpenAIProvider, stage: Stage, model: ScriptedModel
) -> None:
    known = Calibration()
    history = [ChatMessage("user", "x" * 600), ChatMessage("assistant", "y" * 600)] * 12
    stage.then(Reply(text="one", usage=Usage(9_000, 5)))
    task = replace(make_task(provider, history=history), calibration=known)
    assert not all_of(await run(task), HistoryTrimmed)
    estimated = tokens(model)
    assert known.factor(provider.label, provider.model) == pytest.approx(
        9_000 / estimated, rel=0.01
    )
    assert all_of(await run(task), HistoryTrimmed)
    assert tokens(model) * known.factor(provider.label, provider.model) <= WINDOW * 3 // 4


async def test_pictures_and_other_models_teach_nothing(
    provider: OpenAIProvider, stage: Stage
) -> None:
    known = Calibration()
    picture = Attachment("a.png", "image/png", "https://example.org/a.png", 1)
    said = ChatMessage("user", "what is this? " * 100, attachments=(picture,))
    stage.then(Reply(text="one", usage=Usage(1_000, 5)))
    await run(replace(make_task(provider, progress=[said]), calibration=known))
    assert known.to_rows() == {}


# ── cutting ──


@given(st.text(min_size=900, max_size=4_000), st.integers(60, 200))
def test_a_cut_text_is_as_short_as_wanted(text: str, wanted: int) -> None:
    cut = cut_middle(text, wanted)
    assert tokens_of_text(cut) <= max(wanted, estimate_tokens(120))
    head = cut.partition("\n[… ")[0]
    assert text.startswith(head) or "\n[… " in text


async def test_results_that_never_came_are_counted_too(
    provider: OpenAIProvider, model: ScriptedModel
) -> None:
    history: list[ChatMessage] = []
    for number in range(120):
        call = ToolCall(f"c{number}", "hand", {"word": "x"})
        history += [ChatMessage("user", "look"), ChatMessage("assistant", tool_calls=(call,))]
    events = await run(make_task(provider, history=history))
    assert isinstance(events[-1], Final)
    assert all_of(events, HistoryTrimmed)
    assert tokens(model) <= WINDOW * 3 // 4
