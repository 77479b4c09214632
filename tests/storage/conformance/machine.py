"""Random operations on a store beside a tiny model of it in memory.

Whatever the order of events: no message is lost, none is answered twice, the order of a lane is
kept, and a lane runs at most one turn.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parley.storage.contract import Claim, LeaseLost, NewSession, Nothing, StopTurn, Store, TurnEnd
from tests.builders import PLATFORM, a_draft, a_message, say
from tests.storage.conformance.base import spoken

T = TypeVar("T")

LANES = st.sampled_from(["a", "b", "c"])


@dataclass
class _Lane:
    """What a lane should be: texts that wait, texts in the running turn, texts that are over."""

    waiting: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    steps: int = 0
    turn: int | None = None
    attempt: int = 0


class LaneMachine(RuleBasedStateMachine):
    """Bound to an engine by `open_store`."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.lanes = {name: _Lane() for name in ("a", "b", "c")}
        self.held: dict[str, Claim] = {}
        self.stale: list[Claim] = []
        self.commands: list[tuple[str, int]] = []
        self.owner = 1
        self.said = 0

    @abstractmethod
    def open_store(self) -> Awaitable[Store]:
        """The machine's own database."""

    def do(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    @initialize()
    def begin(self) -> None:
        self.store = self.do(self.open_store())

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()

    # ── what may happen ──

    @rule(lane=LANES)
    def submit(self, lane: str) -> None:
        self.said += 1
        assert self.do(say(self.store, str(self.said), chat=lane)).state == "queued"
        self.lanes[lane].waiting.append(str(self.said))

    @precondition(lambda self: self.said > 0)
    @rule(lane=LANES)
    def submit_again(self, lane: str) -> None:
        model = self.lanes[lane]
        for text in (*model.over, *model.running, *model.waiting)[:3]:
            assert self.do(say(self.store, text, chat=lane)).state == "duplicate"

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        claims = self.do(self.store.claim(f"owner-{self.owner}", limit, [PLATFORM]))
        ready = {
            name
            for name, model in self.lanes.items()
            if name not in self.held and (model.running or model.waiting)
        }
        assert len(claims) == min(limit, len(ready))
        for claim in claims:
            assert claim.lane in ready
            model = self.lanes[claim.lane]
            if model.running:
                assert (claim.turn, claim.attempt) == (model.turn, model.attempt + 1)
            else:
                model.running, model.steps = [model.waiting.pop(0)], 0
                assert claim.attempt == 1
            assert [taken.message.text for taken in claim.messages] == model.running
            model.turn, model.attempt = claim.turn, claim.attempt
            self.held[claim.lane] = claim

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        self.do(self.store.step(claim, [spoken("step")]))
        self.lanes[claim.lane].steps += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def absorb(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        model = self.lanes[claim.lane]
        assert self.do(self.store.peek(claim)) == len(model.waiting)
        taken = self.do(self.store.absorb(claim))
        assert [message.message.text for message in taken] == model.waiting
        model.running += model.waiting
        model.waiting = []

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        reply = a_draft(str(claim.turn), chat=claim.lane)
        self.do(self.store.commit(claim, TurnEnd("done", (spoken("answer"),), (reply,))))
        self._over(claim.lane)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        self.do(self.store.release(claim))
        self.stale.append(self.held.pop(claim.lane))

    @rule(lane=LANES)
    def stop(self, lane: str) -> None:
        model = self.lanes[lane]
        stopped = self.do(self.store.stop(lane))
        assert stopped.turn == (model.turn if model.running else None)
        self._over(lane)

    @rule()
    def another_owner_recovers(self) -> None:
        self.owner += 1
        assert self.do(self.store.recover(f"owner-{self.owner}", [PLATFORM])) == len(self.held)
        self.stale += self.held.values()
        self.held.clear()

    @rule(lane=LANES, effect=st.sampled_from([Nothing(), NewSession(), StopTurn(True)]))
    def command(self, lane: str, effect: Nothing | NewSession | StopTurn) -> None:
        self.said += 1
        name = f"command-{self.said}"
        message = a_message(name, chat=lane)
        receipt = self.do(self.store.submit(lane, name, message, kind="command"))
        for expected in (True, False):
            handed = self.do(
                self.store.answer(
                    lane, receipt.inbox_id, effect, lambda _: a_draft(name, chat=lane)
                )
            )
            assert (handed is not None) is expected
        if not isinstance(effect, Nothing):
            self._over(lane)
        if isinstance(effect, StopTurn):
            model = self.lanes[lane]
            model.over += model.waiting
            model.waiting = []

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def a_stale_turn_speaks(self, data: st.DataObject) -> None:
        claim = data.draw(st.sampled_from(self.stale))
        for call in (
            self.store.check(claim),
            self.store.step(claim, [spoken("stale")]),
            self.store.commit(claim, TurnEnd("done", (), (a_draft("stale"),))),
            self.store.absorb(claim),
            self.store.release(claim),
        ):
            try:
                self.do(call)
            except LeaseLost:
                continue
            raise AssertionError("a stale turn was listened to")

    # ── what always holds ──

    @invariant()
    def counts_are_right(self) -> None:
        if not self.said:
            return
        health = self.do(self.store.health())
        assert health.queued == sum(len(model.waiting) for model in self.lanes.values())
        assert health.running == len(self.held)

    @invariant()
    def what_is_held_is_held(self) -> None:
        for claim in self.held.values():
            self.do(self.store.check(claim))
            entries = self.do(self.store.transcript(claim.session, whole=True))
            mine = [entry.message for entry in entries if entry.turn == claim.turn]
            model = self.lanes[claim.lane]
            assert [m.text for m in mine if m.role == "user"] == model.running
            assert len([m for m in mine if m.text == "step"]) == model.steps

    def _pick(self, data: st.DataObject) -> Claim:
        return self.held[data.draw(st.sampled_from(sorted(self.held)))]

    def _over(self, lane: str) -> None:
        model = self.lanes[lane]
        model.over += model.running
        model.running = []
        if lane in self.held:
            self.stale.append(self.held.pop(lane))
