"""What happens to background processes while no gateway runs, or before one under another name."""

from __future__ import annotations

from pathlib import Path

from parley.profiles import Profile
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, calls, let_go, result_of, waiting
from tests.servers.scripted_model import Reply
from tests.waiting import until

pytestmark = needs_bubblewrap


async def test_lines_that_were_watched_for_are_told_though_nobody_watched(
    house: House, scenes: Scenes
) -> None:
    command = waiting("go", 'echo NEE""DLE found; seq 1 3000')
    scenes.when("build", begin(command, watch_patterns=["NEEDLE"]), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="told"))
    desk = await house.open()
    await desk.ask("build")
    process = result_of(house)["process_id"]
    await house.close()
    let_go(house, "go")
    await until((house.profile.home / "processes" / process / "exit.json").exists)
    desk = await house.open()
    await until(lambda: "told" in desk.texts())
    assert "NEEDLE found" in house.words()[-1]


async def test_a_process_stays_in_its_conversation_when_the_profile_is_renamed(
    house: House, scenes: Scenes, tmp_path: Path
) -> None:
    scenes.when("build", begin("touch up; " + waiting("go")), Reply(text="it builds"))
    scenes.when("look", calls(("process", {"action": "list"})), Reply(text="looked"))
    scenes.when("[Background", Reply(text="told"))
    many = {"multiplex_profiles": True}
    desk = await house.open(gateway=many)
    await desk.ask("build")
    process = result_of(house)["process_id"]
    await until((house.profile.workspace / "up").exists)
    await house.close()
    house.profile.home.rename(tmp_path / "named")
    house.profile = Profile("named", tmp_path / "named")
    desk = await house.open(gateway=many)
    await desk.ask("look")
    assert process in house.words()[-1]
    let_go(house, "go")
    await until(lambda: "told" in desk.texts())
