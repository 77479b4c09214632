"""What a call may cost is held before it is made: no limit is broken, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Literal

import pytest

from parley.protocol import Behalf, Request, Usage
from parley.storage.contract import Claim, LeaseLost, NewSession, StopTurn, Store, TurnEnd
from parley.storage.hands import Limit, Overrun, Payer, Reservation, Spent
from tests.builders import PLATFORM, a_message, event_name, say
from tests.storage.conformance.base import (
    OWNER,
    OpenStore,
    asked,
    claim_one,
    command,
    spoken,
)

_DAY = (float(int(time.time()) - 3600), float(int(time.time()) + 80_000))


def _limit(
    whose: Literal["profile", "user", "session"] = "profile",
    *,
    tokens: int | None = None,
    micros: int | None = None,
) -> Limit:
    return Limit(whose, "day", *_DAY, tokens=tokens, micros=micros)


_ALL = (_limit(), _limit("user"), _limit("session"))


def _wanted(claim: Claim, **changed: Any) -> Reservation:
    """A call of 100 tokens, 40 of which are sent, for 1000 millionths."""
    wanted = Reservation(
        turn=claim.turn,
        payer=claim.payer,
        owner=claim.owner,
        provider="p",
        model="m",
        input_tokens=40,
        tokens=100,
        micros=1000,
    )
    return replace(wanted, **changed)


async def _running(store: Store, chat: str = "c1", *, owner: str = OWNER) -> Claim:
    await say(store, f"hello {time.perf_counter()}", chat=chat)
    claim = await claim_one(store, owner=owner)
    assert claim.lane == chat
    return claim


def _used(tokens: int = 30, micros: int = 300) -> Usage:
    return Usage("p", "m", input_tokens=tokens - 10, output_tokens=10, micros=micros)


class SpendingPromises:
    async def test_what_was_spent_is_counted_for_profile_person_and_session(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        one = await _running(store)
        assert await store.spent(one.payer, _ALL) == [Spent()] * 3
        await store.step(one, [spoken("x")], _used(30, 300))
        await store.commit(one, TurnEnd("done", usage=_used(20, 200)))
        two = await _running(store, "c2")
        await store.commit(two, TurnEnd("done", usage=_used(11, 1)))
        await store.close()
        again = await open_store()
        assert await again.spent(one.payer, _ALL) == [
            Spent(61, 501),
            Spent(50, 500),
            Spent(50, 500),
        ]
        assert await again.spent(two.payer, _ALL) == [Spent(61, 501), Spent(11, 1), Spent(11, 1)]
        elsewhere = Payer(one.payer.user, two.payer.session)
        assert (await again.spent(elsewhere, _ALL))[1:] == [Spent(50, 500), Spent(11, 1)]

    async def test_a_limit_that_is_first_asked_for_later_counts_what_was_before(
        self, store: Store
    ) -> None:
        claim = await _running(store)
        await store.step(claim, [], _used())
        assert await store.spent(claim.payer, _ALL) == [Spent(30, 300)] * 3
        await store.step(claim, [], _used())
        assert await store.spent(claim.payer, _ALL) == [Spent(60, 600)] * 3
        past = Limit("profile", "day", _DAY[0] - 9, _DAY[0])
        assert await store.spent(claim.payer, [past]) == [Spent()]
        month = Limit("user", "month", 0.0, _DAY[1])
        assert await store.spent(claim.payer, [month, past]) == [Spent(60, 600), Spent()]
        await store.step(claim, [], _used())
        assert await store.spent(claim.payer, [month, past]) == [Spent(90, 900), Spent()]

    async def test_a_task_is_counted_for_whoever_delegated_it(self, store: Store) -> None:
        parent = await _running(store)
        behalf = Behalf(parent.payer.user, parent.session, platform=PLATFORM)
        request = Request("r", (asked("do it"),), behalf=behalf, lasting=True)
        message = replace(a_message("do it", chat="t1"), request=request)
        await store.submit("t1", "task", message)
        task = await claim_one(store)
        await store.step(task, [], _used())
        assert await store.spent(parent.payer, _ALL) == [Spent(30, 300)] * 3
        await store.commit(task, TurnEnd("done", usage=_used()))
        assert await store.spent(parent.payer, _ALL) == [Spent(60, 600)] * 3
        own = Payer("test:user-of-t1", task.session)
        assert (await store.spent(own, _ALL))[1:] == [Spent(), Spent()]

    # ── what is held ──

    async def test_what_is_held_is_let_go_when_the_cost_is_known(self, store: Store) -> None:
        claim = await _running(store)
        assert await store.reserve(_wanted(claim), _ALL) is None
        assert await store.spent(claim.payer, _ALL) == [Spent(100, 1000)] * 3
        await store.step(claim, [spoken("x")])
        assert await store.spent(claim.payer, _ALL) == [Spent(100, 1000)] * 3
        await store.step(claim, [spoken("y")], _used(30, 300))
        assert await store.spent(claim.payer, _ALL) == [Spent(30, 300)] * 3
        assert await store.reserve(_wanted(claim), _ALL) is None
        await store.commit(claim, TurnEnd("done", usage=_used(30, 300)))
        assert await store.spent(claim.payer, _ALL) == [Spent(60, 600)] * 3

    async def test_what_is_held_is_let_go_when_its_turn_ends_without_a_cost(
        self, store: Store
    ) -> None:
        claim = await _running(store)
        assert await store.reserve(_wanted(claim), _ALL) is None
        await store.commit(claim, TurnEnd("failed"))
        assert await store.spent(claim.payer, _ALL) == [Spent()] * 3

    async def test_a_turn_makes_one_call_at_a_time(self, store: Store) -> None:
        """Tried again with another model, it holds what that one may cost."""
        claim = await _running(store)
        limit = _limit(tokens=120)
        assert await store.reserve(_wanted(claim), [limit]) is None
        assert await store.reserve(_wanted(claim, tokens=120), [limit]) is None
        assert await store.spent(claim.payer, [limit]) == [Spent(120, 1000)]

    @pytest.mark.parametrize("whose", ["profile", "user", "session"])
    @pytest.mark.parametrize("what", ["tokens", "micros"])
    async def test_a_call_that_would_break_a_limit_is_not_held(
        self, store: Store, whose: Literal["profile", "user", "session"], what: str
    ) -> None:
        claim = await _running(store)
        enough = {"tokens": 130} if what == "tokens" else {"micros": 1300}
        short = {"tokens": 129} if what == "tokens" else {"micros": 1299}
        await store.step(claim, [], _used(30, 300))
        broken = _limit(whose, **short)
        for limits in ([broken], [*_ALL, broken], [broken, *_ALL]):
            overrun = await store.reserve(_wanted(claim), limits)
            assert overrun == Overrun(broken, Spent(30, 300))
        assert await store.spent(claim.payer, _ALL) == [Spent(30, 300)] * 3
        assert await store.reserve(_wanted(claim), [_limit(whose, **enough)]) is None

    async def test_a_call_may_go_beyond_a_plan_that_is_not_used_up(self, store: Store) -> None:
        claim = await _running(store)
        plan = replace(_limit("user", tokens=60), plan="Beta")
        for used in (30, 29):
            assert await store.reserve(_wanted(claim, tokens=9999), [plan]) is None
            await store.step(claim, [], _used(used, 300))
        budget = _limit("user", tokens=120)
        overrun = await store.reserve(_wanted(claim), [plan, budget])
        assert overrun == Overrun(budget, Spent(59, 600))
        assert await store.reserve(_wanted(claim), [plan]) is None
        await store.step(claim, [], _used(11, 300))
        for limit in (60, 70, 0):
            used_up = replace(plan, tokens=limit)
            overrun = await store.reserve(_wanted(claim, tokens=0), [used_up])
            assert overrun == Overrun(used_up, Spent(70, 900))
        for more in (71, None):
            assert await store.reserve(_wanted(claim), [replace(plan, tokens=more)]) is None

    async def test_what_is_held_already_counts_against_a_plan(self, store: Store) -> None:
        plan = replace(_limit(tokens=250), plan="Beta")
        claims = [await _running(store, f"c{number}") for number in range(5)]
        overruns = await asyncio.gather(
            *(store.reserve(_wanted(claim), [plan]) for claim in claims)
        )
        assert overruns == [None] * 3 + [Overrun(plan, Spent(300, 3000))] * 2

    async def test_calls_side_by_side_do_not_break_a_limit_together(self, store: Store) -> None:
        claims = [await _running(store, f"c{number}") for number in range(6)]
        limit = _limit(tokens=350)
        overruns = await asyncio.gather(
            *(store.reserve(_wanted(claim), [limit]) for claim in claims)
        )
        assert overruns.count(None) == 3
        assert {overrun.spent for overrun in overruns if overrun} == {Spent(300, 3000)}
        # What one person holds is no other's concern.
        others = await store.spent(claims[-1].payer, _ALL)
        assert others == [Spent(300, 3000), Spent(), Spent()]

    @pytest.mark.parametrize("by", ["stop", "command", "new"])
    async def test_what_a_stopped_turn_had_sent_is_spent(self, store: Store, by: str) -> None:
        claim = await _running(store)
        await store.spent(claim.payer, _ALL)
        assert await store.reserve(_wanted(claim), _ALL) is None
        match by:
            case "stop":
                await store.stop("c1")
            case "command":
                await command(store, StopTurn(), text="/stop")
            case "new":
                await command(store, NewSession(), text="/new")
        assert await store.spent(claim.payer, _ALL) == [Spent(40, 400)] * 3
        [session] = [s for s in await store.sessions() if s.id == claim.session]
        assert session.input_tokens == 40
        with pytest.raises(LeaseLost):
            await store.reserve(_wanted(claim), _ALL)
        assert await store.spent(claim.payer, _ALL) == [Spent(40, 400)] * 3

    async def test_what_a_dead_gateway_had_sent_is_spent_once(self, open_store: OpenStore) -> None:
        first = await open_store()
        claim = await _running(first)
        assert await first.reserve(_wanted(claim), _ALL) is None
        await first.close()
        second = await open_store()
        for _ in range(2):
            await second.recover("another")
            assert await second.spent(claim.payer, _ALL) == [Spent(40, 400)] * 3
        again = await claim_one(second, owner="another")
        assert await second.reserve(_wanted(again), _ALL) is None
        await second.recover("another")
        await second.commit(again, TurnEnd("done", usage=_used(30, 300)))
        assert await second.spent(claim.payer, _ALL) == [Spent(70, 700)] * 3

    async def test_what_a_turn_had_sent_when_it_was_given_back_is_spent(self, store: Store) -> None:
        claim = await _running(store)
        assert await store.reserve(_wanted(claim), _ALL) is None
        await store.release(claim)
        assert await store.spent(claim.payer, _ALL) == [Spent(40, 400)] * 3

    async def test_nothing_is_held_for_a_turn_of_another_owner(self, store: Store) -> None:
        claim = await _running(store)
        with pytest.raises(LeaseLost):
            await store.reserve(_wanted(claim, owner="another"), _ALL)
        with pytest.raises(LeaseLost):
            await store.reserve(_wanted(claim, turn=claim.turn + 1), _ALL)
        assert await store.spent(claim.payer, _ALL) == [Spent()] * 3

    async def test_a_deleted_session_stays_counted_for_the_profile_and_the_person(
        self, store: Store
    ) -> None:
        claim = await _running(store)
        await store.spent(claim.payer, _ALL)
        await store.commit(claim, TurnEnd("done", usage=_used(30, 300)))
        assert await store.delete_session(claim.session)
        spent = [Spent(30, 300), Spent(30, 300), Spent()]
        assert await store.spent(claim.payer, _ALL) == spent
        month = [replace(limit, period="month", since=0.0) for limit in _ALL]
        assert await store.spent(claim.payer, month) == spent

    async def test_what_a_message_cost_is_told_in_money_too(self, store: Store) -> None:
        await say(store, "hello")
        claim = await claim_one(store)
        await store.step(claim, [spoken("x")], _used(30, 300))
        await store.commit(claim, TurnEnd("done", usage=_used(20, 200)))
        result = await store.turn_result(event_name("hello"))
        assert result is not None and result.usage is not None
        assert result.usage.micros == 500
