"""Random operations on a store beside a tiny model of it in memory.

Whatever the order of events: no message is lost, none is answered twice, the order of a lane is
kept, a lane runs at most one turn, and a session ends between turns only. A program's message is
alone in its turn, and only what nobody waits for is given up. Names of lanes change with the
namespace; what is in them does not. A chat keeps its number and its lane, and a mark is where the
last messages that came with it left it.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parley.storage.contract import (
    Claim,
    LeaseLost,
    NewSession,
    Nothing,
    StopTurn,
    Store,
    TurnEnd,
    Withdrawn,
)
from parley.storage.people import Arrival
from tests.builders import PLATFORM, a_draft, a_message, a_source, event_name
from tests.storage.conformance.base import a_program_message, a_work, asked, spoken

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
    exists: bool = False
    talked: bool = False
    """A turn began in its session."""
    works: list[str] = field(default_factory=list)
    chat: int | None = None
    """The number of the chat that has it for itself."""

    @property
    def is_over(self) -> bool:
        """Whether a late message begins a new session."""
        return self.talked and not (self.waiting or self.running or self.works)

    def begin_session(self) -> None:
        self.talked, self.works = False, []


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
        self.namespace = "main"
        self.programs: dict[str, bool] = {}
        """The texts that programs sent, and whether they last."""
        self.chats = 0
        self.mark: str | None = None

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

    @rule(lane=LANES, late=st.booleans())
    def submit(self, lane: str, late: bool) -> None:
        self.said += 1
        text, model = str(self.said), self.lanes[lane]
        receipt = self.do(
            self.store.submit(
                self._name(lane),
                event_name(text, chat=lane),
                a_message(text, chat=lane),
                fresh_before=time.time() + 1 if late else None,
            )
        )
        assert (receipt.state, receipt.fresh) == ("queued", late and model.is_over)
        if receipt.fresh:
            model.begin_session()
        model.exists = True
        model.waiting.append(text)

    @rule(lanes=st.lists(LANES, max_size=4), again=st.booleans())
    def messages_come_with_a_mark(self, lanes: list[str], again: bool) -> None:
        arrivals = []
        for lane in lanes:
            self.said += 1
            text = str(self.said)
            name = event_name(text, chat=lane)
            arrivals.append(Arrival(self._name(lane), name, a_message(text, chat=lane)))
            self.lanes[lane].exists = True
            self.lanes[lane].waiting.append(text)
        self.mark = None if self.mark and not lanes else f"after {self.said}"
        for state in ("queued", "duplicate")[: 1 + again]:
            receipts = self.do(self.store.submit_all(arrivals, {"since": self.mark}))
            assert [receipt.state for receipt in receipts] == [state] * len(lanes)

    @rule(lane=LANES)
    def a_chat_is_placed(self, lane: str) -> None:
        model = self.lanes[lane]
        if model.chat is None:
            self.chats += 1
            chat = self.do(self.store.open_chat("test:alice", key=f"key {self.chats}"))
            assert chat.number == self.chats
            model.chat = chat.number
        placed = self.store.place_chat("test:alice", model.chat, a_source(lane), self._name(lane))
        assert self.do(placed).session is not None
        model.exists = True

    @rule(lane=LANES)
    def a_session_is_a_chat(self, lane: str) -> None:
        if not self.lanes[lane].exists:
            return
        record = self.do(self.store.session_of(self._name(lane)))
        assert record is not None
        before = self.chats
        chat = self.do(self.store.chat_of_session("test:alice", record.id))
        assert chat.number <= before + 1
        self.chats = max(before, chat.number)

    @rule(lane=LANES, lasting=st.booleans(), told=st.booleans())
    def a_program_asks(self, lane: str, lasting: bool, told: bool) -> None:
        self.said += 1
        text = str(self.said)
        earlier = (asked("earlier"), spoken("reply")) if told else ()
        message = a_program_message(*earlier, asked(text), chat=lane, lasting=lasting)
        name = event_name(text, chat=lane)
        assert self.do(self.store.submit(self._name(lane), name, message)).state == "queued"
        self.lanes[lane].exists = True
        self.lanes[lane].waiting.append(text)
        self.programs[text] = lasting

    @precondition(lambda self: self.said > 0)
    @rule(lane=LANES, data=st.data())
    def withdraw(self, lane: str, data: st.DataObject) -> None:
        model = self.lanes[lane]
        texts = [*model.waiting, *model.running, *model.over]
        if not texts:
            return
        text = data.draw(st.sampled_from(texts))
        name = event_name(text, chat=lane)
        withdrawn = self.do(self.store.withdraw(self._name(lane), name))
        if text in model.waiting:
            assert withdrawn == Withdrawn(dropped=True)
            model.waiting.remove(text)
            model.over.append(text)
        elif text in model.running:
            assert withdrawn == Withdrawn(turn=model.turn)
            self._over(lane)
        else:
            assert withdrawn == Withdrawn()

    @rule()
    def nobody_waits_any_more(self) -> None:
        given_up = 0
        for lane, model in self.lanes.items():
            gone = [text for text in model.waiting if self.programs.get(text) is False]
            model.waiting = [text for text in model.waiting if text not in gone]
            model.over += gone
            given_up += len(gone)
            if any(self.programs.get(text) is False for text in model.running):
                given_up += 1
                self._over(lane)
        assert self.do(self.store.drop_unwaited()) == given_up

    @precondition(lambda self: self.said > 0)
    @rule(lane=LANES)
    def submit_again(self, lane: str) -> None:
        model = self.lanes[lane]
        for text in (*model.over, *model.running, *model.waiting)[:3]:
            receipt = self.do(
                self.store.submit(
                    self._name(lane),
                    event_name(text, chat=lane),
                    a_message(text, chat=lane),
                    fresh_before=time.time() + 1,
                )
            )
            assert (receipt.state, receipt.fresh) == ("duplicate", False)

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
            lane = self._lane(claim)
            assert claim.lane == self._name(lane)
            assert lane in ready
            model = self.lanes[lane]
            if model.running:
                assert (claim.turn, claim.attempt) == (model.turn, model.attempt + 1)
            else:
                model.running, model.steps = [model.waiting.pop(0)], 0
                assert claim.attempt == 1
                model.talked = True
            assert [taken.message.text for taken in claim.messages] == model.running
            model.turn, model.attempt = claim.turn, claim.attempt
            self.held[lane] = claim

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        self.do(self.store.step(claim, [spoken("step")]))
        self.lanes[self._lane(claim)].steps += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def absorb(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        model = self.lanes[self._lane(claim)]
        assert self.do(self.store.peek(claim)) == len(model.waiting)
        taken = self.do(self.store.absorb(claim))
        wanted: list[str] = []
        if not any(text in self.programs for text in model.running):
            wanted = [*takewhile(lambda text: text not in self.programs, model.waiting)]
        assert [message.message.text for message in taken] == wanted
        model.running += wanted
        model.waiting = model.waiting[len(wanted) :]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        reply = a_draft(str(claim.turn), chat=self._lane(claim))
        self.do(self.store.commit(claim, TurnEnd("done", (spoken("answer"),), (reply,))))
        self._over(self._lane(claim))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        claim = self._pick(data)
        self.do(self.store.release(claim))
        self.stale.append(self.held.pop(self._lane(claim)))

    @rule(lane=LANES)
    def stop(self, lane: str) -> None:
        model = self.lanes[lane]
        stopped = self.do(self.store.stop(self._name(lane)))
        assert stopped.turn == (model.turn if model.running else None)
        self._over(lane)

    @rule()
    def another_owner_recovers(self) -> None:
        self.owner += 1
        assert self.do(self.store.recover(f"owner-{self.owner}")) == len(self.held)
        self.stale += self.held.values()
        self.held.clear()

    @rule(namespace=st.sampled_from(["main", "coder", "a"]))
    def another_owner_starts_in_a_namespace(self, namespace: str) -> None:
        lanes = sum(model.exists for model in self.lanes.values())
        expected = lanes if namespace != self.namespace else 0
        assert self.do(self.store.adopt(namespace)) == expected
        self.namespace = namespace
        self.another_owner_recovers()

    @rule(lane=LANES)
    def work(self, lane: str) -> None:
        """Work begins where none runs, else the oldest ends."""
        model = self.lanes[lane]
        if not model.exists:
            return
        if model.works:
            for ends in (True, False):
                assert self.do(self.store.end_work(model.works[0], "done")) is ends
            model.works.pop(0)
            return
        self.said += 1
        record = self.do(self.store.session_of(self._name(lane)))
        assert record is not None
        model.works.append(f"work-{self.said}")
        for begins in (True, False):
            assert self.do(self.store.begin_work(a_work(model.works[-1], record))) is begins
        running = self.do(self.store.works(lane=record.lane))
        assert [work.id for work in running if work.session == record.id] == model.works

    @rule(lane=LANES, effect=st.sampled_from([Nothing(), NewSession(), StopTurn(True)]))
    def command(self, lane: str, effect: Nothing | NewSession | StopTurn) -> None:
        self.said += 1
        name = f"command-{self.said}"
        message = a_message(name, chat=lane)
        receipt = self.do(
            self.store.submit(
                self._name(lane), name, message, kind="command", fresh_before=time.time() + 1
            )
        )
        self.lanes[lane].exists = True
        for expected in (True, False):
            handed = self.do(
                self.store.answer(
                    self._name(lane),
                    receipt.inbox_id,
                    effect,
                    lambda _: a_draft(name, chat=lane),
                )
            )
            assert (handed is not None) is expected
        if not isinstance(effect, Nothing):
            self._over(lane)
        if isinstance(effect, NewSession):
            self.lanes[lane].begin_session()
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
    def chats_and_marks_are_where_they_were(self) -> None:
        if not self.chats and self.mark is None:
            return
        assert self.do(self.store.mark("since")) == self.mark
        for lane, model in self.lanes.items():
            found = self.do(self.store.chat_at(self._name(lane)))
            assert (None if found is None else found.number) == model.chat
        chats = self.do(self.store.chats("test:alice"))
        assert [chat.number for chat in chats] == list(range(1, self.chats + 1))
        assert {chat.lane for chat in chats} <= {self._name(lane) for lane in self.lanes}

    @invariant()
    def what_is_held_is_held(self) -> None:
        for lane, claim in self.held.items():
            self.do(self.store.check(claim))
            entries = self.do(self.store.transcript(claim.session, whole=True))
            mine = [entry.message for entry in entries if entry.turn == claim.turn]
            model = self.lanes[lane]
            assert [m.text for m in mine if m.role == "user"] == model.running
            assert len([m for m in mine if m.text == "step"]) == model.steps

    def _name(self, lane: str) -> str:
        return f"agent:{self.namespace}:test:dm:{lane}"

    def _lane(self, claim: Claim) -> str:
        return claim.lane.rpartition(":")[2]

    def _pick(self, data: st.DataObject) -> Claim:
        return self.held[data.draw(st.sampled_from(sorted(self.held)))]

    def _over(self, lane: str) -> None:
        model = self.lanes[lane]
        model.over += model.running
        model.running = []
        if lane in self.held:
            self.stale.append(self.held.pop(lane))
