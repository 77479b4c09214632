"""Cut streamed Markdown into blocks that can be shown for good while the rest still comes. Pure."""

from __future__ import annotations

__all__ = ["split_blocks"]


def split_blocks(text: str) -> tuple[list[str], str]:
    """The finished blocks, and the rest that may still grow.

    A block ends at a blank line that is not inside a fence; joined again they are the text.
    """
    blocks: list[str] = []
    current = ""
    fence = ""
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return blocks, current + line
        current += line
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[0] * (len(stripped) - len(stripped.lstrip(stripped[0])))
        elif not stripped and current.strip():
            blocks.append(current)
            current = ""
    return blocks, current
