"""Kill -9: what agents have begun is done once, and its result arrives once where it was asked."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.hands_kills import errands, killed_house, until_all_answered
from tests.gateway.workshop import Scenes, begin, delegate, run, waiting
from tests.servers.scripted_model import Reply
from tests.waiting import until

_KILLS = 10

pytestmark = [needs_bubblewrap, pytest.mark.timeout(120)]


@pytest.fixture
def script() -> Scenes:
    return Scenes()


async def test_background_work_outlives_the_gateway_and_is_told_once_where_it_was_begun(
    tmp_path: Path, script: Scenes
) -> None:
    once = "echo line >> ran; "
    script.when("build", begin(once + waiting("go", "echo built")), Reply(text="it builds"))
    script.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    script.when("[Background", Reply(text="the build is over"))
    script.when("[Delegated", Reply(text="they found gold"))
    script.when("dig", Reply(text="gold", delay=1.5))
    async with killed_house(tmp_path / "home", script) as house:
        await house.start()
        await house.say("build", chat="site", thread="t1")
        await house.say("fetch", chat="mine", thread="t2")
        await until(lambda: {one.text for one in house.answers()} == {"it builds", "they dig"})
        await house.model.until(lambda model: model.open_streams == 1)
        await house.kill_and_start()
        (house.workspace / "go").touch()
        await until(lambda: len(house.answers()) == 4)
        await house.kill_and_start()
        await house.until_quiet()
        told = sorted((one.text, one.chat, one.thread) for one in house.answers())
        assert told == [
            ("it builds", "site", "t1"),
            ("the build is over", "site", "t1"),
            ("they dig", "mine", "t2"),
            ("they found gold", "mine", "t2"),
        ]
        assert house.lines("ran") == ["line"]
        reports = [r.json["messages"][-1]["content"] for r in house.model.requests]
        assert sum("exit code 0" in text and "built" in text for text in reports) == 1
        assert house.running_processes() == []
        assert await house.gateway.stop() == 0


async def test_a_command_that_is_waited_for_runs_once_and_its_real_end_is_known(
    tmp_path: Path, script: Scenes
) -> None:
    command = "echo line >> ran; " + waiting("go", "echo out; exit 7")
    script.when("try", run(command), Reply(text="tried"))
    async with killed_house(tmp_path / "home", script) as house:
        await house.start()
        await house.say("try", chat="site")
        await until(lambda: house.lines("ran"))
        for _ in range(2):
            await house.kill_and_start()
        (house.workspace / "go").touch()
        await until(house.answers)
        [result] = house.tool_results("try")
        assert (result["exit_code"], result["output"]) == (7, "out\n")
        assert house.lines("ran") == ["line"]
        assert [(one.text, one.chat) for one in house.answers()] == [("tried", "site")]
        assert house.running_processes() == []


async def test_a_command_that_ended_while_there_was_no_gateway_is_known_too(
    tmp_path: Path, script: Scenes
) -> None:
    script.when("try", run("echo line >> ran; " + waiting("go", "exit 5")), Reply(text="tried"))
    async with killed_house(tmp_path / "home", script) as house:
        await house.start()
        await house.say("try", chat="site")
        await until(lambda: house.lines("ran"))
        house.gateway.kill()
        (house.workspace / "go").touch()
        await until(lambda: not house.running_processes())
        await house.start()
        await until(house.answers)
        [result] = house.tool_results("try")
        assert result["exit_code"] == 5
        assert house.lines("ran") == ["line"]


async def test_a_task_that_is_waited_for_is_done_once(tmp_path: Path, script: Scenes) -> None:
    command = "echo line >> ran; " + waiting("go")
    script.when("fetch", delegate("dig"), Reply(text="fetched"))
    script.when("dig", run(command), Reply(text="gold", delay=0.5))
    async with killed_house(tmp_path / "home", script) as house:
        await house.start()
        await house.say("fetch", chat="mine")
        await until(lambda: house.lines("ran"))
        await house.kill_and_start()
        (house.workspace / "go").touch()
        asked = house.model.total
        await house.model.until(lambda model: model.total > asked and model.open_streams == 1)
        await house.kill_and_start()
        await until(house.answers)
        await house.until_quiet()
        assert [(one.text, one.chat) for one in house.answers()] == [("fetched", "mine")]
        [result] = house.tool_results("fetch")
        assert result["result"] == "gold"
        assert house.lines("ran") == ["line"]


async def test_whenever_the_gateway_is_killed_all_is_done_and_told_once(
    tmp_path: Path, script: Scenes
) -> None:
    seed = int(os.environ.get("PARLEY_SEED") or random.randrange(1 << 30))
    print(f"PARLEY_SEED={seed}")
    chance = random.Random(seed)
    made = errands(script, chance, rounds=3)
    chance.shuffle(made)
    async with killed_house(tmp_path / "home", script, busy="queue") as house:
        house.gateway.start()
        saying: list[asyncio.Task[None]] = []
        for number, errand in enumerate(made):
            said = house.say(errand.asked, chat=errand.chat, thread=errand.thread)
            saying.append(asyncio.create_task(said))
            if number >= _KILLS:
                continue
            if chance.random() < 0.85:  # else it is killed while it starts
                await house.gateway.until_ready()
            await asyncio.sleep(chance.uniform(0, 0.6))
            house.gateway.kill()
            house.gateway.start()
        await house.gateway.until_ready()
        await asyncio.gather(*saying)
        await until_all_answered(house, made, seconds=60)
        await house.until_quiet()
        assert {each.name: house.lines(each.name) for each in made} == {
            each.name: ["line"] for each in made
        }
        told = Counter((one.text, one.chat, one.thread) for one in house.answers())
        expected = Counter(
            (text, each.chat, each.thread)
            for each in made
            for text in (f"{each.name} is begun or done", f"report of {each.name}")
            if each.reports or "report" not in text
        )
        assert told == expected
        assert house.running_processes() == []
        assert await house.gateway.stop() == 0
