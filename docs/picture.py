"""Draw docs/images/chat.svg: a real `parley chat` with the real local model, in a home of its own.

`python -m docs.picture` runs it in a pseudo terminal, types what a person would type, and draws
what stands on the screen. The model must be installed: `parley model install smollm2`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import pexpect
import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from parley.agent.providers.local.weights import cache_directory, find_weights

__all__ = ["PICTURE", "QUESTIONS", "draw", "main", "talk"]

PICTURE = Path(__file__).parent / "images" / "chat.svg"
QUESTIONS = ("What is the capital of France?", "What can I do in Paris?", "/status")
_COLUMNS, _ROWS = 84, 40
_LONGEST_WAIT = 120.0

# The reader's own fonts: the picture fetches nothing from anywhere.
_FRAME = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix, .{unique_id}-title {{
font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
}}
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_NIGHT = TerminalTheme(
    (22, 27, 34),
    (214, 220, 228),
    [
        (22, 27, 34),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (214, 220, 228),
    ],
    [
        (139, 148, 158),
        (255, 161, 152),
        (126, 231, 135),
        (242, 204, 96),
        (165, 214, 255),
        (226, 197, 255),
        (179, 240, 255),
        (255, 255, 255),
    ],
)


def main() -> None:
    find_weights("smollm2")
    screen = talk(QUESTIONS)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(screen), encoding="utf-8")
    sys.stdout.write("\n".join(line.rstrip() for line in screen.display).rstrip() + "\n")


def talk(questions: Sequence[str]) -> pyte.Screen:
    """Ask these in a new chat; returns the screen with all the answers on it."""
    with tempfile.TemporaryDirectory() as home:
        terminal = _Terminal(Path(home))
        try:
            terminal.until(lambda lines: lines[-1:] == ["›"])
            for question in questions:
                terminal.type(question)
                terminal.until(partial(_is_answered, f"› {question}"))
        finally:
            terminal.close()
        return terminal.screen


def draw(screen: pyte.Screen) -> str:
    """The screen as a window, up to its last line."""
    rows = max(y for y, line in enumerate(screen.display) if line.strip()) + 1
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=screen.columns, file=nowhere, force_terminal=True)
        for y in range(rows):
            line = Text()
            chars = [screen.buffer[y][x] for x in range(screen.columns)]
            # A word at a time: some viewers drop the spaces at the edges of a text.
            for (style, _), run in groupby(
                chars, key=lambda char: (_style(char), char.data == " ")
            ):
                line.append("".join(char.data for char in run), style)
            line.rstrip()
            console.print(line, no_wrap=True)
        svg = console.export_svg(
            title="parley chat", theme=_NIGHT, code_format=_FRAME, unique_id="parley"
        )
    return "".join(f"{line.strip()}\n" for line in svg.splitlines() if line.strip())


def _is_answered(asked: str, lines: list[str]) -> bool:
    """Whether something and an empty line stand between the question and the next prompt."""
    if asked not in lines or lines[-1] != "›":
        return False
    below = lines[lines.index(asked) + 1 : -1]
    return any(below) and not below[-1]


class _Terminal:
    """A pseudo terminal with `parley chat` in it, and what is on its screen."""

    def __init__(self, home: Path) -> None:
        self.screen = _Screen(_COLUMNS, _ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self._child: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable,
            ["-m", "parley", "chat"],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "PARLEY_CACHE": str(cache_directory()),
                "LOGNAME": "you",
                "LANG": "C.UTF-8",
                "TERM": "xterm-256color",
            },
            dimensions=(_ROWS, _COLUMNS),
        )
        self.screen.answer = self._child.send

    def until(self, fact: Callable[[list[str]], bool]) -> None:
        """Take in what comes until `fact` holds of the lines on the screen."""
        deadline = time.monotonic() + _LONGEST_WAIT
        while not fact(self._lines()):
            if time.monotonic() > deadline or not self._child.isalive():
                raise SystemExit("\n".join(["The chat did not come so far:", *self._lines()]))
            try:
                self._stream.feed(self._child.read_nonblocking(65_536, timeout=0.2))
            except pexpect.TIMEOUT:
                continue

    def type(self, text: str) -> None:
        self._child.send(f"{text}\r")

    def close(self) -> None:
        self._child.sendeof()
        self._child.expect(pexpect.EOF, timeout=30)
        self._child.close()

    def _lines(self) -> list[str]:
        lines = [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines


class _Screen(pyte.Screen):
    """With what the emulator leaves out: faint text, and an answer to where the cursor is."""

    answer: Callable[[str], object] = staticmethod(lambda data: None)

    def write_process_input(self, data: str) -> None:
        self.answer(data)

    def select_graphic_rendition(self, *attrs: int) -> None:
        if not {38, 48} & set(attrs):
            attrs = tuple(90 if attr == 2 else attr for attr in attrs)
        super().select_graphic_rendition(*attrs)


def _style(char: Char) -> Style:
    return Style(
        color=_colour(char.fg),
        bgcolor=_colour(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _colour(name: str) -> str:
    """The emulator's name of a colour in rich's words."""
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name):
        return f"#{name}"
    name = name.replace("brown", "yellow")
    return f"bright_{name.removeprefix('bright')}" if name.startswith("bright") else name


if __name__ == "__main__":
    main()
