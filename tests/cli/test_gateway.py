"""`parley gateway run` and `status`, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.cli._gateway_words import _under_way
from tests.cli.command import Parley
from tests.cli.household import Household
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until_now


def status(household: Household) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(household.run("gateway", "status", "--json").stdout)
    return found


def address(found: dict[str, Any]) -> str:
    return next(str(s["where"]) for s in found["surfaces"] if s["platform"] == "api")


def get(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_it_serves_tells_and_stops(household: Household) -> None:
    with household.gateway() as process:
        found = status(household)
        assert (found["running"], found["ready"], found["pid"]) == (True, True, process.pid)
        told = household.run("gateway", "status")
        assert told.returncode == 0
        assert f"(process {process.pid}), serving" in told.stdout
        assert "scripted · scripted" in told.stdout
        assert get(address(found) + "/healthz") == (200, {"status": "ok"})
        code, ready = get(address(found) + "/readyz")
        assert (code, ready["ready"]) == (200, True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.endswith("Stopped.\n")
    assert err == ""
    assert not (household.home / "run" / "parley.sock").exists()


def test_programs_are_told_their_address_and_where_the_key_is(household: Household) -> None:
    def line_after_the_address() -> str:
        with household.gateway() as process:
            where = address(status(household))
            shown = household.run("gateway", "status").stdout
            process.send_signal(signal.SIGTERM)
            said = _line(process.stdout)
        assert f"  api       {where}/v1\n" in shown
        assert "parley keys local" not in shown
        return said

    hint = "  The key of this machine for programs: parley keys local\n"
    assert line_after_the_address() == hint
    assert household.run("keys", "create", "laptop").returncode == 0
    assert line_after_the_address().startswith("Stopping")


def test_a_gateway_for_all_says_where_the_key_is_too(household: Household) -> None:
    household.configure("gateway:\n  multiplex_profiles: on\n")
    assert household.run("profile", "create", "coder").returncode == 0
    with household.gateway() as process:
        assert _line(process.stdout).endswith("programs: parley keys local\n")
        assert (
            f"  api      {address(status(household))}/v1\n"
            in household.run("gateway", "status").stdout
        )
    assert household.run("keys", "create", "laptop", "--profile", "coder").returncode == 0
    with household.gateway() as process:
        process.send_signal(signal.SIGTERM)
        assert _line(process.stdout).startswith("Stopping")


def test_a_remote_agent_is_named_with_what_is_wrong_with_it(
    household: Household, tmp_path: Path
) -> None:
    far = replace(household, home=tmp_path / "far")
    far.configure()
    with far.gateway() as answering:
        url = address(status(far))
        household.configure(f"gateway:\n  proxy_url: {url}\n")
        with household.gateway():
            told = household.run("gateway", "status").stdout
            assert "put the key into GATEWAY_PROXY_KEY" in told
        key = far.run("keys", "local").stdout.strip()
        assert household.run("config", "set", "GATEWAY_PROXY_KEY", key).returncode == 0
        with household.gateway():
            told = household.run("gateway", "status").stdout
            assert f"  answers   the agent at {url}\n" in told
            assert "fault" not in told
            answering.kill()
            answering.wait()
            until_now(lambda: "fault" in household.run("gateway", "status").stdout)
            told = household.run("gateway", "status").stdout
            assert f"  fault     Proxy connection error: nothing answers at {url};" in told
            reply = household.run("chat", "-m", "hello")
            assert reply.returncode == 1
            assert f"Proxy connection error: nothing answers at {url};" in reply.stderr


def test_no_gateway_is_said_with_the_command_and_a_code_of_its_own(household: Household) -> None:
    done = household.run("gateway", "status")
    assert done.returncode == 3
    assert done.stderr == (
        "parley: No gateway is running here; start it with: parley gateway run\n"
    )
    done = household.run("gateway", "status", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (3, {"running": False})


def test_its_status_has_a_short_name_and_its_port_an_option(tmp_path: Path) -> None:
    port = free_port()
    parley = Parley(tmp_path / "home")
    command = [sys.executable, "-m", "parley", "gateway", "run", "--port", str(port)]
    with subprocess.Popen(
        command, env=parley.environment(), stdout=subprocess.PIPE, text=True
    ) as gateway:
        try:
            assert gateway.stdout is not None
            assert "serves" in gateway.stdout.readline()
            done = parley.run("status")
            assert done.returncode == 0
            assert f"http://127.0.0.1:{port}/v1" in done.stdout
            assert parley.json("status", "--json")["running"] is True
        finally:
            gateway.kill()


def test_one_reply_is_one() -> None:
    about = {"running": 0, "queued": 0}
    assert _under_way({**about, "undelivered": 1}).endswith("1 reply on its way")
    assert _under_way({**about, "undelivered": 2}).endswith("2 replies on their way")


def test_ctrl_c_stops_it_too(household: Household) -> None:
    with household.gateway() as process:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_running_answer_may_finish_before_it_stops(
    household: Household, far_model: ScriptedModel
) -> None:
    with household.gateway() as gateway:
        asking = household.begin("chat", "-m", "[[delay 1]] slow")
        until_now(lambda: far_model.open_streams == 1)
        gateway.send_signal(signal.SIGTERM)
        out, _ = asking.communicate(timeout=60)
        assert out == "echo: [[delay 1]] slow\n"
        gateway.communicate(timeout=60)
    assert gateway.returncode == 0
    assert far_model.total == 1


def test_a_second_signal_stops_at_once_and_the_turn_is_finished_next_time(
    household: Household, far_model: ScriptedModel, stage: Stage
) -> None:
    household.configure("gateway: {drain_seconds: 100}\n")
    stage.then(Reply(text="never", delay=100))
    with household.gateway() as gateway:
        asking = household.begin("chat", "-m", "slow", "-c", "mine")
        until_now(lambda: far_model.open_streams == 1)
        asking.kill()
        asking.communicate()
        gateway.send_signal(signal.SIGTERM)
        until_now(lambda: _line(gateway.stdout).startswith("Stopping"))
        gateway.send_signal(signal.SIGTERM)
        gateway.communicate(timeout=60)
    assert gateway.returncode == 0
    done = household.run("chat", "-m", "thanks", "-c", "mine")
    # The one reply may answer both, when the second came before the first was asked again.
    assert "echo: slow" in done.stderr + done.stdout
    assert "thanks" in done.stdout


def _line(stream: Any) -> str:
    return str(stream.readline())


def test_a_second_gateway_on_the_same_home_is_refused_with_the_process(
    household: Household,
) -> None:
    with household.gateway() as first:
        done = household.run("gateway", "run")
        assert done.returncode == 1
        assert done.stderr == (
            f"parley: {household.home} is already served by `parley gateway run` "
            f"(process {first.pid}); stop it first, or use it as it is.\n"
        )
        assert status(household)["pid"] == first.pid


def test_a_killed_gateway_leaves_a_home_that_starts(household: Household) -> None:
    with household.gateway() as process:
        process.kill()
        process.wait()
    assert household.run("gateway", "status").returncode == 3
    with household.gateway():
        assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"


def test_a_port_in_use_is_said_with_the_command_and_terminals_are_served(
    household: Household,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        household = replace(household, port=port)
        with household.gateway() as process:
            found = status(household)
            [fault] = [s["fault"] for s in found["surfaces"] if s["fault"]]
            assert fault == (
                f"Port {port} is in use by another program; free it, or choose another: "
                "parley config set gateway.port 8643"
            )
            assert found["ready"] is False
            assert "NOT SERVED: Port" in household.run("gateway", "status").stdout
            assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def test_a_long_home_is_served(tmp_path: Path, far_model: ScriptedModel) -> None:
    deep = tmp_path / ("x" * 100) / "home"
    deep.parent.mkdir()
    household = Household(deep, far_model)
    household.configure()
    with household.gateway():
        assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_home_that_is_not_ours_is_one_sentence(household: Household) -> None:
    household.home.chmod(0o500)
    done = household.run("gateway", "run")
    assert done.returncode == 1
    assert "cannot be used" in done.stderr


def test_a_home_below_a_file_is_one_sentence(tmp_path: Path, far_model: ScriptedModel) -> None:
    (tmp_path / "file").touch()
    household = Household(tmp_path / "file" / "home", far_model)
    done = household.run("gateway", "run")
    assert done.returncode == 1
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1


def test_a_database_that_is_gone_is_said_and_not_written_to(household: Household) -> None:
    with household.gateway():
        file = household.home / "parley.db"
        file.rename(household.home / "kept.db")
        done = household.run("chat", "-m", "hello")
        assert done.returncode == 1
        assert "was removed or replaced" in done.stderr
        (household.home / "kept.db").rename(file)
        assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"


def test_what_is_said_while_the_gateway_stops_is_answered_by_the_next(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two", chunks=2, chunk_delay=2))
    with household.gateway() as gateway, household.begin("chat", "-m", "first") as first:
        until_now(lambda: far_model.open_streams == 1)
        gateway.send_signal(signal.SIGTERM)
        until_now(lambda: _line(gateway.stdout).startswith("Stopping"))
        second = household.run("chat", "-m", "second")
        assert second.stdout == "echo: second\n", second.stderr
        assert first.communicate(timeout=60)[0] == "one two\n"


def test_a_gateway_that_does_not_answer_is_not_called_absent(household: Household) -> None:
    with household.gateway() as gateway:
        gateway.send_signal(signal.SIGSTOP)
        try:
            asked = household.begin("chat", "-m", "hello")
            told = household.run("gateway", "status")
            assert told.returncode == 1
            assert f"process {gateway.pid}, which does not answer" in told.stderr
            assert "does not answer" in asked.communicate(timeout=60)[1]
        finally:
            gateway.send_signal(signal.SIGCONT)
        assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"
    assert (household.home / "run" / "lock").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("variable", "url", "backend"),
    [
        ("GATEWAY_PROXY_URL", "http://127.0.0.1:9", "proxy"),
        ("AGENT_WS_URL", "ws://127.0.0.1:9/agent_ws/", "direct"),
    ],
)
def test_a_remote_agent_that_is_named_and_not_used_is_said_at_the_start(
    household: Household, variable: str, url: str, backend: str
) -> None:
    household.configure("backend: agent\n")
    (household.home / ".env").write_text(f"{variable}={url}\n")
    (household.home / ".env").chmod(0o600)
    sentence = f"(`{variable}`) names a remote agent that is not used: `agent` answers here."
    with household.gateway() as process:
        assert sentence in _line(process.stdout)
        assert sentence in household.run("gateway", "status").stdout
        assert sentence in household.run("doctor", "--offline").stdout
    household.configure("surfaces:\n  webhook:\n    backend: " + backend + "\nbackend: agent\n")
    with household.gateway():
        assert "not used" not in household.run("gateway", "status").stdout
