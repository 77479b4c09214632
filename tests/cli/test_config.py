"""`parley config`, run as a person or a script runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pexpect
import pytest

from parley.config.settings import DEFAULT_TOOLS
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    home = tmp_path / ".parley"
    home.mkdir()
    return Shell(home)


def test_get_shows_a_setting_a_section_or_everything(shell: Shell) -> None:
    assert shell.run("config", "get", "gateway.port").stdout == "8642\n"
    assert shell.run("config", "get", "agent.tools").stdout == ", ".join(DEFAULT_TOOLS) + "\n"
    assert shell.run("config", "get", "log").stdout == "level: info\n"
    everything = shell.run("config", "get").stdout
    assert "gateway:\n  host: 127.0.0.1\n  port: 8642\n" in everything
    assert json.loads(shell.run("config", "get", "--json").stdout)["gateway"]["port"] == 8642
    assert json.loads(shell.run("config", "get", "gateway", "--json").stdout)["port"] == 8642
    assert list(shell.home.iterdir()) == []


def test_set_and_unset_change_the_file_and_keep_its_comments(shell: Shell) -> None:
    (shell.home / "config.yaml").write_text("# mine\ngateway:\n  port: 1  # here\n")
    assert shell.run("config", "set", "gateway.port", "77").stdout == "gateway.port = 77\n"
    assert shell.config() == "# mine\ngateway:\n  port: 77  # here\n"
    assert shell.run("config", "unset", "gateway.port").stdout == "gateway.port is unset.\n"
    assert shell.run("config", "unset", "gateway.port").stdout == "gateway.port was not set.\n"
    assert shell.config() == "# mine\ngateway:\n"


def test_null_takes_a_limit_away(shell: Shell) -> None:
    assert shell.run("config", "set", "plan.tokens", "1000").stdout == "plan.tokens = 1000\n"
    assert shell.run("config", "set", "plan.tokens", "null").stdout == "plan.tokens = null\n"
    assert shell.run("config", "get", "plan.tokens").stdout == "\n"


def test_path_and_check_say_what_is_there(shell: Shell) -> None:
    assert shell.run("config", "path").stdout == f"{shell.home / 'config.yaml'}\n"
    assert "does not exist: every setting has its default." in shell.run("config", "check").stdout
    (shell.home / "config.yaml").write_text("log: {level: debug}\n")
    assert shell.run("config", "check").stdout == "~/.parley/config.yaml is fine.\n"


def test_check_lists_every_fault_and_ends_with_an_error(shell: Shell) -> None:
    (shell.home / "config.yaml").write_text("gatway:\n  port: 1\nlog:\n  level: loud\n")
    done = shell.run("config", "check")
    assert done.returncode == 1
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == (
        "parley: ~/.parley/config.yaml, line 1, column 1: unknown setting `gatway.port`; "
        "did you mean `gateway.port`?"
    )
    assert second.startswith("parley: ~/.parley/config.yaml, line 4, column 3: `log.level` wants")
    told = shell.run("config", "check", "--json")
    assert told.returncode == 1
    assert [len(json.loads(told.stdout)["faults"]), json.loads(told.stdout)["ok"]] == [2, False]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["set", "gateway.port", "abc"], "`gateway.port` wants a whole number, not `abc`."),
        (["set", "providers.x.temperature", "-1"], "wants 0 or more, not `-1`."),
        (
            ["set", "gateway.port"],
            "Give the value as well: `parley config set gateway.port VALUE`.",
        ),
        (["set", "gatway.port", "1"], "did you mean `gateway.port`?"),
        (["set", "PARLEY_HOME", "x"], "`PARLEY_HOME` is read from the environment"),
        (["set", "model.name", "sk-abcdefghijkl"], "looks like a key or password"),
        (["set", "OPENAI_API_KEY", " "], "`OPENAI_API_KEY` needs a value."),
        (["get", "gateway.prot"], "did you mean `gateway.port`?"),
        (["get", "providers.box.model"], "There is no `providers.box` in the settings."),
        (["unset", "nothing.here"], "Unknown setting `nothing.here`"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(
    shell: Shell, arguments: list[str], told: str
) -> None:
    done = shell.run("config", *arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
    assert list(shell.home.iterdir()) == []


@pytest.mark.parametrize("verb", [["get"], ["set", "log.level", "info"], ["unset", "log.level"]])
def test_a_broken_file_is_told_and_left_alone(shell: Shell, verb: list[str]) -> None:
    (shell.home / "config.yaml").write_text("log: [\n")
    done = shell.run("config", *verb)
    assert done.returncode == 1
    assert done.stderr.startswith("parley: ~/.parley/config.yaml, line 2, column 1: this is not")
    assert shell.config() == "log: [\n"


def test_a_key_goes_into_the_env_file_and_is_never_shown(shell: Shell) -> None:
    assert shell.run("config", "get", "OPENAI_API_KEY").stdout == "not set\n"
    done = shell.run("config", "set", "OPENAI_API_KEY", "hunter2hunter2")
    assert done.stdout == "OPENAI_API_KEY is saved in ~/.parley/.env.\n"
    assert (shell.home / ".env").read_text() == "OPENAI_API_KEY=hunter2hunter2\n"
    assert not (shell.home / "config.yaml").exists()
    assert shell.run("config", "get", "OPENAI_API_KEY").stdout == "set\n"
    (shell.home / "config.yaml").write_text("model: {name: hunter2hunter2}\n")
    shown = shell.run("config", "get").stdout + shell.run("config", "get", "model.name").stdout
    assert "hunter2" not in shown
    shell.run("config", "set", "OPENAI_API_KEY", stdin="from-a-pipe\n")
    assert (shell.home / ".env").read_text() == "OPENAI_API_KEY=from-a-pipe\n"
    assert shell.run("config", "unset", "OPENAI_API_KEY").stdout == "OPENAI_API_KEY is unset.\n"
    assert (shell.home / ".env").read_text() == ""


def test_a_key_is_hidden_while_it_is_typed(shell: Shell) -> None:
    terminal = shell.terminal("config", "set", "OPENAI_API_KEY")
    terminal.expect("OPENAI_API_KEY: ")
    terminal.waitnoecho()
    terminal.sendline("hunter2hunter2")
    terminal.expect(pexpect.EOF)
    assert "hunter2" not in str(terminal.before)
    assert (shell.home / ".env").read_text() == "OPENAI_API_KEY=hunter2hunter2\n"


def test_a_variable_above_a_changed_setting_is_noted(shell: Shell) -> None:
    done = shell.run("config", "set", "gateway.port", "77", PARLEY_GATEWAY_PORT="88")
    assert done.returncode == 0
    assert "`PARLEY_GATEWAY_PORT` in the environment is above it." in done.stderr
    assert shell.run("config", "get", "gateway.port", PARLEY_GATEWAY_PORT="88").stdout == "88\n"
