"""`/work`: what runs in the background of a conversation, and how a person ends it."""

from __future__ import annotations

import asyncio

from tests.agent.processes.house import needs_bubblewrap
from tests.agent.shown_text import read_text
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, calls, delegate, result_of, waiting, works
from tests.servers.scripted_model import Reply
from tests.waiting import until

pytestmark = needs_bubblewrap


def _set_up(scenes: Scenes) -> None:
    scenes.when("build", begin(waiting("never")), Reply(text="it builds"))
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("dig", Reply(text="gold", delay=60))
    plan = ("schedule", {"action": "add", "text": "water the plants", "at": "+3d"})
    scenes.when("remind", calls(plan), Reply(text="planned"))


async def _until_no_work(house: House) -> None:
    assert house.store is not None
    async with asyncio.timeout(60):
        while await house.store.works():
            await asyncio.sleep(0.01)


async def test_nothing_runs_at_first(house: House, scenes: Scenes) -> None:
    desk = await house.open()
    assert (await desk.ask("/work")).startswith("Nothing runs")


async def test_all_that_runs_here_is_listed_and_ended(house: House, scenes: Scenes) -> None:
    _set_up(scenes)
    desk = await house.open()
    for said in ("build", "fetch", "remind"):
        await desk.ask(said)
    listed = await desk.ask("/work")
    assert all(part in listed for part in ("process `proc_", "task `task_", "planned `plan_"))
    assert all(part in listed for part in ("while [", "dig", "water the plants"))
    assert (await desk.ask("/work", chat="two")).startswith("Nothing runs")
    assert "nothing of that name" in await desk.ask("/work stop all", chat="two")
    await house.model.until(lambda model: model.open_streams == 1)
    asked = house.model.total
    assert await desk.ask("/work stop all") == "3 pieces of background work ended."
    await _until_no_work(house)
    assert [work.state for work in await works(house)] == ["stopped", "stopped"]
    await house.model.until(lambda model: model.open_streams == 0)
    assert (await desk.ask("/work")).startswith("Nothing runs")
    # Whoever ended it knows: nobody is told, and the agent is not woken.
    assert await desk.ask("and now?") == "heard: and now?"
    assert house.model.total == asked + 1
    assert "Background" not in str(await house.said())
    assert "Delegated" not in str(await house.said())


async def test_one_of_them_is_ended_by_its_name(house: House, scenes: Scenes) -> None:
    _set_up(scenes)
    desk = await house.open()
    await desk.ask("build")
    process = result_of(house)["process_id"]
    await desk.ask("fetch")
    assert await desk.ask(f"/work stop {process}") == "1 piece of background work ended."
    await until((house.profile.home / "processes" / process / "exit.json").exists)
    listed = await desk.ask("/work")
    assert process not in listed
    assert "task `task_" in listed
    assert "nothing of that name" in await desk.ask(f"/work stop {process}")


async def test_what_is_not_understood_is_explained(house: House, scenes: Scenes) -> None:
    desk = await house.open()
    assert "Which one?" in await desk.ask("/work stop")
    assert "`/work stop ID`" in await desk.ask("/work please")


async def test_what_is_cut_in_the_list_says_so_and_is_shown_whole(
    house: House, scenes: Scenes
) -> None:
    command = "echo \u202e; " + waiting("never") + "\n# " + "x" * 100
    scenes.when("build", begin(command), Reply(text="it builds"))
    desk = await house.open()
    await desk.ask("build")
    listed = await desk.ask("/work")
    assert "`echo ⟨U+202E⟩; " in listed
    assert f" … ({len(command):,} characters)" in listed
    [work] = await works(house)
    assert read_text((await desk.ask(f"/work {work.id}")).partition("It says")[2]) == command
    await desk.ask("/work stop all")
    await _until_no_work(house)
