"""Bots that answer each other come to an end, and people are told and answered."""

from __future__ import annotations

import asyncio
import secrets

from parley.surfaces.matrix.connection import part
from parley.surfaces.matrix.loop_guard import LoopGuard, Verdict
from tests.gateway.house import House
from tests.servers.synapse import Synapse
from tests.surfaces.matrix.agents import an_agent
from tests.surfaces.matrix.person import Person

DAY = 24 * 3600.0


def endless(guard: LoopGuard, *senders: str, every: float = 1.0, room: str = "!r") -> list[Verdict]:
    """What becomes of bots that write as soon as they may, for a day."""
    verdicts = list[Verdict]()
    for tick in range(int(DAY / every)):
        now = 1000.0 + tick * every
        sender = senders[tick % len(senders)]
        guard.person_wrote(room, sender, now)
        verdicts.append(guard.check(room, sender, now))
    return verdicts


def test_a_bot_is_answered_less_and_less_and_then_no_more() -> None:
    guard = LoopGuard()
    first = [guard.check("!r", "@bot:x", 100.0 + at) for at in range(20)]
    assert first == ["answer"] * 12 + ["silent"] * 8
    assert guard.check("!r", "@alice:x", 120.0) == "answer"
    assert guard.check("!other", "@bot:x", 120.0) == "answer"
    assert guard.check("!r", "@bot:x", 112.0 + 119) == "silent"
    assert guard.check("!r", "@bot:x", 112.0 + 121) == "answer"

    verdicts = endless(LoopGuard(), "@bot:x")
    assert verdicts.count("answer") < 40
    assert verdicts.count("stop") == 1
    assert set(verdicts[verdicts.index("stop") + 1 :]) == {"silent"}


def test_neither_slow_bots_nor_several_of_them_go_on_for_ever() -> None:
    for every in (6.0, 15.0, 50.0):
        verdicts = endless(LoopGuard(), "@bot:x", every=every)
        assert (verdicts.count("stop"), verdicts[-1]) == (1, "silent"), every
    verdicts = endless(LoopGuard(), "@one:x", "@two:x", "@three:x", every=3.0)
    assert verdicts.count("stop") == 3
    assert set(verdicts[-100:]) == {"silent"}


def test_a_person_is_never_stopped_by_using_it_much_and_sets_others_free() -> None:
    guard = LoopGuard()
    asked = [guard.check("!r", "@alice:x", at * 90.0) for at in range(500)]
    assert set(asked) == {"answer"}
    for at in range(4000):
        guard.check("!r", "@bot:x", 50_000.0 + at)
    assert guard.check("!r", "@bot:x", 54_001.0) == "silent"
    guard.person_wrote("!r", "@bot:x", 54_002.0)
    guard.person_wrote("!other", "@bob:x", 54_002.0)
    assert guard.check("!r", "@bot:x", 54_003.0) == "silent"
    guard.person_wrote("!r", "@bob:x", 54_004.0)
    assert guard.check("!r", "@bot:x", 54_005.0) == "answer"


async def test_when_a_bot_is_answered_no_more_the_room_is_told_once(
    synapse: Synapse, house: House
) -> None:
    async with (
        an_agent(synapse, house, spaces=False) as agent,
        Person.on(synapse, name="Alice") as alice,
        Person.on(synapse, name="Robot") as robot,
    ):
        room = await alice.create_room(invite=[robot.user_id, agent.user_id])
        await robot.wait_for_invite()
        await robot.join(room)
        await alice.wait_for_member(room, agent.user_id)
        assert agent.surface is not None
        agent.surface.serving._hearing.guard = LoopGuard(most=2, within=0.01, hourly=4, strikes=3)
        told = f"I have answered {robot.user_id} many times in a row"

        async def chatter() -> None:
            path = f"/v3/rooms/{part(room)}/send/m.room.message/"
            mentions = {"user_ids": [agent.user_id]}
            while True:
                said = {"msgtype": "m.text", "body": "And you?", "m.mentions": mentions}
                await robot.call("PUT", path + secrets.token_hex(8), said)
                await asyncio.sleep(0.02)

        chattering = asyncio.create_task(chatter())
        try:
            notice = await alice.wait_for_text(agent.user_id, told, room_id=room, seconds=60)
        finally:
            chattering.cancel()
            await asyncio.gather(chattering, return_exceptions=True)
        assert notice.kind == "m.notice"
        asked = house.model.total
        await robot.send(room, "Still there?", mentions=[agent.user_id])
        await alice.send(room, "Robot is fine", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "echo: Robot is fine", room_id=room, seconds=40)
        await robot.send(room, "So once more", mentions=[agent.user_id])
        await alice.wait_for_text(agent.user_id, "echo: So once more", room_id=room, seconds=40)
        assert house.model.total == asked + 2
        assert sum(told in each.text for each in alice.from_sender(agent.user_id, room)) == 1
