"""The purse of a turn, on a real store: held before the call, settled after, or no call at all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.agent.budget import Budget, Purse
from parley.agent.person import Plan
from parley.config.settings import Settings
from parley.protocol import ChatMessage, Usage
from parley.storage.contract import Claim, LeaseLost, TurnEnd
from parley.storage.hands import Spent
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, an_end, say

OWNER = "gateway-1"
SAID = (ChatMessage("assistant", "hm"),)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "parley.db")
    yield store
    await store.close()


async def a_turn(store: SqliteStore, chat: str = "c1", text: str = "hello") -> Claim:
    await say(store, text, chat=chat)
    (claim,) = await store.claim(OWNER, 1, [PLATFORM])
    return claim


def a_budget(prices: dict[str, Any] | None = None, **budgets: Any) -> Budget:
    return Budget(
        Settings.model_validate({"budgets": {"timezone": "UTC", **budgets}, "prices": prices or {}})
    )


def a_purse(store: SqliteStore, budget: Budget, claim: Claim) -> Purse:
    return Purse(store, budget, payer=claim.payer, turn=claim.turn, owner=claim.owner)


async def ask(
    purse: Purse,
    prompt: int = 1_000,
    answer: int | None = 500,
    *,
    provider: str = "openai",
    model: str = "gpt-5-mini",
) -> str | None:
    refusal = await purse.reserve(
        provider, model, prompt_tokens=prompt, max_output_tokens=answer, now=time.time()
    )
    return None if refusal is None else refusal.sentence


async def spent(store: SqliteStore, budget: Budget, claim: Claim) -> Spent:
    (first, *_) = await store.spent(claim.payer, budget.limits(time.time()))
    return first


async def test_a_call_is_held_and_then_counted_as_what_it_was(store: SqliteStore) -> None:
    budget = a_budget(user={"day_tokens": 10_000, "day_money": 1})
    claim = await a_turn(store)
    purse = a_purse(store, budget, claim)
    assert await ask(purse) is None
    assert await spent(store, budget, claim) == Spent(1_500, 1_000 // 4 + 500 * 2)
    usage = purse.priced(Usage("openai", "gpt-5-mini", 800, 20, 400))
    assert usage.micros == 100 + 10 + 40
    await store.step(claim, SAID, usage)
    assert await spent(store, budget, claim) == Spent(820, 150)


async def test_what_the_budget_does_not_reach_for_is_not_asked(store: SqliteStore) -> None:
    budget = a_budget(user={"day_tokens": 2_000})
    claim = await a_turn(store)
    purse = a_purse(store, budget, claim)
    said = await ask(purse, 1_501)
    assert said is not None
    assert said.startswith("Your budget for today does not reach for this: 0 of 2,000 tokens")
    assert await spent(store, budget, claim) == Spent()
    assert await ask(purse, 1_500) is None


async def test_money_runs_out_too(store: SqliteStore) -> None:
    budget = a_budget({"dear": {"input": 1_000, "output": 2_000}}, session={"month_money": 2})
    purse = a_purse(store, budget, await a_turn(store))
    assert await ask(purse, 1_000, 500, model="dear") is None
    said = await ask(purse, 1_000, 501, model="dear")
    assert said is not None
    assert "conversation's budget for this month" in said
    assert "$0.00 of $2.00 are spent or held, and it may take $2.0020 more" in said


async def test_what_one_turn_holds_another_cannot_have(store: SqliteStore) -> None:
    budget = a_budget(profile={"day_tokens": 2_500})
    one, other = await a_turn(store, "c1"), await a_turn(store, "c2")
    assert await ask(a_purse(store, budget, one)) is None
    said = await ask(a_purse(store, budget, other))
    assert said is not None
    assert said.startswith("This profile's budget for today")
    assert "1,500 of 2,500" in said
    await store.commit(one, an_end("done", chat="c1"))
    assert await ask(a_purse(store, budget, other)) is None


async def test_one_persons_budget_is_not_anothers(store: SqliteStore) -> None:
    budget = a_budget(user={"day_tokens": 2_000}, session={"day_tokens": 2_000})
    one, other = await a_turn(store, "c1"), await a_turn(store, "c2")
    assert await ask(a_purse(store, budget, one)) is None
    assert await ask(a_purse(store, budget, other)) is None


async def test_a_budget_in_money_wants_a_price(store: SqliteStore) -> None:
    claim = await a_turn(store)
    said = await ask(a_purse(store, a_budget(user={"day_money": 5}), claim), model="their-own")
    assert said is not None
    assert "`prices.their-own`" in said
    assert await ask(a_purse(store, a_budget(user={"day_tokens": 5_000}), claim), model="x") is None


async def test_the_model_on_this_machine_needs_no_money(store: SqliteStore) -> None:
    budget = a_budget(user={"day_money": 0})
    purse = a_purse(store, budget, await a_turn(store))
    assert await ask(purse, provider="local", model="smollm2") is None
    assert await ask(purse) is not None


async def test_a_stand_in_without_a_price_costs_what_was_held(store: SqliteStore) -> None:
    purse = a_purse(store, a_budget(user={"day_money": 5}), await a_turn(store))
    assert purse.priced(Usage("other", "their-own", 1_000)).micros == 0
    assert await ask(purse) is None
    assert purse.priced(Usage("other", "their-own", 1_000)).micros == 250
    assert purse.priced(Usage("local", "smollm2", 1_000)).micros == 0


async def test_a_turn_that_was_stopped_holds_nothing_more(store: SqliteStore) -> None:
    purse = a_purse(store, a_budget(user={"day_tokens": 5_000}), claim := await a_turn(store))
    await store.commit(claim, TurnEnd("done"))
    with pytest.raises(LeaseLost):
        await ask(purse)


async def test_without_budgets_no_store_is_asked_and_the_cost_is_still_told(
    store: SqliteStore,
) -> None:
    purse = a_purse(store, a_budget(), await a_turn(store))
    await store.close()
    assert await ask(purse, 10**9, None, model="their-own") is None
    assert purse.priced(Usage("openai", "gpt-5-mini", 1_000)).micros == 250
    assert purse.priced(Usage("openai", "their-own", 1_000)).micros == 0


async def test_a_plan_is_held_to_where_nothing_else_is_limited(store: SqliteStore) -> None:
    budget, plan = a_budget(), Plan("Beta", 1_000)
    claim = await a_turn(store)

    def purse(plan: Plan | None) -> Purse:
        return Purse(
            store, budget, payer=claim.payer, turn=claim.turn, owner=claim.owner, plan=plan
        )

    assert [purse(each).is_limited for each in (None, plan)] == [False, True]
    assert await ask(purse(plan), 5_000) is None  # the call itself may go beyond it
    await store.step(claim, SAID, Usage("openai", "gpt-5-mini", 900, 124))
    said = await ask(purse(plan), 1)
    assert said is not None
    assert said.startswith("Your plan Beta is used up: 1,024 of 1,000 tokens")
    assert await ask(purse(None), 1) is None
