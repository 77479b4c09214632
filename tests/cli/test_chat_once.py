"""`parley chat -m`: what stops it, what it shows on a terminal, and what it does not promise."""

from __future__ import annotations

import json
import signal
import subprocess

import pexpect
import pytest

from tests.agent.processes.house import needs_bubblewrap
from tests.cli.household import Household
from tests.gateway.workshop import Scenes, begin, delegate, end_processes, waiting
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until_now

_SLOW = Reply(text="one two three", chunks=3, chunk_delay=600)


def until_asked(model: ScriptedModel) -> None:
    until_now(lambda: model.open_streams == 1, seconds=60)


def _queued(household: Household) -> int:
    return int(household.parley.json("gateway", "status", "--json")["queued"])


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_its_turn_at_the_gateway(
    household: Household, stage: Stage, far_model: ScriptedModel, number: signal.Signals
) -> None:
    stage.then(_SLOW)
    with household.gateway():
        with household.begin("chat", "-m", "hello", "-c", "mine") as asking:
            until_asked(far_model)
            asking.send_signal(number)
            said = outcome(asking)
        until_now(lambda: far_model.open_streams == 0, seconds=60)
        status = household.parley.json("gateway", "status", "--json")
    assert said == (128 + number, "", "parley: The answer was stopped.\n")
    assert far_model.aborted == 1
    assert (status["running_turns"], status["queued"], status["undelivered"]) == (0, 0, 0)


def test_a_signal_leaves_nothing_for_the_next_start(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    """Without a gateway as well: what nobody waits for is not asked again."""
    stage.then(_SLOW)
    with household.begin("chat", "-m", "hello", "--json") as asking:
        until_asked(far_model)
        asking.send_signal(signal.SIGTERM)
        code, out, err = outcome(asking)
    assert (code, json.loads(out), err) == (143, {"error": "The answer was stopped."}, "")
    assert household.run("chat", "-m", "next").stdout == "echo: next\n"
    assert far_model.total == 2


@pytest.mark.parametrize("command", ["/stop", "/stop all"])
def test_a_stop_from_elsewhere_ends_it(
    household: Household, stage: Stage, far_model: ScriptedModel, command: str
) -> None:
    household.configure("gateway:\n  busy: queue\n")
    stage.then(_SLOW)
    asked = ["first", "second"] if command == "/stop all" else ["first"]
    with household.gateway():
        running = []
        for text in asked:
            running.append(household.begin("chat", "-m", text, "-c", "mine"))
            until_asked(far_model)
        until_now(lambda: _queued(household) == len(asked) - 1, seconds=60)
        household.run("chat", "-m", command, "-c", "mine")
        for process in running:
            code, out, err = outcome(process)
            assert (code, out) == (1, "")
            assert err.endswith("parley: The answer was stopped.\n")


def test_a_terminal_shows_the_answer_as_it_comes(household: Household, stage: Stage) -> None:
    stage.then(Reply(text="first words and the last ones", chunks=2, chunk_delay=2, delay=2))
    with household.chat("-m", "hello") as screen:
        screen.expect("thinking…")
        screen.expect("first words")
        assert "the last ones" not in str(screen.buffer)
        screen.expect("the last ones\r\n")
        screen.expect(pexpect.EOF)
        assert (screen.before or "").strip() == ""
        screen.wait()
    assert screen.exitstatus == 0


def test_ctrl_c_on_a_terminal(household: Household, stage: Stage, far_model: ScriptedModel) -> None:
    stage.then(Reply(text="first words and more", chunks=2, chunk_delay=600))
    with household.chat("-m", "hello") as screen:
        screen.expect("first word")
        screen.send("\x03")
        screen.expect("The answer was stopped.")
        screen.expect(pexpect.EOF)
        screen.wait()
    assert screen.exitstatus == 130
    until_now(lambda: far_model.aborted == 1, seconds=60)


_PLAN = Reply(tool_calls=(("schedule", {"action": "add", "text": "tea", "at": "+3d"}),))


@needs_bubblewrap
@pytest.mark.parametrize("how", [(), ("-c", "mine")])
def test_it_promises_nothing_that_nobody_is_there_for(
    household: Household, scenes: Scenes, how: tuple[str, ...]
) -> None:
    """A conversation that is opened again gets the promise; one question alone does not."""
    later = bool(how)
    scenes.when("build", begin(waiting("never")), Reply(text="it builds"))
    scenes.when("fetch", delegate("dig", background=True), Reply(text="fetched"))
    scenes.when("plan", _PLAN, Reply(text="planned"))
    scenes.when("dig", Reply(text="gold"))
    try:
        with household.gateway():
            assert household.run("chat", "-m", "build", *how).stdout == "it builds\n"
            told = json.loads(_result_of(household))
            assert told["notify_on_complete"] is later
            assert ("notify_unsupported" in told) is not later
            household.run("chat", "-m", "fetch", *how)
            assert ("status" in json.loads(_result_of(household))) is later
            household.run("chat", "-m", "plan", *how)
            assert ("cannot deliver anything later" in _result_of(household)) is not later
    finally:
        end_processes(household.home)


def _result_of(household: Household) -> str:
    """The newest result of a tool that the model was told."""
    found = [
        str(message["content"])
        for request in household.model.requests
        for message in request.json["messages"][-1:]
        if message["role"] == "tool"
    ]
    return found[-1]
