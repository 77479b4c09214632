"""Cut streamed Markdown into blocks that can be shown for good while the rest still comes. Pure."""

from __future__ import annotations

__all__ = ["Blocks", "split_blocks"]


class Blocks:
    """Takes text as it comes. Each piece is looked at once, however long its block grows.

    A block ends at a blank line that is not inside a fence; joined again they are the text.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._unfinished: list[str] = []
        self._fence = ""
        self._blank = True

    def add(self, text: str) -> list[str]:
        """Take a piece in; returns the blocks that are finished by it."""
        finished: list[str] = []
        for piece in text.splitlines(keepends=True):
            self._unfinished.append(piece)
            if piece.endswith("\n"):
                line = "".join(self._unfinished)
                self._unfinished.clear()
                if self._ends(line):
                    finished.append(self.flush())
        return finished

    def flush(self) -> str:
        """What is not in a finished block yet; it is taken as finished now."""
        rest = self.rest
        self._lines.clear()
        self._unfinished.clear()
        self._fence, self._blank = "", True
        return rest

    @property
    def rest(self) -> str:
        return "".join(self._lines) + "".join(self._unfinished)

    def tail(self, lines: int, characters: int) -> str:
        """The last of the rest, for a glimpse of it."""
        last = "".join((*self._lines[-lines:], *self._unfinished)).strip("\n")[-characters:]
        return "\n".join(last.splitlines()[-lines:])

    def _ends(self, line: str) -> bool:
        self._lines.append(line)
        stripped = line.strip()
        if self._fence:
            if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
                self._fence = ""
        elif stripped.startswith(("```", "~~~")):
            self._fence = stripped[0] * (len(stripped) - len(stripped.lstrip(stripped[0])))
        elif not stripped:
            return not self._blank
        self._blank = self._blank and not stripped
        return False


def split_blocks(text: str) -> tuple[list[str], str]:
    """The finished blocks of a whole text, and the rest that may still grow."""
    blocks = Blocks()
    return blocks.add(text), blocks.rest
