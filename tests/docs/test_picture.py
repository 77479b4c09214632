"""The picture in the README shows this Parley, and asks nothing of anyone who looks at it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pyte
import pytest
from docs.picture import PICTURE, QUESTIONS, draw, talk

from parley import __version__

_COLUMN = 12.2  # the width of a letter in the picture


def test_the_picture_shows_this_version_and_what_was_asked() -> None:
    shown = _text(PICTURE.read_text())
    assert f"Parley {__version__} · answered by local · smollm2" in shown
    assert all(f"› {question}" in shown for question in QUESTIONS)


def test_the_picture_fetches_nothing() -> None:
    svg = PICTURE.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert re.findall(r"//|@import|@font-face|<script|<image|href|url\((?!#)", svg) == []


def test_a_screen_is_drawn_with_its_words_and_colours() -> None:
    screen = pyte.Screen(20, 5)
    pyte.Stream(screen).feed("plain \x1b[1;32m<green>\x1b[0m\r\n  indented")
    svg = draw(screen)
    assert _text(svg).splitlines() == ["plain <green>", "  indented"]
    assert "#56d364" in svg


@pytest.mark.timeout(300)
def test_the_picture_can_be_made_again(models: Path) -> None:
    screen = talk(["What is the capital of France?"])
    assert any("The capital of France is Paris." in line for line in screen.display)


def _text(svg: str) -> str:
    """The words of the screen, line by line, each at its place."""
    lines: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if text.get("clip-path") is not None:
            y, column = float(text.get("y", "0")), round(float(text.get("x", "0")) / _COLUMN)
            words = (text.text or "").replace("\N{NO-BREAK SPACE}", " ")
            lines[y] = lines.get(y, "").ljust(column) + words
    return "\n".join(lines[y].rstrip() for y in sorted(lines))
