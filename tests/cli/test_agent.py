"""`parley agent serve`, as a real process that a client talks to."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess

import pytest

from tests.cli.household import Household
from tests.surfaces.agent_ws.line import connect


def _first_lines(process: subprocess.Popen[str]) -> list[str]:
    """What it says when it has started."""
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or "Ctrl-C" not in lines[-1]:
        lines.append(process.stdout.readline())
        if not lines[-1]:
            assert process.stderr is not None
            raise AssertionError(f"{lines}\n{process.stderr.read()}")
    return [line.strip() for line in lines]


def _ask(where: str, key: str) -> str:
    async def ask() -> str:
        async with connect(where, key, path="") as line:
            return await line.ask("hello")

    return asyncio.run(ask())


def test_it_says_where_it_is_and_with_which_key_and_serves_until_ctrl_c(
    household: Household,
) -> None:
    with household.begin("agent", "serve", "--port", "0") as process:
        try:
            said = _first_lines(process)
            [address] = [line for line in said if line.startswith("ws://127.0.0.1:")]
            where, _, query = address.partition("?")
            assert (where.endswith("/agent_ws/"), query) == (True, "thread_id=THREAD")
            assert "parley keys local" in said
            key = household.run("keys", "local").stdout.strip()
            assert _ask(where.replace("ws", "http", 1), key) == "echo: hello"
        finally:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("Stopped.\n")


def test_another_profile_is_served_alone_with_keys_of_its_own(household: Household) -> None:
    household.run("profile", "create", "coder", "--clone")
    made = household.run("keys", "create", "desk", "--profile", "coder")
    with household.begin("agent", "serve", "--profile", "coder", "--port", "0") as process:
        try:
            said = _first_lines(process)
            assert "parley keys create NAME --profile coder" in said
            [address] = [line for line in said if line.startswith("ws://")]
            where = address.partition("?")[0].replace("ws", "http", 1)
            assert _ask(where, made.stdout.strip()) == "echo: hello"
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_port_that_is_taken_is_told_in_a_sentence(household: Household) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        told = household.run("agent", "serve", "--port", port)
    assert told.returncode == 1
    assert told.stderr.startswith(f"parley: Port {port} is in use")
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::"], ids=["all-4", "all-6"])
def test_without_a_key_it_is_not_opened_to_other_machines(household: Household, host: str) -> None:
    told = household.run("agent", "serve", "--host", host, "--port", "0")
    assert told.returncode == 1
    assert "parley keys create" in told.stderr
