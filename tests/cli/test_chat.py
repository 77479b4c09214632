"""`parley chat` for scripts: one question, one answer, and an exit code that means something."""

from __future__ import annotations

import json
import stat

import pytest

from tests.cli.household import Household
from tests.servers.ports import free_port
from tests.servers.scripted_model import ScriptedModel


def test_a_question_is_answered_and_nothing_else_is_said(household: Household) -> None:
    done = household.run("chat", "-m", "hello")
    assert (done.returncode, done.stdout, done.stderr) == (0, "echo: hello\n", "")


def test_a_question_may_come_from_a_pipe(household: Household) -> None:
    done = household.run("chat", stdin="from a pipe\nin two lines\n")
    assert done.returncode == 0
    assert done.stdout == "echo: from a pipe\nin two lines\n"


def test_an_answer_for_a_script(household: Household) -> None:
    done = household.run("chat", "-m", "héllo", "--json", "-c", "mine")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer == {"reply": "echo: héllo", "kind": "reply", "chat": "mine", "turn": 1}


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_to_ask_is_said(household: Household, text: str) -> None:
    done = household.run("chat", stdin=text)
    assert done.returncode == 1
    assert done.stderr == 'parley: There is nothing to ask; try: parley chat -m "hello"\n'


def test_a_question_is_a_conversation_of_its_own(household: Household) -> None:
    household.run("chat", "-m", "first")
    household.run("chat", "-m", "second")
    assert household.asked() == ["second"]


@pytest.mark.parametrize("how", [("-c", "mine"), ("--continue",)])
def test_a_conversation_can_be_continued(household: Household, how: tuple[str, ...]) -> None:
    household.run("chat", "-m", "first", *how)
    household.run("chat", "-m", "second", *how)
    assert household.asked() == ["first", "echo: first", "second"]


def test_a_command_can_be_asked(household: Household) -> None:
    done = household.run("chat", "-m", "/model", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["kind"] == "notice"
    assert "scripted · scripted" in json.loads(done.stdout)["reply"]


def test_a_server_that_is_not_there_is_one_sentence(household: Household) -> None:
    port = free_port()
    household.configure(base_url=f"http://127.0.0.1:{port}/v1")
    done = household.run("chat", "-m", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr


def test_a_wrong_key_is_one_sentence_without_the_key(household: Household) -> None:
    (household.home / ".env").write_text("SCRIPTED_API_KEY=sk-very-secret-key-000\n")
    (household.home / ".env").chmod(0o600)
    done = household.run("chat", "-m", "[[status 401]]")
    assert done.returncode == 1
    assert "SCRIPTED_API_KEY" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "very-secret" not in done.stderr + done.stdout
    assert household.model.requests[0].headers["Authorization"] == "Bearer sk-very-secret-key-000"
    for file in household.home.rglob("*"):
        if file.is_file() and file.name != ".env":
            assert b"very-secret" not in file.read_bytes()


def test_a_fault_for_a_script(household: Household) -> None:
    done = household.run("chat", "-m", "[[status 401]]", "--json")
    assert done.returncode == 1
    assert list(json.loads(done.stdout)) == ["error"]
    assert done.stderr == ""


def test_a_broken_config_is_one_sentence(household: Household) -> None:
    (household.home / "config.yaml").write_text("model: [\n")
    done = household.run("chat", "-m", "hello")
    assert done.returncode == 1
    assert "config.yaml" in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_questions_at_once_in_one_home_are_both_answered(household: Household) -> None:
    running = [household.begin("chat", "-m", f"[[delay 0.3]] {n}") for n in range(3)]
    for number, process in enumerate(running):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, f"echo: [[delay 0.3]] {number}\n"), err


def test_a_running_gateway_is_used_and_keeps_the_conversation(
    household: Household, far_model: ScriptedModel
) -> None:
    household.run("chat", "-m", "before", "-c", "mine")
    with household.gateway():
        done = household.run("chat", "-m", "during", "-c", "mine")
        assert done.stdout == "echo: during\n"
    household.run("chat", "-m", "after", "-c", "mine")
    assert household.asked()[::2] == ["before", "during", "after"]
    assert far_model.total == 3


def test_a_message_that_is_too_long_is_refused_at_once(household: Household) -> None:
    done = household.run("chat", stdin="x" * 5_000_000)
    assert done.returncode == 1
    assert done.stderr.startswith("parley: ")
    assert "too long" in done.stderr
    assert done.stderr.count("\n") == 1


def test_bytes_that_are_not_text_are_taken_as_well_as_can_be(household: Household) -> None:
    done = household.parley.shell("parley chat -m $'caf\\xe9 please'")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("echo: caf")


def test_what_is_written_in_a_home_is_its_owners_alone(household: Household) -> None:
    household.run("chat", "-m", "hello")
    for name in ("parley.db", "run", "workspace", "logs"):
        mode = stat.S_IMODE((household.home / name).stat().st_mode)
        assert mode & 0o077 == 0, f"{name} is {mode:o}"


def test_a_fault_in_the_settings_is_json_where_json_was_asked_for(household: Household) -> None:
    (household.home / "config.yaml").write_text("gatway: {}\n")
    done = household.run("chat", "-m", "hello", "--json")
    assert done.returncode == 1
    assert "did you mean `gateway`" in json.loads(done.stdout)["error"]
