"""The interactive chat: answers stream above a prompt that stays open.

One prompt is always there, so that a person can add something, or stop, while an answer runs.
Finished paragraphs are printed above it as Markdown; the paragraph being written stands over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Point
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.text import Text

from parley.cli._blocks import Blocks
from parley.cli._chat_once import SPINNER
from parley.cli._plain import one_line, shown_question
from parley.cli._talk import Talk
from parley.config.settings import Settings
from parley.gateway.commands import COMMANDS
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ParleyError
from parley.surfaces.terminal.wire import Accepted, Deliver, Frame, Show, Welcome

__all__ = ["Screen"]

_TAIL_LINES = 12
_TAIL_CHARACTERS = 2000
_MOST_RECALLED = 1000
_CONTROL_CODES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen:
    """One terminal, one conversation."""

    def __init__(self, profile: Profile, settings: Settings, *, chat: str) -> None:
        self._talk = Talk(profile, settings, chat=chat, user=_person())
        self._profile = profile
        self._answer = _Answer()
        self._console = Console(highlight=False)
        self._prompt: PromptSession[str] = PromptSession(
            history=_history(profile),
            completer=_Commands(),
            complete_while_typing=True,
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation="  ",
            erase_when_done=True,
            enable_open_in_editor=True,
            mouse_support=False,
        )
        self._prompt.app.ttimeoutlen = 0.05
        self._prompt.app.after_render += self._park_cursor
        self._recalled = ""
        self._questions: set[str] = set()
        self._stops: set[str] = set()

    async def run(self, typed: Sequence[str] = ("",)) -> None:
        """`typed`: what was typed before, by Enter; the last piece is not finished yet."""
        with self._console.status("Starting…", spinner="dots"):
            await self._talk.__aenter__()
        try:
            self._greet()
            with patch_stdout(raw=True):
                # Made anew: it must write through the patched stdout, above the prompt.
                self._console = Console(file=sys.stdout, force_terminal=True, highlight=False)
                async with asyncio.TaskGroup() as group:
                    listening = group.create_task(self._listen())
                    ticking = group.create_task(self._tick())
                    await self._read(typed)
                    listening.cancel()
                    ticking.cancel()
        except* ParleyError as faults:
            raise faults.exceptions[0] from None
        finally:
            await self._talk.__aexit__(None, None, None)

    # ── what the person does ──

    async def _read(self, typed: Sequence[str]) -> None:
        *lines, begun = typed
        for text in lines:
            if not await self._send(text):
                return
        while True:
            try:
                text = await self._prompt.prompt_async(self._above_and_prompt, default=begun)
            except EOFError:
                return
            except KeyboardInterrupt:
                continue
            finally:
                begun = ""
            if not await self._send(text):
                return

    async def _send(self, text: str) -> bool:
        """False when the person wants to leave."""
        if text.strip() in {"/exit", "/quit"}:
            return False
        if text.strip():
            self._recalled = ""
            self._console.print(Text("› ", style="bold green") + Text(_harmless(text.strip())))
            try:
                number = await self._talk.say(text)
                if text.strip()[1:].startswith("stop"):
                    self._stops.add(number)
            except ParleyError as error:
                self._console.print(Text(str(error), style="red"))
        return True

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.complete_state and buffer.complete_state.current_completion:
                buffer.complete_state = None
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _(event: KeyPressEvent) -> None:
            if self._answer.running:
                event.app.create_background_task(self._stop())
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._console.print("[dim]Ctrl-D leaves.[/dim]")

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if not event.current_buffer.text:
                event.app.exit(exception=EOFError)

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.create_background_task(self._suspend())

        return keys

    async def _suspend(self) -> None:
        """Leave the terminal to the shell, and the home to whoever wants it meanwhile."""
        async with self._talk.paused():
            await run_in_terminal(lambda: os.kill(0, signal.SIGTSTP))

    async def _stop(self) -> None:
        self._stops.add(await self._talk.say("/stop"))

    # ── what the gateway says ──

    async def _listen(self) -> None:
        async for frame in self._talk.frames():
            await self._take(frame)
            self._prompt.app.invalidate()

    async def _take(self, frame: Frame) -> None:
        match frame:
            case Accepted(state="refused" | "rate_limited", why=why):
                self._console.print(Text(why or "The message was not taken.", style="red"))
            case Welcome():
                self._rejoined(frame)
            case Show(event="text", turn=turn, text=text):
                self._stream(turn, text)
            case Show():
                self._show(frame)
            case Deliver():
                self._print_delivery(frame)
                await self._talk.shown(frame)

    def _stream(self, turn: int, text: str) -> None:
        if turn == self._answer.turn:
            self._print_blocks(self._answer.add(text))
        else:
            # Its beginning was not seen here: it is shown when it is whole.
            self._answer = _Answer(turn, running=True, whole=False)

    def _show(self, show: Show) -> None:
        answer, text = self._answer, show.text
        match show.event:
            case "started":
                self._answer = _Answer(show.turn, running=True)
            case "reset":
                if answer.reset():
                    self._console.print("[dim](starting again)[/dim]")
            case "step":
                self._print_blocks([answer.end_step()])
            case "tool":
                answer.doing, answer.asks = text, False
            case "tool_done":
                answer.doing, answer.asks = "", False
                mark = Text("✓ ", style="green") if show.ok else Text("✗ ", style="red")
                self._console.print(mark + Text(_harmless(text), style="dim"))
            case "asks":
                self._ask(show)
            case "ended" if text != "set aside":  # the next gateway says how that goes on
                if text == "stopped":
                    self._mark_stopped()
                answer.running = False

    def _mark_stopped(self) -> None:
        """Once: the answer to `/stop` may come before the turn's own end, or after it."""
        if self._answer.running:
            self._print_blocks([self._answer.flush()])
            self._console.print("[dim](stopped)[/dim]")
        self._answer.running = False

    def _ask(self, show: Show) -> None:
        """A question waits, whoever sees it first here; a turn that goes on may ask it again."""
        if show.turn != self._answer.turn:
            self._answer = _Answer(show.turn, running=True, whole=False)
        self._answer.asks = True
        if show.approval not in self._questions:
            self._questions.add(show.approval)
            self._print_blocks([self._answer.flush()])
            self._console.print(Text(shown_question(show.text), style="yellow"))

    def _rejoined(self, welcome: Welcome) -> None:
        """Another gateway serves now; what was being answered goes on there from its last step."""
        by_itself = welcome.pid == os.getpid()
        now = "serving itself" if by_itself else f"with the gateway, process {welcome.pid}"
        self._console.print(f"[dim](this chat is now {now})[/dim]")
        self._answer = _Answer()

    def _print_delivery(self, delivery: Deliver) -> None:
        answer = self._answer
        if self._stops.intersection(delivery.answers):
            self._mark_stopped()
        # A reply may come late, when the next one already streams.
        is_its_own = delivery.turn is not None and delivery.turn == answer.turn
        if self._recalled and delivery.text.strip().endswith(self._recalled):
            self._recalled = ""  # it stands there already, as where the conversation was left
            return
        if is_its_own and answer.streamed.strip() == delivery.text.strip():
            self._print_blocks([answer.flush()])
        elif delivery.kind == "error":
            self._console.print(Text(_harmless(delivery.text), style="red"))
        else:
            self._print_blocks([delivery.text])
        if is_its_own:
            self._answer = _Answer()
        self._console.print()

    def _print_blocks(self, blocks: Iterable[str]) -> None:
        for block in blocks:
            if block.strip():
                shown = _harmless(block.strip("\n"))
                self._console.print(Markdown(shown, code_theme="ansi_dark"))

    # ── above the prompt ──

    def _park_cursor(self, app: Application[str]) -> None:
        """Leave the cursor where the drawn lines begin, while an answer runs and nothing is typed.

        A terminal that becomes narrower breaks these lines anew. The cursor goes along with its
        line, and from there everything below is erased, however many lines there are by then.
        """
        if app.is_done or not self._answer.running or app.current_buffer.text:
            return
        renderer = app.renderer
        at = renderer._cursor_pos
        app.output.cursor_backward(at.x)
        app.output.cursor_up(at.y)
        app.output.hide_cursor()
        app.output.flush()
        renderer._cursor_pos = Point(0, 0)

    def _above_and_prompt(self) -> StyleAndTextTuples:
        answer = self._answer
        shown: StyleAndTextTuples = []
        if tail := answer.tail:
            # The prompt would cut a line where the terminal ends.
            width = self._prompt.app.output.get_size().columns
            lines = [line.plain.rstrip() for line in Text(tail).wrap(self._console, width)]
            shown.append(("", "\n".join(lines[-_TAIL_LINES:]) + "\n"))
        if answer.running or not self._talk.connected:
            frame = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
            shown.append(("ansicyan", f"{frame} "))
            shown.append(("ansibrightblack", f"{self._doing()}\n"))
        shown.append(("bold ansigreen", "› "))
        return shown

    def _doing(self) -> str:
        answer = self._answer
        if not self._talk.connected:
            return "waiting for the gateway…"
        if answer.asks:
            return "waiting for your word: yes or no (Ctrl-C stops)"
        what = answer.doing or ("writing" if answer.has_begun else "thinking")
        return f"{what}… (Ctrl-C stops)"

    async def _tick(self) -> None:
        """Keep the spinner turning."""
        while True:
            await asyncio.sleep(0.1)
            if self._answer.running or not self._talk.connected:
                self._prompt.app.invalidate()

    def _greet(self) -> None:
        welcome = self._talk.welcome
        if welcome is None:
            return
        by = welcome.answered_by
        who = "" if welcome.profile == DEFAULT_PROFILE else f"{welcome.profile} · "
        self._console.print(
            Text.assemble(
                ("Parley", "bold"),
                f" {welcome.version} · ",
                (who, "bold cyan"),
                "answered by ",
                (by, "bold"),
            )
        )
        parley = escape(os.environ.get("PARLEY_COMMAND", "parley"))
        if by.startswith("local · smollm2"):
            self._console.print(
                "[yellow]This small model runs on your machine: real, but weak and often wrong."
                f"[/yellow]\n[dim]A better one:[/dim] {parley} setup[dim], or [/dim]"
                f"{parley} model install qwen"
            )
        self._console.print(
            "[dim]/help lists commands · Alt-Enter for a new line · Ctrl-D leaves[/dim]\n"
        )
        self._recall(welcome)

    def _recall(self, welcome: Welcome) -> None:
        """Show where the conversation was left."""
        if welcome.title:
            self._console.print(Text(_harmless(welcome.title), style="bold"))
        if welcome.asked:
            asked = one_line(welcome.asked, longest=_MOST_RECALLED)
            self._console.print(Text("› ", style="green") + Text(asked, style="dim"))
        if welcome.answered:
            self._recalled = welcome.answered.strip()
            self._print_blocks([_end_of(self._recalled)])
        if welcome.stopped:
            self._console.print("[dim](stopped)[/dim]")
        if welcome.asked or welcome.title:
            self._console.print()


