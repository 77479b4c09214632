"""Keys typed before the prompt is there: none is lost, and Enter is Enter."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["early_keys"]

_ENTER = re.compile(r"\r\n|\r|\n")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@contextmanager
def early_keys() -> Iterator[list[str]]:
    """What was typed so far, by Enter; the last piece is not finished yet.

    A terminal as the shell leaves it turns Enter into a newline, which a prompt takes for Ctrl-J.
    From here on keys wait as they were typed, unseen, until the prompt reads them.
    """
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    ours = termios.tcgetattr(terminal)
    ours[0] &= ~termios.ICRNL
    ours[3] &= ~(termios.ICANON | termios.ECHO)
    ours[6][termios.VMIN], ours[6][termios.VTIME] = 1, 0
    termios.tcsetattr(terminal, termios.TCSANOW, ours)
    try:
        typed = _waiting(terminal).decode(errors="replace")
        yield [_CONTROLS.sub("", piece) for piece in _ENTER.split(typed)]
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _waiting(terminal: int) -> bytes:
    read = b""
    while select.select([terminal], [], [], 0)[0]:
        piece = os.read(terminal, 65_536)
        if not piece:
            break
        read += piece
    return read
