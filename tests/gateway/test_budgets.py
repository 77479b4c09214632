"""Budgets hold for every turn: over them there is a sentence and no call."""

from __future__ import annotations

import time

import pytest

from parley.agent.budget import Budget
from parley.config import Settings
from parley.storage.hands import Limit, Payer
from tests.gateway.desk import Desk, at
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, Usage
from tests.servers.stage import Stage
from tests.waiting import until

PRICED = {"scripted": {"input": 1.0, "output": 10.0}}


def reply(text: str, *, tokens_in: int = 100, tokens_out: int = 10) -> Reply:
    return Reply(text=text, usage=Usage(tokens_in, tokens_out))


async def spent(house: House, whose: str, period: str, chat: str = "one") -> tuple[int, int]:
    """Tokens and millionths of a dollar."""
    assert house.store is not None
    budgets = {whose: {f"{period}_tokens": 1_000_000}}
    [limit] = Budget(Settings.model_validate({"budgets": budgets})).limits(time.time())
    session = await house.session(chat)
    [found] = await house.store.spent(Payer("desk:ann", session.id), [limit])
    return found.tokens, found.micros


@pytest.mark.parametrize("whose", ["profile", "user", "session"])
@pytest.mark.parametrize("period", ["day", "month"])
async def test_over_a_budget_of_tokens_the_model_is_not_asked(
    house: House, stage: Stage, whose: str, period: str
) -> None:
    desk = await house.open(
        access={"owners": ["desk:ann"]}, budgets={whose: {f"{period}_tokens": 20_000}}
    )
    stage.then(reply("one", tokens_in=15_000, tokens_out=4_000))
    assert await desk.ask("first") == "one"
    asked = len(house.model.requests)
    refused = await desk.ask("second")
    assert "budget" in refused
    assert "19,000" in refused
    assert "20,000 tokens" in refused
    assert len(house.model.requests) == asked
    assert await spent(house, whose, period) == (19_000, 0)


async def test_money_is_counted_by_the_price_of_the_settings(house: House, stage: Stage) -> None:
    desk = await house.open(prices=PRICED, budgets={"user": {"day_money": 0.05}})
    stage.then(reply("one", tokens_in=10_000, tokens_out=2_000))
    assert await desk.ask("first") == "one"
    assert await spent(house, "user", "day") == (12_000, 30_000)
    refused = await desk.ask("second")
    assert "$0.03" in refused
    assert "$0.05" in refused
    assert "Your budget" in refused


async def test_a_budget_in_money_and_an_unknown_price_is_no_call(
    house: House, stage: Stage
) -> None:
    desk = await house.open(
        access={"owners": ["desk:ann"]}, budgets={"profile": {"month_money": 5.0}}
    )
    stage.then(reply("never"))
    told = await desk.ask("first")
    assert "prices.scripted" in told
    assert len(house.model.requests) == 0


async def test_each_conversation_has_its_own_budget(house: House, stage: Stage) -> None:
    desk = await house.open(budgets={"session": {"day_tokens": 20_000}})
    stage.then(reply("one", tokens_in=19_000), reply("two"))
    assert await desk.ask("first", chat="one") == "one"
    assert "This conversation's budget" in await desk.ask("again", chat="one")
    assert await desk.ask("hello", chat="two") == "two"


async def test_tokens_used_before_there_was_a_budget_count_too(house: House, stage: Stage) -> None:
    desk = await house.open()
    stage.then(reply("one", tokens_in=19_000))
    assert await desk.ask("first") == "one"
    await house.close()
    desk = await house.open(budgets={"user": {"month_tokens": 20_000}})
    assert "Your budget for this month" in await desk.ask("second")


