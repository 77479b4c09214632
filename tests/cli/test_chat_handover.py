"""A chat that serves itself hands its home over to a gateway that starts, and goes on there."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from parley.config.homes import make_home
from parley.gateway.home import Kind, gateway_of, holder_of
from parley.profiles import Profile
from tests.cli.household import Household
from tests.cli.test_chat_screen import ENTER, PROMPT, leave, see
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until_now


def profile_of(household: Household) -> Profile:
    return household.parley.profile


def holds(household: Household, kind: Kind | None) -> None:
    """Wait until the home is held by a process of this kind, or by nobody."""

    def is_so() -> bool:
        holder = holder_of(profile_of(household))
        return (holder.kind if holder else None) == kind

    until_now(is_so, seconds=30)


def ask(screen: pexpect.spawn[str], text: str) -> None:
    screen.send(text + ENTER)
    see(screen, f"echo: {text}")


@contextmanager
def waiting_gateway(household: Household) -> Iterator[subprocess.Popen[str]]:
    """A gateway that is started, and waits for whoever has the home."""
    with household.begin("gateway", "run") as process:
        try:
            until_now(lambda: gateway_of(profile_of(household)) is not None, seconds=30)
            yield process
        finally:
            process.kill()


def serves_whole(household: Household) -> bool:
    """Whether the API answers at the address that the status tells."""
    status = household.parley.json("gateway", "status", "--json")
    [api] = [place for place in status["surfaces"] if place["platform"] == "api"]
    with urllib.request.urlopen(f"{api['where']}/readyz", timeout=10) as ready:
        return bool(json.load(ready)["ready"])


def test_a_gateway_gets_the_home_from_a_chat_that_serves_itself(
    household: Household, far_model: ScriptedModel
) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        ask(screen, "before")
        with household.gateway() as gateway:
            assert serves_whole(household)
            see(screen, f"with the gateway, process {gateway.pid}")
            ask(screen, "after")
            leave(screen)
    assert household.asked() == ["before", "echo: before", "after"]
    assert far_model.total == 2


def test_a_gateway_that_is_started_again_is_served_whole(household: Household) -> None:
    """What a service manager does, with a chat open all the time."""
    with household.chat() as screen:
        with household.gateway() as first:
            screen.expect(PROMPT)
            ask(screen, "one")
            first.send_signal(signal.SIGTERM)
            first.communicate(timeout=30)
        ask(screen, "two")
        holds(household, "chat")
        with household.gateway() as second:
            see(screen, f"with the gateway, process {second.pid}")
            assert serves_whole(household)
            second.kill()
            second.wait()
            ask(screen, "three")
        with household.gateway():
            ask(screen, "four")
            leave(screen)
    assert household.asked()[::2] == ["one", "two", "three", "four"]


def test_an_answer_that_runs_is_given_once_by_the_gateway(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(
        Reply(text="a first paragraph\n\n" + "and more " * 3, chunks=2, chunk_delay=300),
        Reply(text="the whole answer"),
    )
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        see(screen, "a first paragraph")
        with household.gateway():
            see(screen, "with the gateway")
            see(screen, "the whole answer")
            ask(screen, "and now?")
            assert "the whole answer" not in str(screen.before)
            leave(screen)
    assert far_model.aborted == 1
    assert household.asked() == ["hello", "the whole answer", "and now?"]


def test_a_single_question_is_answered_by_the_gateway_that_takes_over(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(Reply(text="never seen", delay=300), Reply(text="the answer"))
    with household.begin("chat", "-m", "hello") as asking:
        until_now(lambda: far_model.open_streams == 1, seconds=30)
        with household.gateway():
            out, err = asking.communicate(timeout=30)
    assert (asking.returncode, out, err) == (0, "the answer\n", "")
    assert far_model.total == 2


def test_every_chat_goes_over_to_the_gateway(household: Household) -> None:
    with household.chat() as hosting:
        hosting.expect(PROMPT)
        with household.chat("-c", "other") as joined:
            joined.expect(PROMPT)
            ask(joined, "by the other chat")
            with household.gateway() as gateway:
                for screen in (hosting, joined):
                    see(screen, f"with the gateway, process {gateway.pid}")
                    ask(screen, "and now")
                    leave(screen)


def test_a_gateway_that_is_killed_while_it_waits_leaves_the_chat_as_it_is(
    household: Household,
) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        holder = holder_of(profile_of(household))
        assert holder is not None
        screen.kill(signal.SIGSTOP)
        with waiting_gateway(household) as gateway:
            gateway.kill()
            gateway.wait()
        screen.kill(signal.SIGCONT)
        ask(screen, "still there?")
        assert holder_of(profile_of(household)) == holder
        leave(screen)


def test_a_chat_that_is_killed_while_it_hands_over_leaves_the_home(household: Household) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.kill(signal.SIGSTOP)
        with waiting_gateway(household):
            screen.kill(signal.SIGKILL)
            holds(household, "gateway")


def test_a_chat_that_opens_while_a_gateway_starts_joins_it(household: Household) -> None:
    with household.begin("gateway", "run") as gateway, household.chat() as screen:
        try:
            screen.expect(PROMPT)
            ask(screen, "hello")
            until_now(lambda: serves_whole(household), seconds=30)
            ask(screen, "there?")
            leave(screen)
        finally:
            gateway.kill()


def test_a_gateway_for_all_gets_each_home(household: Household) -> None:
    household.configure("gateway:\n  multiplex_profiles: true\n")
    (household.home / "profiles").mkdir(mode=0o700)
    settings = (household.home / "config.yaml").read_text().replace("gateway:", "# gateway:")
    settings = settings.replace("  multiplex_profiles", "# multiplex_profiles")
    make_home(household.home / "profiles" / "coder", soul="You are coder.\n", settings=settings)
    with household.chat("--profile", "coder") as coder, household.chat() as default:
        for screen in (coder, default):
            screen.expect(PROMPT)
            ask(screen, "before")
        with household.gateway() as gateway:
            for screen in (coder, default):
                see(screen, f"with the gateway, process {gateway.pid}")
                ask(screen, "after")
                leave(screen)
            status = household.parley.json("gateway", "status", "--json")
    assert {told["name"]: told["fault"] for told in status["profiles"]} == {
        "default": None,
        "coder": None,
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_a_chat_is_not_called_a_gateway(household: Household, as_json: bool) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        holder = holder_of(profile_of(household))
        assert holder is not None
        done = household.run("gateway", "status", *(["--json"] if as_json else []))
        leave(screen)
    assert done.returncode == 3
    if as_json:
        assert json.loads(done.stdout) == {"running": False}
    else:
        assert f"an open chat (process {holder.pid}) serves itself alone" in done.stderr
        assert "parley gateway run" in done.stderr


def test_a_chat_that_is_put_in_the_background_keeps_no_gateway_waiting(
    household: Household,
) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        ask(screen, "before")
        screen.send("\x1a")
        holds(household, None)
        with household.gateway() as gateway:
            screen.kill(signal.SIGCONT)
            see(screen, f"with the gateway, process {gateway.pid}")
            ask(screen, "after")
            leave(screen)


def test_the_locks_are_files_of_the_home(household: Household) -> None:
    with household.gateway():
        run: Path = profile_of(household).run
        assert {each.name for each in run.glob("*lock")} == {"lock", "gateway.lock"}
