"""One gateway for many profiles, as people run it: real processes, killed and started again."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parley.gateway.home import holder_of, socket_path
from parley.profiles import Profile
from tests.cli.command import Parley
from tests.cli.household import Household
from tests.gateway.conversation import Conversation, Moments
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.servers.scripted_model import ScriptedModel
from tests.waiting import until, until_now

MULTIPLEX = "gateway:\n  multiplex_profiles: on\n"
NAMES = ("default", "coder", "writer")


def of(household: Household, name: str) -> Profile:
    home = household.home if name == "default" else household.home / "profiles" / name
    return Profile(name, home)


def beside(household: Household, name: str) -> Household:
    """A named profile of the household, to be configured."""
    home = of(household, name).home
    home.parent.mkdir(exist_ok=True)
    made = replace(household, home=home)
    made.configure()
    (home / "SOUL.md").write_text(f"You are {name}.\n")
    return made


@pytest.fixture
def family(household: Household) -> Household:
    """Three profiles, and one gateway for all of them."""
    household.configure(MULTIPLEX)
    for name in NAMES[1:]:
        beside(household, name)
    return household


def status(household: Household, *arguments: str) -> dict[str, Any]:
    done = household.run("gateway", "status", "--json", *arguments)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def told_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    [told] = [profile for profile in found["profiles"] if profile["name"] == name]
    return dict(told)


def soul(model: ScriptedModel, number: int = -1) -> str:
    """What the model was told to be, in one request."""
    messages = json.loads(model.requests[number].body)["messages"]
    return "\n".join(str(m["content"]) for m in messages if m["role"] == "system")


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence a command fails with."""
    assert done.returncode not in (0, None)
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("parley: ").rstrip()


def with_variable(household: Household, **more: str) -> Parley:
    parley = household.parley
    return replace(parley, more={**parley.more, **more})


# ── served together ──


