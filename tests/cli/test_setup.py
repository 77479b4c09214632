"""`parley setup`: tried with a live call before anything is saved, and saved whole or not."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.cli.shell import Shell
from tests.servers.scripted_model import Reply, ScriptedModel

KEY = "hunter2hunter2"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    home = tmp_path / ".parley"
    home.mkdir()
    return Shell(home)


def box(server: ScriptedModel, *more: str) -> list[str]:
    return ["setup", "--provider", "box", "--base-url", server.base_url, "--model", "m", *more]


def refuse(asked: Mapping[str, Any]) -> Reply:
    return Reply(status=401, body='{"error": {"message": "no such key"}}')


async def test_a_provider_that_answers_is_saved(shell: Shell) -> None:
    async with ScriptedModel() as server:
        done = await asyncio.to_thread(shell.run, *box(server, "--json"))
        assert (done.returncode, done.stderr) == (0, "")
        assert server.total == 1
        assert server.requests[0].json["model"] == "m"
        told = json.loads(done.stdout)
        assert (told["provider"], told["model"], told["tested"]) == ("box", "m", True)
        assert told["base_url"] == server.base_url
    assert shell.run("config", "get", "model.provider").stdout == "box\n"
    assert shell.run("config", "get", "providers.box.model").stdout == "m\n"
    assert sorted(file.name for file in shell.home.iterdir()) == ["audit", "config.yaml"]


async def test_a_refused_key_is_one_sentence_and_nothing_is_saved(shell: Shell) -> None:
    async with ScriptedModel(refuse) as server:
        done = await asyncio.to_thread(shell.run, *box(server, "--key-stdin"), stdin=f"{KEY}\n")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1
    assert KEY not in done.stderr
    assert list(shell.home.iterdir()) == []


def test_an_unreachable_server_is_told_and_nothing_is_saved(shell: Shell) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        done = shell.run("setup", "--provider", "box", "--base-url", url, "--model", "m")
    assert done.returncode == 1
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1
    assert list(shell.home.iterdir()) == []


async def test_a_key_from_standard_input_is_used_and_kept_in_the_env_file(shell: Shell) -> None:
    async with ScriptedModel() as server:
        done = await asyncio.to_thread(shell.run, *box(server, "--key-stdin"), stdin=f"{KEY}\n")
        assert done.returncode == 0
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert (shell.home / ".env").read_text() == f"BOX_API_KEY={KEY}\n"
    assert (shell.home / ".env").stat().st_mode & 0o777 == 0o600
    assert KEY not in shell.config() + done.stdout + done.stderr


async def test_a_key_from_a_variable_is_used_and_kept_under_its_name(shell: Shell) -> None:
    async with ScriptedModel() as server:
        arguments = box(server, "--key-env", "MY_OWN_KEY")
        missing = await asyncio.to_thread(shell.run, *arguments)
        assert missing.returncode == 1
        assert "`MY_OWN_KEY` is not set" in missing.stderr
        done = await asyncio.to_thread(shell.run, *arguments, MY_OWN_KEY=KEY)
        assert done.returncode == 0
        assert server.requests[-1].headers["Authorization"] == f"Bearer {KEY}"
    assert (shell.home / ".env").read_text() == f"MY_OWN_KEY={KEY}\n"
    assert shell.run("config", "get", "providers.box.key_env").stdout == "MY_OWN_KEY\n"


async def test_no_test_saves_without_a_call(shell: Shell) -> None:
    async with ScriptedModel() as server:
        done = await asyncio.to_thread(shell.run, *box(server, "--no-test"))
        assert server.total == 0
    assert done.returncode == 0
    assert shell.run("config", "get", "model.provider").stdout == "box\n"


def test_setup_keeps_comments_and_drops_a_model_meant_for_another_provider(shell: Shell) -> None:
    (shell.home / "config.yaml").write_text("# mine\nmodel:\n  provider: local\n  name: old\n")
    assert shell.run("setup", "--provider", "openai", "--no-test").returncode == 0
    assert shell.config() == "# mine\nmodel:\n  provider: openai\n"
    assert shell.run("setup", "--provider", "local", "--model", "qwen", "--no-test").returncode == 0
    assert shell.run("config", "get", "local.weights").stdout == "qwen\n"


async def test_a_fallback_that_answers_does_not_hide_a_provider_that_does_not(
    shell: Shell,
) -> None:
    async with ScriptedModel() as good, ScriptedModel(refuse) as bad:
        config = f"providers: {{good: {{base_url: '{good.base_url}', model: m}}}}\n"
        (shell.home / "config.yaml").write_text(config + "model: {fallback: [good]}\n")
        done = await asyncio.to_thread(shell.run, *box(bad))
        assert done.returncode == 1
        assert good.total == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Say which provider"),
        (["--model", "m"], "Say which provider"),
        (["--provider", "box"], "Give the address of box as well: `--base-url URL`."),
        (["--provider", "b.x", "--base-url", "http://a/v1"], "only letters, digits"),
        (["--provider", "box", "--base-url", "127.0.0.1:80"], "The address must be like"),
        (["--provider", "box", "--base-url", "http://[/v1"], "The address must be like"),
        (["--provider", "openai", "--key-env", "A", "--key-stdin"], "not both"),
        (["--provider", "openai", "--key-stdin"], "Nothing came on standard input"),
        (["--provider", "openai"], "key"),
        (["--provider", "local", "--base-url", "http://a/v1"], "neither an address nor a key"),
    ],
)
def test_a_mistake_is_one_sentence_and_saves_nothing(
    shell: Shell, arguments: list[str], told: str
) -> None:
    done = shell.run("setup", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1
    assert told in done.stderr
    assert list(shell.home.iterdir()) == []


def test_a_broken_file_is_told_and_left_alone(shell: Shell) -> None:
    (shell.home / "config.yaml").write_text("log: [\n")
    done = shell.run("setup", "--provider", "openai", "--no-test")
    assert done.returncode == 1
    assert "this is not YAML" in done.stderr
    assert shell.config() == "log: [\n"


def test_settings_that_cannot_be_written_leave_no_key_behind(shell: Shell) -> None:
    (shell.home / "config.yaml").symlink_to(shell.home / "nowhere" / "config.yaml")
    arguments = ["setup", "--provider", "openai", "--key-stdin", "--no-test"]
    done = shell.run(*arguments, stdin=f"{KEY}\n")
    assert done.returncode == 1
    assert "Cannot write" in done.stderr
    assert not (shell.home / ".env").exists()


def choose(terminal: pexpect.spawn[str], option: str) -> None:
    terminal.expect(rf"(\d+)\. {option}")
    assert isinstance(terminal.match, re.Match)
    number = terminal.match.group(1)
    terminal.expect(r"Number \[1\]: ")
    terminal.sendline(number)


def answer_questions(terminal: pexpect.spawn[str], url: str, *, key: str) -> None:
    choose(terminal, "Another server")
    terminal.expect("Its address, up to and with /v1: ")
    terminal.sendline(url)
    terminal.expect(r"A short name for it \[server\]: ")
    terminal.sendline("box")
    terminal.expect("API key [^\n]*: ")
    terminal.waitnoecho()
    terminal.sendline(key)
    terminal.expect("Model: ")
    terminal.sendline("m")


async def test_the_questions_come_again_until_it_answers(shell: Shell) -> None:
    def script(asked: Mapping[str, Any]) -> Reply | None:
        good = server.requests[-1].headers.get("Authorization") == f"Bearer {KEY}"
        return None if good else refuse(asked)

    def person() -> None:
        terminal = shell.terminal("setup")
        answer_questions(terminal, server.base_url, key="wrong-wrong")
        terminal.expect("That did not work: [^\n]*\n")
        assert list(shell.home.iterdir()) == []
        answer_questions(terminal, server.base_url, key=KEY)
        terminal.expect("It answers.")
        terminal.expect("Saved. box answers from now on")
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 0

    async with ScriptedModel(script) as server:
        await asyncio.to_thread(person)
        assert server.total == 2
    assert (shell.home / ".env").read_text() == f"BOX_API_KEY={KEY}\n"
    assert shell.run("config", "get", "providers.box.model").stdout == "m\n"


async def test_a_server_that_runs_on_this_machine_is_offered(shell: Shell) -> None:
    def person(server: ScriptedModel) -> None:
        terminal = shell.terminal("setup", OLLAMA_HOST=f"0.0.0.0:{server.port}")
        choose(terminal, f"ollama, running here at {server.base_url}")
        terminal.expect("Which model")
        choose(terminal, "second")
        terminal.expect("Saved. ollama answers from now on")
        terminal.expect_exact("work on files in ~/.parley/workspace: see `parley tools`.")
        terminal.expect(pexpect.EOF)

    async with ScriptedModel(models=("first", "second"), owner="library") as server:
        await asyncio.to_thread(person, server)
        assert server.requests[0].json["model"] == "second"
    assert shell.run("config", "get", "providers.ollama.model").stdout == "second\n"


def test_ctrl_c_at_a_question_leaves_everything_as_it_was(shell: Shell) -> None:
    terminal = shell.terminal("setup")
    choose(terminal, "OpenAI")
    terminal.expect("OpenAI API key [^\n]*: ")
    terminal.waitnoecho()
    terminal.sendintr()
    terminal.expect("Nothing was changed.")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert list(shell.home.iterdir()) == []


async def test_ctrl_c_during_the_call_leaves_everything_as_it_was(shell: Shell) -> None:
    async with ScriptedModel(delay=60) as server:
        terminal = shell.terminal(*box(server))
        await server.until(lambda s: s.open_streams == 1)
        terminal.sendintr()
        await asyncio.to_thread(terminal.expect, "Nothing was changed.")
        await asyncio.to_thread(terminal.expect, pexpect.EOF)
        assert "Traceback" not in str(terminal.before)
        terminal.close()
        assert terminal.exitstatus == 130
    assert list(shell.home.iterdir()) == []
