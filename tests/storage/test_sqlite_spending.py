"""Whatever the order of events: running sums are what the ledger says, and no limit is broken."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.protocol import Usage
from parley.storage.contract import Claim, TurnEnd
from parley.storage.hands import Limit, Payer, Reservation
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, say

_SINCE, _UNTIL = time.time() - 3600, time.time() + 3600
_LIMITS = [
    Limit("profile", "day", _SINCE, _UNTIL, tokens=500),
    Limit("user", "day", _SINCE, _UNTIL, tokens=300, micros=3000),
    Limit("session", "month", 0.0, _UNTIL, micros=2000),
]
_DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "step", "commit", "fail", "stop", "recover"]),
        st.sampled_from(["c1", "c2", "c3"]),
        st.integers(1, 120),
    ),
    max_size=30,
)


class _Household:
    """Three lanes; each of them calls only what it has reserved, and uses no more than that."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.owner = 1
        self.claims: dict[str, Claim] = {}
        self.held: dict[str, int] = {}
        self.payers: set[Payer] = set()

    async def do(self, deed: str, lane: str, size: int) -> None:
        claim = await self._claim(lane)
        usage = Usage("p", "m", size // 2, size - size // 2, micros=size * 10)
        match deed:
            case "reserve":
                wanted = Reservation(
                    *(claim.turn, claim.payer, claim.owner, "p", "m"),
                    input_tokens=size // 2,
                    tokens=size,
                    micros=size * 10,
                )
                if await self.store.reserve(wanted, _LIMITS) is None:
                    self.held[lane] = size
            case "step" if size <= self.held.get(lane, 0):
                await self.store.step(claim, [], usage)
                self.held.pop(lane)
            case "commit" if size <= self.held.get(lane, 0):
                await self.store.commit(claim, TurnEnd("done", usage=usage))
                self._over(lane)
            case "fail":
                await self.store.commit(claim, TurnEnd("failed"))
                self._over(lane)
            case "stop":
                await self.store.stop(lane)
                self._over(lane)
            case "recover":
                self.owner += 1
                await self.store.recover(f"owner-{self.owner}")
                self.claims.clear()
                self.held.clear()

    async def _claim(self, lane: str) -> Claim:
        if lane not in self.claims:
            await say(self.store, f"hello {time.perf_counter()}", chat=lane)
            for claim in await self.store.claim(f"owner-{self.owner}", 9, [PLATFORM]):
                self.claims[claim.lane] = claim
                self.payers.add(claim.payer)
        return self.claims[lane]

    def _over(self, lane: str) -> None:
        self.claims.pop(lane)
        self.held.pop(lane, None)

    async def check(self) -> None:
        for payer in self.payers:
            for limit, spent in zip(_LIMITS, await self.store.spent(payer, _LIMITS), strict=True):
                assert limit.tokens is None or spent.tokens <= limit.tokens
                assert limit.micros is None or spent.micros <= limit.micros
        ledger = "SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM usage"
        held = "SELECT coalesce(sum(tokens), 0) FROM reservation"
        one = await self._one(f"SELECT ({ledger}), ({held})")
        assert one[1] == sum(self.held.values())
        everyone = Payer("nobody", "nothing")
        [all_of_it] = await self.store.spent(everyone, _LIMITS[:1])
        assert all_of_it.tokens == one[0] + one[1]

    async def _one(self, query: str) -> tuple[int, int]:
        found = await self.store._engine.read(lambda db: db.execute(query).fetchone())
        return found[0], found[1]


@settings(max_examples=40, deadline=None)
@given(deeds=_DEEDS)
def test_sums_agree_with_the_ledger_and_no_limit_is_broken(
    deeds: list[tuple[str, str, int]],
) -> None:
    async def live(file: Path) -> None:
        store = SqliteStore.open(file)
        household = _Household(store)
        for deed, lane, size in deeds:
            await household.do(deed, lane, size)
            await household.check()
        await store.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(Path(folder) / "parley.db"))


async def test_sums_of_times_long_past_are_cleared_away(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "parley.db")
    now = time.time()
    payer = Payer("p", "s")
    days = [Limit("user", "day", now - 86400 * n, now - 86400 * (n - 1)) for n in (60, 50, 3, 1)]
    for day in days:
        await store.spent(payer, [day])
    count = "SELECT count(*) FROM spend"
    kept = await store._engine.read(lambda db: db.execute(count).fetchone()[0])
    assert kept == 2
    await store.close()
