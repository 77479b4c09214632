"""`parley chat` in a terminal: typed early, resumed, asked, stopped, resized."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pyte
import pytest

from parley.gateway.home import holder_of
from tests.cli.household import Household
from tests.cli.test_chat_screen import CTRL_C, ENTER, PROMPT, leave, see
from tests.servers.gateway_process import GatewayProcess
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until_now

A_CALL = Reply(tool_calls=(("deed", {"word": "sink"}),))


def test_what_is_typed_before_the_prompt_is_sent(
    household: Household, far_model: ScriptedModel
) -> None:
    """Some before the program is up, some while it starts; the rest stands in the prompt."""
    with household.chat() as screen:
        screen.send("the first" + ENTER + "the second" + ENTER)
        until_now(lambda: holder_of(household.parley.profile) is not None, seconds=60)
        screen.send("half of ")
        until_now(lambda: "the second" in household_words(household), seconds=60)
        screen.send("the third" + ENTER)
        see(screen, "echo: half of the third")
        leave(screen)
    assert household.asked()[-1] == "half of the third"


def household_words(household: Household) -> str:
    return " ".join(request.body.decode() for request in tuple(household.model.requests))


def test_bare_parley_opens_the_chat(household: Household) -> None:
    terminal = household.parley.terminal()
    try:
        see(terminal, "answered by scripted · scripted")
        terminal.send("hello" + ENTER)
        see(terminal, "echo: hello")
        leave(terminal)
    finally:
        terminal.close(force=True)
    piped = household.run()
    assert "Usage: parley" in piped.stdout + piped.stderr


def test_a_resumed_chat_shows_where_it_was_left(household: Household) -> None:
    household.run("chat", "--continue", "-m", "an old question")
    household.run("chat", "--continue", "-m", "what was last")
    household.run("chat", "--continue", "-m", "/title The trip")
    with household.chat() as screen:
        see(screen, "The trip")
        see(screen, "what was last")
        see(screen, "echo: what was last")
        screen.expect(PROMPT)
        assert "an old question" not in str(screen.before)
        leave(screen)
    with household.chat("-c", "new") as screen:
        screen.expect(PROMPT)
        assert "what was last" not in str(screen.before)
        leave(screen)


def test_a_stopped_answer_is_marked_now_and_later(household: Household, stage: Stage) -> None:
    stage.then(Reply(text="some words and more", chunks=2, chunk_delay=600))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("hello" + ENTER)
        see(screen, "some word")
        screen.send(CTRL_C)
        see(screen, "(stopped)")
        see(screen, "Stopped.")
        leave(screen)
    with household.chat() as screen:
        see(screen, "some word")
        see(screen, "(stopped)")
        leave(screen)


@pytest.fixture
def deeds(household: Household) -> Iterator[Path]:
    """What the tool did; a gateway that has it serves the household."""
    household.configure("agent:\n  tools: [deed]\n")
    command = ("-m", "tests.servers.asking_gateway", "gateway", "run")
    with GatewayProcess(household.home, command=command) as gateway:
        gateway.start()
        asyncio.run(gateway.until_ready())
        yield gateway.profile.workspace / "deeds.txt"


@pytest.mark.parametrize(("word", "done"), [("yes", True), ("No", False)])
def test_a_plain_word_answers_the_question(
    household: Household, deeds: Path, stage: Stage, word: str, done: bool
) -> None:
    stage.then(A_CALL, Reply(text="So be it."))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("please" + ENTER)
        see(screen, "May I use `deed` with")
        see(screen, "waiting for your word: yes or no")
        screen.send(word + ENTER)
        see(screen, "So be it.")
        leave(screen)
    assert deeds.exists() is done


def test_a_question_that_waits_is_shown_to_who_comes(
    household: Household, deeds: Path, stage: Stage
) -> None:
    stage.then(A_CALL, Reply(text="It is done."))
    with household.chat() as screen:
        screen.expect(PROMPT)
        screen.send("please" + ENTER)
        see(screen, "May I use `deed` with")
        leave(screen)
    with household.chat() as screen:
        see(screen, "May I use `deed` with")
        screen.send("yes" + ENTER)
        see(screen, "It is done.")
        leave(screen)
    assert deeds.read_text() == "sink\n"


def test_a_plain_word_is_a_message_where_nothing_waits(household: Household) -> None:
    assert household.run("chat", "-m", "yes").stdout == "echo: yes\n"


class Reflowing:
    """A terminal that breaks its lines anew when it is resized, as most do now."""

    def __init__(self, child: pexpect.spawn[bytes], columns: int, rows: int) -> None:
        self._child = child
        self._rows = rows
        self._gone: list[str] = []
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        return [*self._gone, *(line.rstrip() for line in self._screen.display)]

    @property
    def hides_cursor(self) -> bool:
        return bool(self._screen.cursor.hidden)

    def until(self, fact: Callable[[str], bool], *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not fact("\n".join(self.lines)):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            try:
                self._stream.feed(self._child.read_nonblocking(65_536, timeout=0.1))
            except pexpect.TIMEOUT:
                continue

    def resize(self, columns: int) -> None:
        old = self._screen
        rows: list[str] = []
        cursor = (0, 0)
        for y, line in enumerate(old.display):
            text = line.rstrip()
            pieces = [text[at : at + columns] for at in range(0, len(text), columns)] or [""]
            if y == old.cursor.y:
                cursor = (len(rows) + old.cursor.x // columns, old.cursor.x % columns)
            rows += pieces
        while len(rows) > cursor[0] + 1 and not rows[-1]:
            rows.pop()
        over = max(0, len(rows) - self._rows)
        self._gone += rows[:over]
        self._screen = pyte.Screen(columns, self._rows)
        self._stream = pyte.ByteStream(self._screen)
        self._stream.feed("\r\n".join(rows[over:]).encode())
        self._screen.cursor_position(cursor[0] - over + 1, cursor[1] + 1)
        self._child.setwinsize(self._rows, columns)


@pytest.mark.parametrize("columns", [60, 33, 120])
def test_a_resize_while_it_streams_doubles_no_line(
    household: Household, stage: Stage, columns: int
) -> None:
    words = " ".join(f"word{number:02}" for number in range(80))
    stage.then(Reply(text=words, chunks=2, chunk_delay=600))
    environment = {**household.parley.environment(), "TERM": "xterm-256color"}
    child: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable,
        ["-m", "parley", "chat"],
        env={**environment, "PROMPT_TOOLKIT_NO_CPR": "1"},
        dimensions=(30, 100),
    )
    try:
        terminal = Reflowing(child, 100, 30)
        terminal.until(lambda shown: shown.rstrip().endswith("›"))
        child.send("hello" + ENTER)
        # All of it has come by the time that the cursor is out of sight.
        terminal.until(lambda shown: "word38" in shown and terminal.hides_cursor)
        terminal.resize(columns)
        # Drawn anew at this width.
        terminal.until(lambda shown: shown.count("writing…") == 1 and "\n›" in shown)
        child.send(CTRL_C)
        terminal.until(lambda shown: "(stopped)" in shown and "Stopped." in shown)
        shown = " ".join(" ".join(terminal.lines).split())
        assert [shown.count(f"word{number:02}") for number in range(38)] == [1] * 38
        assert shown.count("writing…") == 0
    finally:
        child.close(force=True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--profile", "nosuch", "-m", "hello"), "There is no profile `nosuch`"),
        (("--chat", "", "-m", "hello"), "A conversation needs a name"),
        (("-m", " "), "There is nothing to ask"),
    ],
)
def test_a_refusal_is_json_where_json_was_asked_for(
    household: Household, arguments: tuple[str, ...], told: str
) -> None:
    done = household.run("chat", "--json", *arguments)
    assert (done.returncode, done.stderr) == (1, "")
    assert told in json.loads(done.stdout)["error"]
    plain = household.run("chat", *arguments)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert told in plain.stderr