class _Answer:
    """What one running turn has streamed so far."""

    def __init__(
        self, turn: int | None = None, *, running: bool = False, whole: bool = True
    ) -> None:
        self.turn = turn
        self.running = running
        self._whole = whole
        self.doing = ""
        self.asks = False
        self._pieces: list[str] = []
        self._blocks = Blocks()
        self._printed = False

    @property
    def streamed(self) -> str:
        return "".join(self._pieces)

    @property
    def has_begun(self) -> bool:
        return bool(self._pieces)

    @property
    def tail(self) -> str:
        return self._blocks.tail(_TAIL_LINES, _TAIL_CHARACTERS)

    def add(self, text: str) -> list[str]:
        """Take a piece in; returns the blocks that are finished by it."""
        self._pieces.append(text)
        if not self._whole:
            return []
        finished = self._blocks.add(text)
        self._printed = self._printed or bool(finished)
        return finished

    def flush(self) -> str:
        """What was streamed and not yet printed."""
        rest = self._blocks.flush()
        self._printed = self._printed or bool(rest)
        return rest

    def end_step(self) -> str:
        """What was streamed and not yet printed; the reply is what comes after the last step."""
        rest = self.flush()
        self._pieces.clear()
        self._whole = True
        return rest

    def reset(self) -> bool:
        """Forget what was streamed; True when some of it was printed already."""
        printed, self._printed = self._printed, False
        self._pieces.clear()
        self._blocks = Blocks()
        return printed


class _Commands(Completer):
    """Slash commands, with their line of help."""

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        word = document.text_before_cursor
        if not word.startswith("/") or " " in word or "\n" in word:
            return
        for command in COMMANDS.values():
            if command.name.startswith(word[1:].lower()):
                yield Completion(
                    f"/{command.name}",
                    start_position=-len(word),
                    display=f"/{command.name} {command.argument}".strip(),
                    display_meta=command.summary,
                )


def _end_of(text: str) -> str:
    """The last lines of a long text."""
    short = text[-_MOST_RECALLED:]
    return text if short == text else "… " + short[short.find(" ") + 1 :]


def _harmless(text: str) -> str:
    """Without control codes: a model's words do not steer the person's terminal."""
    return _CONTROL_CODES.sub("", text)


def _history(profile: Profile) -> History:
    """What was typed before, for its owner's eyes."""
    file = profile.home / "chat_history"
    try:
        profile.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _person() -> str:
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