def test_one_gateway_serves_three_profiles(family: Household, far_model: ScriptedModel) -> None:
    with family.gateway() as process:
        found = status(family)
        assert (found["running"], found["multiplex"], found["pid"]) == (True, True, process.pid)
        assert [profile["name"] for profile in found["profiles"]] == list(NAMES)
        assert (found["ready"], found["degraded"]) == (True, False)
        words = family.run("gateway", "status").stdout
        assert f"serves 3 profiles of {family.home} (process {process.pid}), serving" in words
        for name in NAMES:
            assert f"  {name:<7}  scripted · scripted · terminal" in words
            done = family.run("chat", "--profile", name, "-m", f"hello {name}", "-c", "same")
            assert (done.stdout, done.stderr) == (f"echo: hello {name}\n", "")
            assert name == "default" or f"You are {name}." in soul(far_model)
            assert status(family, "--profile", name)["pid"] == process.pid
        for name in NAMES:
            family.run("chat", "--profile", name, "-m", "again", "-c", "same")
            assert family.asked() == [f"hello {name}", f"echo: hello {name}", "again"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")
    for name in NAMES:
        assert holder_of(of(family, name)) is None
        assert not socket_path(of(family, name)).exists()


def test_each_profile_has_its_own_database_and_log(family: Household) -> None:
    with family.gateway():
        for name in NAMES:
            family.run("chat", "--profile", name, "-m", f"[[status 400]] secret of {name}")
    for name in NAMES:
        profile = of(family, name)
        assert f"secret of {name}".encode() in _rows(profile)
        for other in set(NAMES) - {name}:
            assert f"secret of {other}".encode() not in _rows(profile)
        lines = (profile.logs / "parley.log").read_text().splitlines()
        assert {json.loads(line)["profile"] for line in lines} == {name}


def _rows(profile: Profile) -> bytes:
    files = profile.home.glob("parley.db*")
    return b"".join(file.read_bytes() for file in files)


def test_the_flag_may_come_from_the_environment(household: Household) -> None:
    beside(household, "coder")
    parley = with_variable(household, GATEWAY_MULTIPLEX_PROFILES="yes")
    with parley.gateway():
        assert household.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"
        assert [each["name"] for each in status(household)["profiles"]] == ["default", "coder"]


def test_a_flag_nobody_can_read_is_one_sentence(household: Household) -> None:
    household.configure("multiplex_profiles: perhaps\n")
    assert "`gateway.multiplex_profiles` wants `true` or `false`, not `perhaps`" in refused(
        household.run("gateway", "run")
    )


def test_a_route_to_nobody_is_told_at_the_start(family: Household) -> None:
    family.configure(MULTIPLEX + "  routes:\n    - {profile: codr, chat: x}\n")
    sentence = refused(family.run("gateway", "run"))
    assert "Route 1 in `gateway.routes` goes to the profile `codr`, which is not served" in sentence


def test_a_profile_to_serve_that_is_not_there_is_told_at_the_start(family: Household) -> None:
    family.configure(MULTIPLEX + "  profiles: [default, codr]\n")
    assert "`gateway.profiles` names `codr`" in refused(family.run("gateway", "run"))


def test_too_few_open_files_are_told_at_the_start(family: Household) -> None:
    told = refused(family.parley.shell("ulimit -n 70 && parley gateway run"))
    assert told.startswith(
        "3 profiles need some 84 open files, and 70 are allowed: raise the limit"
    )


def test_a_gateway_for_all_does_not_need_the_profile_that_was_chosen(family: Household) -> None:
    assert family.run("profile", "use", "coder").returncode == 0
    shutil.rmtree(family.home / "profiles" / "coder")
    assert "choose another with `parley profile use default`" in refused(
        family.run("config", "path")
    )
    with family.gateway():
        assert {told["name"] for told in status(family, "--profile", "default")["profiles"]} == {
            "default",
            "writer",
        }


def test_only_some_may_be_served(family: Household) -> None:
    family.configure(MULTIPLEX + "  profiles: [coder, writer]\n")
    with family.gateway() as process:
        found = status(family, "--profile", "writer")
        assert [profile["name"] for profile in found["profiles"]] == ["coder", "writer"]
        assert status(family)["pid"] == process.pid
        assert family.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"


# ── which profile ──


def test_the_option_may_stand_before_the_verb_or_after_it(family: Household) -> None:
    with family.gateway():
        for arguments in (
            ("--profile", "coder", "chat", "-m", "hello"),
            ("--profile=coder", "chat", "-m", "hello"),
            ("chat", "--profile", "coder", "-m", "hello"),
            ("chat", "-m", "hello", "--profile", "coder"),
        ):
            assert family.run(*arguments).stdout == "echo: hello\n"
        assert len(family.parley.json("sessions", "list", "--json", "--profile", "coder")) == 4
        assert len(family.parley.json("--profile", "coder", "sessions", "list", "--json")) == 4
        assert family.parley.json("sessions", "list", "--json") == []


@pytest.mark.parametrize("verb", [("chat", "-m", "x"), ("gateway", "status"), ("gateway", "run")])
def test_a_profile_that_is_not_there_is_one_sentence(
    family: Household, verb: Sequence[str]
) -> None:
    wanted = "There is no profile `codr`; did you mean `coder`?"
    assert refused(family.run(*verb, "--profile", "codr")) == wanted
    assert refused(family.run("--profile", "codr", *verb)) == wanted
    assert refused(with_variable(family, PARLEY_PROFILE="codr").run(*verb)) == wanted
    assert "cannot be the name of a profile" in refused(family.run(*verb, "--profile", "../x"))


def test_the_variable_chooses_the_profile_and_the_option_is_above_it(
    family: Household, far_model: ScriptedModel
) -> None:
    parley = with_variable(family, PARLEY_PROFILE="coder")
    parley.run("chat", "-m", "hello")
    assert "You are coder." in soul(far_model)
    parley.run("chat", "-m", "hello", "--profile", "writer")
    assert "You are writer." in soul(far_model)
    family.run("profile", "use", "writer")
    family.run("chat", "-m", "hello")
    assert "You are writer." in soul(far_model)
    parley.run("chat", "-m", "hello")
    assert "You are coder." in soul(far_model)


def test_a_mark_on_a_profile_that_is_gone_is_one_sentence(family: Household) -> None:
    (family.home / "active_profile").write_text("gone\n")
    assert "`gone` that you chose is not there" in refused(family.run("chat", "-m", "hello"))
    assert family.run("chat", "-m", "hello", "--profile", "default").stdout == "echo: hello\n"


def test_the_active_profile_alone_is_served_without_the_flag(household: Household) -> None:
    beside(household, "coder")
    household.run("profile", "use", "coder")
    with household.gateway() as process:
        found = status(household)
        assert (found["pid"], found["multiplex"]) == (process.pid, False)
        assert [profile["name"] for profile in found["profiles"]] == ["coder"]
        done = household.run("gateway", "status", "--profile", "default")
        assert done.returncode == 3
        assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"


def test_an_explicit_profile_is_served_alone(family: Household) -> None:
    with family.gateway("--profile", "coder") as process:
        found = status(family, "--profile", "coder")
        assert [profile["name"] for profile in found["profiles"]] == ["coder"]
        assert found["pid"] == process.pid
        assert family.run("gateway", "status").returncode == 3
        assert family.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"
        assert holder_of(of(family, "default")) is None


def test_sessions_go_on_when_the_flag_changes_and_changes_back(family: Household) -> None:
    def say(text: str) -> list[str]:
        family.run("chat", "--profile", "coder", "-c", "mine", "-m", text)
        return family.asked()

    family.configure()
    with family.gateway("--profile", "coder"):
        assert say("one") == ["one"]
    family.configure(MULTIPLEX)
    with family.gateway():
        assert say("two") == ["one", "echo: one", "two"]
    assert say("three")[-3:] == ["two", "echo: two", "three"]
    family.configure()
    with family.gateway("--profile", "coder"):
        assert say("four") == [
            *("one", "echo: one", "two", "echo: two", "three", "echo: three", "four"),
        ]


def test_a_route_is_not_passed_over_when_the_flag_is_off(family: Household) -> None:
    family.configure("gateway:\n  routes:\n    - {profile: coder, platform: desk}\n")
    assert "goes to the profile `coder`, which is not served" in refused(
        family.run("gateway", "run")
    )
    with family.gateway("--profile", "coder"):
        assert family.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"


# ── faults ──


def test_a_broken_profile_is_told_while_the_others_serve_and_is_taken_in_when_mended(
    family: Household,
) -> None:
    config = of(family, "coder").config_file
    sound = config.read_text()
    config.write_text("model: [\n")
    with family.gateway() as process:
        found = status(family)
        assert (found["ready"], found["degraded"]) == (True, True)
        assert "profiles/coder/config.yaml, line 2" in told_of(found, "coder")["fault"]
        words = family.run("gateway", "status").stdout
        assert "  coder    NOT SERVED: " in words
        assert family.run("chat", "--profile", "writer", "-m", "hello").stdout == "echo: hello\n"
        config.write_text(sound)
        until_now(lambda: not told_of(status(family), "coder")["fault"])
        assert family.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"
        assert holder_of(of(family, "coder")) == (holder := holder_of(of(family, "default")))
        assert holder is not None
        assert holder.pid == process.pid


def test_status_may_be_asked_at_the_profile_that_is_not_served(family: Household) -> None:
    of(family, "coder").config_file.write_text("model: 5\n")
    with family.gateway() as process:
        found = status(family, "--profile", "coder")
        assert found["pid"] == process.pid
        assert "wants settings under it, not `5`" in told_of(found, "coder")["fault"]


def test_a_broken_default_does_not_keep_the_others_from_being_served(family: Household) -> None:
    family.configure(MULTIPLEX + "log:\n  level: loud\n")
    with family.gateway():
        found = status(family, "--profile", "coder")
        assert "`log.level` wants" in told_of(found, "default")["fault"]
        assert family.run("chat", "--profile", "coder", "-m", "hello").stdout == "echo: hello\n"
        assert "`log.level` wants" in refused(family.run("chat", "-m", "hello"))


def test_a_home_with_an_impossible_name_is_noted(family: Household) -> None:
    beside(family, "My Agent")
    with family.gateway():
        [note] = status(family)["notes"]
        assert "My Agent is not served" in note
        assert f"note: {note}" in family.run("gateway", "status").stdout


def test_a_home_that_a_chat_holds_is_handed_over_to_the_gateway(family: Household) -> None:
    with family.chat("--profile", "coder") as screen:
        screen.expect("coder|scripted")
        until_now(lambda: holder_of(of(family, "coder")))
        with family.gateway() as process:
            assert family.run("chat", "--profile", "writer", "-m", "hi").stdout == "echo: hi\n"
            until_now(lambda: _is_held(family, "coder", process.pid))
            until_now(lambda: not told_of(status(family), "coder")["fault"])
            assert family.run("chat", "--profile", "coder", "-m", "hi").stdout == "echo: hi\n"
            screen.send("still here\r")
            screen.expect("echo: .*still here")


def _is_held(household: Household, name: str, pid: int) -> bool:
    found = holder_of(of(household, name))
    return found is not None and found.pid == pid


def test_a_second_gateway_for_the_same_profiles_is_refused_with_the_process(
    family: Household,
) -> None:
    with family.gateway() as first:
        for arguments in ((), ("--profile", "coder")):
            sentence = refused(family.run("gateway", "run", *arguments))
            assert f"is already served by `parley gateway run` (process {first.pid})" in sentence
        assert status(family)["pid"] == first.pid


def test_a_profile_made_while_the_gateway_runs_is_taken_in(family: Household) -> None:
    with family.gateway() as process:
        beside(family, "cook")
        until_now(lambda: _is_held(family, "cook", process.pid))
        until_now(lambda: len(status(family)["profiles"]) == 4)
        assert family.run("chat", "--profile", "cook", "-m", "hi").stdout == "echo: hi\n"


# ── killed ──


def test_chats_that_were_waiting_get_their_one_answer_after_a_kill(
    family: Household, far_model: ScriptedModel
) -> None:
    """They may answer themselves meanwhile; then the gateway takes their homes over."""
    names = NAMES[1:]
    with family.gateway() as killed:
        asking = {
            name: family.begin("chat", "--profile", name, "-m", f"[[delay 1]] {name}")
            for name in names
        }
        until_now(lambda: far_model.open_streams == len(names))
        killed.kill()
        killed.wait()
    with family.gateway() as process:
        for name, chat in asking.items():
            out, err = chat.communicate(timeout=60)
            assert (out, err) == (f"echo: [[delay 1]] {name}\n", "")
        for name in names:
            until_now(partial(_is_held, family, name, process.pid))
            [session] = family.parley.json("sessions", "list", "--json", "--profile", name)
            assert session["turns"] == 1


@pytest.mark.timeout(240)
async def test_every_message_of_every_profile_is_answered_once_however_often_it_is_killed(
    tmp_path: Path,
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    root, moments = tmp_path / "home", Moments()
    with ModelProcess() as model, GatewayProcess(root) as gateway:
        house = {"multiplex_profiles": True, "busy": "queue"}
        homes = {"default": root} | {name: root / "profiles" / name for name in NAMES[1:]}
        for name, home in homes.items():
            rules = house if name == "default" else {"busy": "queue"}
            write_config(home, model_url=model.base_url, gateway=rules)
        people = {
            name: [
                Conversation(
                    f"c{number}",
                    socket=socket_path(Profile(name, home)),
                    seed=f"{seed}-{name}-{number}",
                    moments=moments,
                )
                for number in range(2)
            ]
            for name, home in homes.items()
        }
        everyone = [person for some in people.values() for person in some]
        async with asyncio.TaskGroup() as group:
            talking = [group.create_task(person.run()) for person in everyone]
            for phase in ("accepted", "stream", "tool", "delivery", "ended"):
                gateway.start()
                await gateway.until_ready()
                await moments.next(phase, seconds=3)
                gateway.kill()
            gateway.start()
            await until(lambda: all(len(person.said) > 2 for person in everyone))
            moments.talking = False
            await until(lambda: all(person.settled for person in everyone))
            for task in talking:
                task.cancel()
        assert await gateway.stop() == 0
    for name, some in people.items():
        for person in some:
            times = Counter(person.answered)
            assert times == dict.fromkeys(person.said, 1), (seed, name, person.chat)
            assert person.faults == []
            answers = {n: reply for reply in person.replies.values() for n in reply.answers}
            for number, text in person.said.items():
                expected = "tool said: " if "[[tool" in text else f"echo: {text}"
                assert answers[number].text.startswith(expected), (seed, name, number)
