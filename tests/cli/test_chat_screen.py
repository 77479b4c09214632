"""`parley chat` in a terminal, with a person's keys."""

from __future__ import annotations

import re
import signal

import pexpect

from tests.cli.household import Household
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until_now

ENTER, ALT_ENTER, UP, CTRL_C, CTRL_D, TAB = "\r", "\x1b\r", "\x1b[A", "\x03", "\x04", "\t"
PROMPT = "› "


def see(screen: pexpect.spawn[str], words: str) -> None:
    """Wait until these words stand there, whatever colours are between them."""
    between = r"(?:\x1b\[[0-9;?]*[A-Za-z]|\s)+"
    screen.expect(between.join(map(re.escape, words.split(" "))))


def leave(screen: pexpect.spawn[str]) -> None:
    screen.send(CTRL_D)
    screen.expect(pexpect.EOF)
    screen.wait()
    assert screen.exitstatus == 0


def test_a_conversation(household: Household, stage: Stage, far_model: ScriptedModel) -> None:
    """Greeted, answered with Markdown as it streams, left with Ctrl-D, and taken up again."""
    stage.then(Reply(text="This is **very** kind.\n\nAnd that is all.", chunks=6, chunk_delay=0.1))
    with household.chat() as screen:
        see(screen, "answered by scripted · scripted")
        screen.expect(PROMPT)
        screen.send("hello there" + ENTER)
        see(screen, "hello there")
        screen.expect("\x1b\\[1mvery\x1b\\[0m")
        assert far_model.open_streams == 1, "the first paragraph stands while the second comes"
        see(screen, "And that is all.")
        leave(screen)
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("me again" + ENTER)
        see(screen, "echo: me again")
        leave(screen)
    assert household.asked() == [
        "hello there",
        "This is **very** kind.\n\nAnd that is all.",
        "me again",
    ]


def test_ctrl_c_stops_the_answer_and_the_program_lives(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(Reply(text="one two three", chunks=3, chunk_delay=30))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        see(screen, "Ctrl-C stops")
        until_now(lambda: far_model.open_streams == 1)
        screen.send(CTRL_C)
        see(screen, "Stopped.")
        until_now(lambda: far_model.aborted == 1)
        screen.send("still there?" + ENTER)
        see(screen, "echo: still there?")
        screen.send("half a word" + CTRL_C)
        screen.send(CTRL_C)
        see(screen, "Ctrl-D leaves.")
        leave(screen)
    assert "half a word" not in str(household.asked())


def test_who_leaves_does_not_wait_and_gets_the_answer_next_time(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(Reply(text="never seen", delay=300), Reply(text="the answer after all"))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        until_now(lambda: far_model.open_streams == 1)
        leave(screen)
    with household.chat() as screen:
        see(screen, "the answer after all")
        leave(screen)


def test_keys_for_lines_history_and_completion(household: Household) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("line one" + ALT_ENTER + "line two" + ENTER)
        see(screen, "echo: line one")
        until_now(lambda: household.model.open_streams == 0)
        assert household.asked() == ["line one\nline two"]
        screen.send("/usa")
        see(screen, "tokens used in this conversation")
        screen.send(TAB + ENTER + ENTER)
        see(screen, "tokens in")
        screen.send("something else" + ENTER)
        see(screen, "echo: something else")
        screen.send(UP + ENTER)
        until_now(lambda: household.model.total == 3)
        assert household.asked()[-1] == "something else"
        leave(screen)
    assert (household.home / "chat_history").stat().st_mode & 0o077 == 0


def test_a_message_can_be_added_while_an_answer_runs(
    household: Household, stage: Stage, far_model: ScriptedModel
) -> None:
    stage.then(Reply(text="the first answer", chunks=2, chunk_delay=1))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("first" + ENTER)
        until_now(lambda: far_model.open_streams == 1)
        screen.send("second" + ENTER)
        see(screen, "the first answer")
        see(screen, "echo: second")
        leave(screen)


def test_a_fault_is_shown_and_the_program_lives(household: Household) -> None:
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("[[status 401]]" + ENTER)
        see(screen, "SCRIPTED_API_KEY")
        screen.send("/nonsense" + ENTER)
        see(screen, "There is no command")
        screen.send("/exit" + ENTER)
        screen.expect(pexpect.EOF)
        screen.wait()
        assert screen.exitstatus == 0


def test_words_that_look_like_markup_are_shown_as_they_are(
    household: Household, stage: Stage
) -> None:
    stage.then(Reply(text="a \x1b]0;mine\x07[red]list[/red] of [[1]] and [/]"))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("[bold]x[/nope]" + ENTER)
        see(screen, "a ]0;mine[red]list[/red] of [[1]] and [/]")
        assert "\x1b]0;mine" not in str(screen.before)
        leave(screen)


def test_a_tools_name_that_looks_like_markup_is_shown_as_it_is(
    household: Household, stage: Stage
) -> None:
    stage.then(Reply(tool_calls=(("wrong[/dim]name", {}),)))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        see(screen, "wrong[/dim]name")
        see(screen, "echo: hello")
        leave(screen)


def test_a_reply_that_comes_late_does_not_disturb_the_next_one(
    household: Household, stage: Stage
) -> None:
    household.configure("gateway:\n  busy: queue\n")
    stage.then(
        Reply(text="first", delay=1),
        Reply(text="second"),
        Reply(text="para-one\n\npara-two!!", chunks=2, chunk_delay=1),
    )
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("a" + ENTER + "b" + ENTER + "c" + ENTER)
        see(screen, "second")
        see(screen, "para-one")
        screen.expect("para-two!!")
        screen.send("the end" + ENTER)
        see(screen, "echo: the end")
        assert "para-one" not in str(screen.before)
        leave(screen)


def test_a_gateway_that_is_stopped_is_taken_over_and_the_talk_goes_on(
    household: Household,
) -> None:
    with household.gateway() as gateway, household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        see(screen, "echo: hello")
        gateway.send_signal(signal.SIGTERM)
        gateway.communicate(timeout=60)
        screen.send("are you there?" + ENTER)
        see(screen, "echo: are you there?")
        leave(screen)
    assert household.asked()[0] == "hello"


def test_an_answer_to_one_question_does_not_steer_the_terminal(
    household: Household, stage: Stage
) -> None:
    stage.then(Reply(text="red \x1b[31mhot\x1b]0;title\x07 end"))
    with household.chat("-m", "hello") as screen:
        screen.expect(pexpect.EOF)
        shown = screen.before or ""
    assert "red [31mhot]0;title end" in shown