async def test_a_turn_stops_in_its_midst_when_the_budget_is_used_up(
    house: House, stage: Stage
) -> None:
    desk = await house.open(budgets={"user": {"day_tokens": 20_000}})
    calls = Reply(tool_calls=(("now", {}),), usage=Usage(18_000, 100))
    stage.then(calls, reply("never"))
    assert "Your budget" in await desk.ask("what time is it?")
    assert len(house.model.requests) == 1


async def test_what_is_held_for_running_calls_counts(house: House, stage: Stage) -> None:
    """Two conversations at once cannot both spend what is left for one."""
    desk = await house.open(
        access={"owners": ["desk:ann"]}, budgets={"profile": {"day_tokens": 5_500}}
    )
    stage.then(Reply(text="slow", delay=1.0, usage=Usage(100, 10)))
    await desk.say("first", chat="one", event_id="e1")
    await until(lambda: len(house.model.requests) == 1)
    assert "profile's budget" in await desk.ask("second", chat="two")
    await until(lambda: desk.answer_to("e1"))
    stage.then(reply("third"))
    assert await desk.ask("third", chat="two") == "third"


async def test_a_call_that_a_crash_cut_off_is_counted(house: House, stage: Stage) -> None:
    desk = await house.open(budgets={"user": {"day_tokens": 50_000}})
    stage.then(Reply(text="never", delay=2.0), reply("at last", tokens_in=100, tokens_out=10))
    await desk.say("first", event_id="e1")
    await until(lambda: len(house.model.requests) == 1)
    await house.crash()
    desk = await house.open(budgets={"user": {"day_tokens": 50_000}})
    await until(lambda: desk.answer_to("e1"))
    tokens, _ = await spent(house, "user", "day")
    assert tokens > 110


async def test_a_server_that_tells_no_numbers_is_counted_by_estimate(
    house: House, stage: Stage
) -> None:
    desk = await house.open(budgets={"user": {"day_tokens": 50_000}})
    stage.then(Reply(text="hello there", usage=Usage(0, 0)))
    await desk.ask("hi")
    tokens, _ = await spent(house, "user", "day")
    assert tokens > 100


async def test_delegated_and_planned_turns_count_for_whoever_asked(
    house: House, stage: Stage
) -> None:
    desk = await house.open(budgets={"user": {"day_tokens": 100_000}})
    stage.then(
        Reply(tool_calls=(("delegate_task", {"goal": "count"}),), usage=Usage(1_000, 0)),
        reply("forty-two", tokens_in=20_000, tokens_out=0),
        reply("42", tokens_in=1_000, tokens_out=0),
    )
    assert await desk.ask("how many?") == "42"
    assert await spent(house, "user", "day") == (22_000, 0)
    assert await spent(house, "session", "day") == (22_000, 0)


async def test_a_delegated_task_over_budget_makes_no_call(house: House, stage: Stage) -> None:
    desk = await house.open(budgets={"session": {"day_tokens": 20_000}})
    stage.then(
        Reply(tool_calls=(("delegate_task", {"goal": "count"}),), usage=Usage(17_500, 0)),
    )
    assert "budget" in await desk.ask("how many?")
    assert len(house.model.requests) == 1


async def test_usage_tells_what_is_left(house: House, stage: Stage) -> None:
    desk = await house.open(
        prices=PRICED, budgets={"user": {"day_tokens": 50_000, "month_money": 2.0}}
    )
    stage.then(reply("one", tokens_in=1_000, tokens_out=100))
    await desk.ask("first")
    told = await desk.ask("/usage")
    assert "1,100 of 50,000 tokens" in told
    assert "of $2.00" in told


async def test_without_budgets_nothing_is_held(house: House, stage: Stage) -> None:
    desk: Desk = await house.open()
    stage.then(reply("one"))
    assert await desk.ask("first") == "one"
    assert house.store is not None
    limit = Limit("user", "day", 0.0, time.time() + 1, tokens=1)
    session = await house.session()
    [found] = await house.store.spent(Payer(f"desk:{at('one').user_id}", session.id), [limit])
    assert found.tokens == 110
