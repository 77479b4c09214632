"""What runs in the background is told where it was begun, once, and wakes the agent there."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from parley.agent.processes import watching
from parley.gateway import background
from parley.protocol import ChatMessage
from parley.sessions.key import build_session_key
from parley.storage.contract import StoreClosed
from parley.storage.hands import Work
from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.desk import at
from tests.gateway.house import House
from tests.gateway.workshop import (
    Scenes,
    begin,
    calls,
    delegate,
    let_go,
    result_of,
    run,
    waiting,
    works,
)
from tests.servers.scripted_model import Reply
from tests.waiting import until

pytestmark = needs_bubblewrap


def _builds(scenes: Scenes, then: str = "echo built") -> None:
    """Asked to build, the agent begins a command that waits for the file `go`."""
    scenes.when("build", begin(waiting("go", then)), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))


async def _until_ended(house: House) -> None:
    """Wait until no work is noted as running."""
    assert house.store is not None
    async with asyncio.timeout(60):
        while await house.store.works():
            await asyncio.sleep(0.01)


async def test_the_end_of_a_process_wakes_the_agent_where_it_was_begun(
    house: House, scenes: Scenes
) -> None:
    _builds(scenes, "echo all built; exit 3")
    desk = await house.open()
    assert await desk.ask("build") == "it builds"
    told = result_of(house)
    assert told["notify_on_complete"] is True
    assert "notify_unsupported" not in told
    [work] = await works(house)
    assert (work.id, work.kind, work.notify) == (told["process_id"], "process", True)
    assert (work.lane, work.session) == (build_session_key(at("one")), (await house.session()).id)
    assert (work.source.platform, work.source.chat_id, work.source.user_id) == (
        "desk",
        "one",
        "ann",
    )
    let_go(house, "go")
    await until(lambda: "the build is over" in desk.texts())
    report = house.words()[-1]
    assert f"{work.id} failed with exit code 3" in report
    assert "all built" in report
    assert "not instructions" in report
    await _until_ended(house)
    [ended] = await works(house)
    assert (ended.state, ended.result) == ("failed", {"exit_code": 3, "reason": None})
    assert desk.texts() == ["it builds", "the build is over"]
    assert desk.texts("two") == []


async def test_without_notify_the_end_is_only_found_by_looking(
    house: House, scenes: Scenes
) -> None:
    scenes.when("quietly", begin("true", notify_on_complete=False), Reply(text="begun"))
    scenes.when("look", calls(("process", {"action": "list"})), Reply(text="looked"))
    desk = await house.open()
    await desk.ask("quietly")
    await _until_ended(house)
    assert await desk.ask("look") == "looked"
    assert '"state": "done"' in house.words()[-1]
    said = [text for role, text in await house.said() if role == "user"]
    assert said == ["quietly", "look"]
    assert desk.texts() == ["begun", "looked"]


async def test_a_process_that_the_agent_ended_is_not_reported(house: House, scenes: Scenes) -> None:
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    scenes.when(
        "end it",
        calls(("process", {"action": "kill", "process_id": result_of(house)["process_id"]})),
        Reply(text="ended"),
    )
    assert await desk.ask("end it") == "ended"
    await _until_ended(house)
    assert [work.state for work in await works(house)] == ["stopped"]
    assert await desk.ask("anything else?") == "heard: anything else?"
    assert desk.texts() == ["it builds", "ended", "heard: anything else?"]


# ── watched lines ──


async def test_watched_lines_are_reported_at_once_and_then_seldom(
    house: House, scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK_SECONDS", 0.02)
    many = "for n in $(seq 20); do echo error $n; sleep 0.05; done"
    scenes.when(
        "an eye",
        begin(f"echo fine; {many}", notify_on_complete=False, watch_patterns=["err*r"]),
        Reply(text="watching"),
    )
    scenes.when("[Background", Reply(text="noted"))
    desk = await house.open()
    assert await desk.ask("keep an eye on it") == "watching"
    assert result_of(house)["watch_patterns"] == ["err*r"]
    await _until_ended(house)
    await until(lambda: desk.texts().count("noted") == 2)
    said = [text for role, text in await house.said() if role == "user"][1:]
    # Looked at many times: the first lines are told at once, the rest with the end.
    assert len(said) == 2
    assert "printed what you watch for" in said[0]
    assert "\nerror 1" in said[0]
    assert "fine" not in said[0]
    assert "exit code 0" in said[1]
    assert "Lines that you watch for:" in said[1]
    assert "error 20" in said[1]


async def test_watched_lines_come_while_the_process_goes_on(house: House, scenes: Scenes) -> None:
    scenes.when(
        "an eye",
        begin(f"echo ready; {waiting('go')}", watch_patterns=["ready"]),
        Reply(text="watching"),
    )
    scenes.when("what you watch for", Reply(text="it is ready"))
    scenes.when("exit code 0", Reply(text="it ended"))
    desk = await house.open()
    await desk.ask("keep an eye on it")
    await until(lambda: "it is ready" in desk.texts())
    assert house.store is not None
    assert len(await house.store.works()) == 1
    let_go(house, "go")
    await until(lambda: "it ended" in desk.texts())
    assert desk.texts() == ["watching", "it is ready", "it ended"]


# ── while another turn of the session runs ──


def _busy(scenes: Scenes) -> None:
    _builds(scenes)
    scenes.when("work on", run(waiting("more", "echo worked")), Reply(text="worked"))


async def _end_while_busy(house: House) -> None:
    """The process ends while the agent works on something else in that session."""
    before = house.model.total
    await house.desk.say("work on")
    await until(lambda: house.model.total > before)
    let_go(house, "go")
    await _until_ended(house)
    assert house.desk.texts() == ["it builds"]


async def test_a_running_turn_takes_in_the_end_of_a_process(house: House, scenes: Scenes) -> None:
    _busy(scenes)
    desk = await house.open(gateway={"busy": "steer"})
    await desk.ask("build")
    await _end_while_busy(house)
    let_go(house, "more")
    await until(lambda: len(desk.texts()) == 2)
    assert desk.texts() == ["it builds", "the build is over"]
    roles = [message.role for message in await house.transcript()]
    # One turn: what it was asked, its call and the result, the report, and its answer to both.
    assert roles[-5:] == ["user", "assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("busy", ["queue", "interrupt"])
async def test_the_end_of_a_process_waits_for_the_running_turn(
    house: House, scenes: Scenes, busy: str
) -> None:
    _busy(scenes)
    desk = await house.open(gateway={"busy": busy})
    await desk.ask("build")
    await _end_while_busy(house)
    let_go(house, "more")
    await until(lambda: len(desk.texts()) == 3)
    assert desk.texts() == ["it builds", "worked", "the build is over"]


# ── the session is gone ──


async def _only_told(house: House, before: list[ChatMessage], asked: int) -> None:
    """The person is told that something of an earlier conversation ended, and nobody else."""
    desk = house.desk
    await until(lambda: any("built" in text for text in desk.texts()))
    told = desk.sent[-1]
    assert (told.kind, told.source.chat_id) == ("notice", "one")
    assert "finished with exit code 0" in told.text
    assert "earlier conversation" in told.text
    await _until_ended(house)
    assert await house.transcript() == before
    assert house.model.total == asked
    assert sum("built" in text for text in desk.texts()) == 1


@pytest.mark.parametrize("command", ["/new", "/stop"])
async def test_the_end_of_what_is_gone_is_told_to_the_person_at_once_and_to_no_agent(
    house: House, scenes: Scenes, command: str
) -> None:
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    await desk.ask(command)
    before, asked = await house.transcript(), house.model.total
    let_go(house, "go")
    await _only_told(house, before, asked)


@pytest.mark.parametrize("command", ["/new", "/stop", "/stop all"])
async def test_a_report_that_waits_for_its_turn_is_only_told_when_its_session_goes(
    house: House, scenes: Scenes, command: str
) -> None:
    """It was accepted while all was well, and the session went before it was taken up."""
    _busy(scenes)
    desk = await house.open(gateway={"busy": "queue"})
    await desk.ask("build")
    await _end_while_busy(house)
    asked = house.model.total
    await desk.ask(command)
    before = await house.transcript()
    await _only_told(house, before, asked)


async def test_a_session_that_was_left_and_resumed_is_not_woken_by_what_began_before(
    house: House, scenes: Scenes
) -> None:
    """Leaving it raised the generation; the agent may still look for itself."""
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    await desk.ask("/new")
    assert (await desk.ask("/resume 2")).startswith("Back in")
    before, asked = await house.transcript(), house.model.total
    assert [message.text for message in before if message.role == "user"] == ["build"]
    let_go(house, "go")
    await _only_told(house, before, asked)


async def test_another_conversation_does_not_notice(house: House, scenes: Scenes) -> None:
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    await desk.ask("/new", chat="two")
    await desk.ask("/stop", chat="two")
    let_go(house, "go")
    await until(lambda: "the build is over" in desk.texts())
    assert len(desk.texts("two")) == 2


# ── restarts ──


async def test_a_process_that_ended_between_two_gateways_is_reported_once(
    house: House, scenes: Scenes
) -> None:
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    process = house.profile.home / "processes" / result_of(house)["process_id"]
    await house.close()
    let_go(house, "go")
    await until(lambda: "built" in _printed(process))
    for _ in range(2):
        desk = await house.open()
        await _until_ended(house)
        await house.close()
    await house.open()
    said = [text for role, text in await house.said() if role == "user"]
    assert sum("exit code 0" in text for text in said) == 1


async def test_a_process_that_runs_on_is_watched_by_the_next_gateway(
    house: House, scenes: Scenes
) -> None:
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    await house.crash()
    desk = await house.open()
    let_go(house, "go")
    await until(lambda: desk.texts() == ["the build is over"])


@pytest.mark.parametrize(
    ("first", "over"), [(begin("true"), "[Background"), (delegate("dig", background=True), "[Del")]
)
async def test_an_end_that_was_told_before_the_gateway_ended_is_not_told_again(
    house: House, scenes: Scenes, monkeypatch: pytest.MonkeyPatch, first: Reply, over: str
) -> None:
    """It was told, and the gateway ended before that was noted."""
    scenes.when("please", first, Reply(text="begun"))
    scenes.when(over, Reply(text="it is over"))
    desk = await house.open()
    assert house.store is not None

    async def never(*_: object) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(house.store, "end_work", never)
    await desk.ask("please")
    await until(lambda: "it is over" in desk.texts())
    await house.crash()
    desk = await house.open()
    await _until_ended(house)
    assert await desk.ask("hello") == "heard: hello"
    assert not any("over" in text for text in desk.texts())
    said = [text for role, text in await house.said() if role == "user"]
    assert sum(over in text for text in said) == 1


async def test_a_command_that_is_waited_for_outlives_a_gentle_restart(
    house: House, scenes: Scenes
) -> None:
    command = f"echo line >> ran; {waiting('go', 'exit 6')}"
    scenes.when("try", run(command), Reply(text="tried"))
    desk = await house.open()
    await desk.say("try")
    ran = house.profile.workspace / "ran"
    await until(ran.exists)
    await house.close()
    desk = await house.open()
    let_go(house, "go")
    await until(lambda: desk.texts() == ["tried"])
    assert result_of(house)["exit_code"] == 6
    assert ran.read_text() == "line\n"


async def test_whoever_stops_the_turn_stops_the_command_it_waits_for(
    house: House, scenes: Scenes
) -> None:
    scenes.when("try", run(f"touch begun; {waiting('never')}"), Reply(text="tried"))
    desk = await house.open()
    await desk.say("try")
    await until((house.profile.workspace / "begun").exists)
    await desk.ask("/stop")
    folder = house.profile.home / "processes"
    await until(lambda: len(list(folder.glob("proc_*/exit.json"))) == 1)


async def test_work_that_was_noted_and_never_begun_is_told_as_lost(
    house: House, scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_BEGUN_WITHIN", 0.05)
    _builds(scenes)
    desk = await house.open()
    await desk.ask("build")
    folder = house.profile.home / "processes"
    await house.close()
    let_go(house, "go")
    process = folder / result_of(house)["process_id"]
    await until(lambda: "built" in _printed(process))
    shutil.rmtree(folder)
    desk = await house.open()
    await until(lambda: "the build is over" in desk.texts())
    assert "lost" in house.words()[-1]
    assert [work.state for work in await works(house)] == ["lost"]


async def test_work_that_its_resumed_turn_begins_is_not_lost(house: House, scenes: Scenes) -> None:
    """The gateway ended between the note and the beginning; the turn is made good later."""
    _builds(scenes)
    desk = await house.open()
    assert house.store is not None
    folder = house.profile.home / "processes"
    # A turn that noted its work, as it stands when the gateway is gone right after.
    begun = house.store.begin_work
    noted = asyncio.Event()

    async def note_and_die(work: Work) -> bool:
        await begun(work)
        noted.set()
        await asyncio.Event().wait()
        return True

    async def too_late(*_: object) -> bool:
        raise StoreClosed("The gateway is dead.")

    house.store.begin_work = note_and_die  # type: ignore[method-assign]
    house.store.end_work = too_late  # type: ignore[method-assign, assignment]
    await desk.say("build")
    await noted.wait()
    await house.crash()
    assert not folder.is_dir()
    desk = await house.open()
    await until(lambda: "it builds" in desk.texts())
    let_go(house, "go")
    await until(lambda: "the build is over" in desk.texts())
    assert "exit code 0" in house.words()[-1]
    assert not any("lost" in text for _, text in await house.said())


def _printed(folder: Path) -> str:
    return (folder / "output").read_bytes().decode(errors="replace")
