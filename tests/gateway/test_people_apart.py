"""What one person has set and may use is theirs, also where several share a conversation."""

from __future__ import annotations

from typing import Any

from parley.backends.base import Backend
from parley.backends.direct import DirectBackend
from parley.config import Settings
from tests.gateway.house import House
from tests.gateway.room import Room, in_thread
from tests.servers.direct_agent import Capable, DirectAgent
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until


async def open_room(house: House, **sections: Any) -> Room:
    house.desk_type = Room
    desk = await house.open(**sections)
    assert isinstance(desk, Room)
    return desk


async def test_nobody_uses_the_plan_or_the_skills_of_another_by_speaking_into_their_turn(
    house: House, stage: Stage
) -> None:
    desk = await open_room(house, plan={"tokens": 1000}, access={"owners": ["desk:ann"]})
    assert house.store is not None
    await house.store.put_person_setting("desk:mallory", "plan.tokens", "0")
    await desk.hear("ann", "hello", at=in_thread)
    assert "is used up" in await desk.hear("mallory", "hello", at=in_thread)
    stage.then(Reply(tool_calls=(("todo", {}),), delay=0.5), Reply("ours"))
    ours = await desk.tell("ann", "work", at=in_thread)
    await until(lambda: house.model.total == 2)
    theirs = await desk.tell("mallory", "do my work", at=in_thread)
    await desk.reply_to(ours)
    said = await desk.reply_to(theirs)
    assert "is used up" in said
    assert all("do my work" not in str(request.json) for request in house.model.requests)


class _Handed(House):
    """Everything is handed to an agent at `url`."""

    url = ""

    def backend_for(self, settings: Settings) -> Backend:
        return DirectBackend(self.profile, settings, url=self.url, secret=lambda name: None)


async def test_what_one_wishes_is_not_handed_on_with_a_conversation_that_all_share(
    house: House,
) -> None:
    async with DirectAgent(Capable()) as agent:
        handed = _Handed(house.profile, house.model)
        handed.url = agent.url
        desk = await open_room(handed)
        try:
            await desk.hear("ann", "!soul instructions My doctor is Dr. Grey.")
            await desk.hear("ann", "hello")
            assert "Dr. Grey" in agent.messages[-1]["instructions"]
            await desk.hear("ann", "hello all", at=in_thread)
            assert "Dr. Grey" not in str(agent.messages[-1])
        finally:
            await handed.close()
