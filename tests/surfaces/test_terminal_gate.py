"""What the agent promises in the terminal program it keeps: the end of its work is shown there."""

from __future__ import annotations

from parley.surfaces.terminal.wire import Deliver
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, delegate, let_go, result_of, waiting
from tests.servers.scripted_model import Reply
from tests.surfaces.terminal import Line
from tests.waiting import until


def _texts(line: Line) -> list[str]:
    return [each.text for each in line.all_of(Deliver)]


@needs_bubblewrap
async def test_the_end_of_a_process_is_shown(line: Line, served: House, scenes: Scenes) -> None:
    scenes.when("build", begin(waiting("go")), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))
    assert await line.ask("build", "1") == "it builds"
    assert result_of(served)["notify_on_complete"] is True
    let_go(served, "go")
    await until(lambda: _texts(line) == ["it builds", "the build is over"])


async def test_the_result_of_a_task_is_shown(line: Line, served: House, scenes: Scenes) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated", Reply(text="they found gold"))
    scenes.when("dig", Reply(text="gold", delay=0.2))
    assert await line.ask("fetch", "1") == "they dig"
    await until(lambda: _texts(line) == ["they dig", "they found gold"])
