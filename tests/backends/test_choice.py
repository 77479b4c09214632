"""Several backends as one."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from parley.agent.tokens import Calibration
from parley.backends.base import Mailbox, ModelMenu, Prefix, Standing, Turn
from parley.backends.choice import Backends
from parley.protocol import Behalf, ChatMessage, Final, Request, SessionSource, TurnEvent
from tests.backends.direct.builders import Postbox
from tests.backends.proxy.builders import a_turn


class Menu:
    def names(self) -> tuple[str, ...]:
        return ("one",)

    def describe(self, provider: str | None, model: str | None) -> str:
        return "one · model"

    def is_file(self, provider: str, model: str) -> bool:
        return False


class Named:
    """A backend that answers with its name."""

    def __init__(
        self,
        name: str,
        *,
        fault: str | None = None,
        menu: ModelMenu | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.name = name
        self.calls: list[str] = []
        self.models = menu
        self.calibration = calibration
        self._fault = fault

    def about(self) -> str:
        return self.name

    async def health(self) -> str | None:
        return self._fault

    def starting(self) -> tuple[str, ...]:
        return (f"the parts of {self.name}",)

    def start(self, mailbox: Mailbox) -> None:
        self.calls.append("start")

    def warm(self) -> None:
        self.calls.append("warm")

    def remembers(self, platform: str) -> bool:
        return self.name == "agent"

    async def prefix(self, standing: Standing) -> Prefix | None:
        self.calls.append(f"prefix {standing.source.platform}")
        return None

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        try:
            yield Final(self.name)
        finally:
            self.calls.append("over")

    async def close(self) -> None:
        self.calls.append("close")
        if self.name == "broken":
            raise RuntimeError("cannot be closed")


async def who_answers(backends: Backends, platform: str, request: Request | None = None) -> str:
    turn = a_turn(source=SessionSource(platform, "c"), request=request)
    [event] = [event async for event in backends.run(turn)]
    assert isinstance(event, Final)
    return event.text


async def test_the_platform_decides_who_answers() -> None:
    backends = Backends(Named("all"), {"matrix": Named("direct"), "web": Named("mock")})
    assert [await who_answers(backends, name) for name in ("matrix", "web", "api")] == [
        "direct",
        "mock",
        "all",
    ]


async def test_a_delegated_task_is_answered_by_whoever_answers_its_person() -> None:
    backends = Backends(Named("all"), {"matrix": Named("direct"), "task": Named("nobody")})
    behalf = Behalf("matrix:@alice:example.org", "s1", "matrix")
    task = Request("t", (ChatMessage("user", "go"),), behalf=behalf)
    assert await who_answers(backends, "task", task) == "direct"


async def test_how_prompts_begin_is_said_by_whoever_answers_there() -> None:
    everyone, far = Named("all"), Named("direct")
    backends = Backends(everyone, {"matrix": far})
    behalf = Behalf("matrix:@alice:example.org", "s1", "matrix")
    task = Request("t", (ChatMessage("user", "go"),), behalf=behalf)
    for platform, request in (("matrix", None), ("web", None), ("task", task)):
        assert await backends.prefix(Standing(SessionSource(platform), request=request)) is None
    assert (everyone.calls, far.calls) == (["prefix web"], ["prefix matrix", "prefix task"])


def test_the_one_that_counts_tokens_is_found() -> None:
    known = Calibration()
    assert Backends(Named("a"), {"web": Named("b", calibration=known)}).calibration is known
    assert Backends(Named("a"), {}).calibration is None


async def test_closing_a_turn_reaches_whoever_answers_it() -> None:
    one = Named("one")
    events = Backends(one, {}).run(a_turn())
    await anext(events)
    await events.aclose()
    assert one.calls == ["over"]


async def test_each_is_started_warmed_and_closed_once() -> None:
    one, two = Named("one"), Named("two")
    backends = Backends(one, {"matrix": two, "web": two, "api": one})
    backends.start(Postbox())
    backends.warm()
    await backends.close()
    assert one.calls == two.calls == ["start", "warm", "close"]


async def test_one_that_cannot_be_closed_keeps_no_other_open() -> None:
    one = Named("one")
    with pytest.raises(RuntimeError):
        await Backends(Named("broken"), {"web": one}).close()
    assert one.calls == ["close"]


async def test_what_is_said_of_them_speaks_of_all() -> None:
    far = Named("the agent at ws://h", fault="Nothing answers at ws://h.")
    menu = Menu()
    backends = Backends(Named("a mock"), {"matrix": far, "web": far, "api": Named("x", menu=menu)})
    assert backends.about() == "a mock; the agent at ws://h on matrix and web; x on api"
    assert await backends.health() == "Nothing answers at ws://h."
    assert backends.models is menu
    assert await Backends(Named("a"), {}).health() is None
    assert Backends(Named("a"), {}).about() == "a"
    assert Backends(Named("a"), {}).models is None
