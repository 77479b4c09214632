"""A command that goes wrong is answered all the same: nobody meets it again at every start."""

from __future__ import annotations

import pytest

from parley.protocol import InboundMessage
from parley.sessions.key import build_session_key
from parley.storage.hands import Work
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, waiting
from tests.servers.scripted_model import Reply
from tests.waiting import until

pytestmark = needs_bubblewrap


@pytest.mark.parametrize(
    "said",
    [
        "/grants revoke 99999999999999999999",
        f"/grants revoke {'9' * 5000}",
        f"/resume {'9' * 5000}",
    ],
    ids=["beyond the database", "beyond a number", "no such session"],
)
async def test_a_number_that_is_too_large_ends_no_gateway(
    house: House, scenes: Scenes, said: str
) -> None:
    desk = await house.open()
    await desk.ask("hello")
    assert await desk.ask(said)
    await house.close()
    desk = await house.open()
    assert await desk.ask("still there?") == "heard: still there?"


async def test_what_was_to_be_ended_before_a_kill_is_ended_after_it(
    house: House, scenes: Scenes
) -> None:
    scenes.when("build", begin(waiting("never")), Reply(text="it builds"))
    desk = await house.open()
    await desk.ask("build")
    assert house.store is not None
    stop = InboundMessage(at("one"), "/work stop all", "late")
    await house.store.submit(build_session_key(at("one")), "desk::late", stop, kind="command")
    await house.crash()
    desk = await house.open()
    await until(lambda: desk.answer_to("late"))
    answer = desk.answer_to("late")
    assert answer is not None
    assert answer.text == "1 piece of background work ended."
    assert (await desk.ask("/work")).startswith("Nothing runs")


async def test_work_that_never_began_can_be_ended_and_keeps_nothing_else_alive(
    house: House, scenes: Scenes
) -> None:
    scenes.when("build", begin(waiting("never")), Reply(text="it builds"))
    desk = await house.open()
    await desk.ask("build")
    session, lane = await house.session(), build_session_key(at("one"))
    assert house.store is not None
    noted = Work(
        *("proc_noted", "process", lane, session.id, 0, at("one")), notify=True, body={}, at=1.0
    )
    await house.store.begin_work(noted)
    assert await desk.ask("/work stop all") == "2 pieces of background work ended."
    assert (await desk.ask("/work")).startswith("Nothing runs")
