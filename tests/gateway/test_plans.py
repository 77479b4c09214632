"""What the agent plans for later comes into its conversation by itself, once, and wakes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.gateway.house import House
from tests.gateway.workshop import Scenes, calls
from tests.servers.scripted_model import Reply
from tests.waiting import until


def _plans(scenes: Scenes, *, seconds: float) -> None:
    """Asked to remind, the agent plans something for so soon."""

    def plan() -> Reply:
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        told = {"action": "add", "text": "water the plants", "at": at.isoformat()}
        return calls(("schedule", told))

    scenes.when("remind me", plan, Reply(text="planned"))
    scenes.when("water the plants", Reply(text="Water them!"))


async def test_a_plan_wakes_the_agent_where_it_was_made(house: House, scenes: Scenes) -> None:
    _plans(scenes, seconds=1.5)
    desk = await house.open()
    assert await desk.ask("remind me", chat="two") == "planned"
    await desk.ask("hello")
    await until(lambda: "Water them!" in desk.texts("two"))
    assert desk.texts("two") == ["planned", "Water them!"]
    assert desk.texts() == ["heard: hello"]
    said = [text for role, text in await house.said("two") if role == "user"]
    assert said[0] == "remind me"
    assert said[1].startswith("[A reminder that you planned on")
    assert said[1].endswith("water the plants")
    assert house.store is not None
    assert await house.store.jobs((await house.session("two")).lane) == []


async def test_a_plan_that_came_due_without_a_gateway_is_kept(house: House, scenes: Scenes) -> None:
    _plans(scenes, seconds=1.0)
    desk = await house.open()
    await desk.ask("remind me")
    due = datetime.now(UTC) + timedelta(seconds=1.0)
    await house.close()
    await until(lambda: datetime.now(UTC) > due)
    desk = await house.open()
    await until(lambda: desk.texts() == ["Water them!"])
    await house.crash()
    desk = await house.open()
    assert await desk.ask("hello") == "heard: hello"
    said = [text for role, text in await house.said() if role == "user"]
    assert sum("water the plants" in text for text in said) == 1


async def test_a_plan_that_is_cancelled_does_not_come(house: House, scenes: Scenes) -> None:
    _plans(scenes, seconds=3600)
    scenes.when("list", calls(("schedule", {"action": "list"})), Reply(text="listed"))
    desk = await house.open()
    await desk.ask("remind me")
    assert house.store is not None
    [planned] = await house.store.jobs((await house.session()).lane)
    cancel = ("schedule", {"action": "cancel", "id": planned.job.id})
    scenes.when("never mind", calls(cancel), Reply(text="cancelled"))
    await desk.ask("list", chat="two")
    assert "Nothing is planned" in house.words()[-1]
    await desk.ask("never mind", chat="two")
    assert "no plan" in house.words()[-1]
    assert len(await house.store.jobs((await house.session()).lane)) == 1
    await desk.ask("never mind")
    assert await house.store.jobs((await house.session()).lane) == []
