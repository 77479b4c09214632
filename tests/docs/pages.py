"""The pages as the tests read them: their fences, their examples, their links."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

__all__ = [
    "HANDS_PAGES",
    "MATRIX_PAGE",
    "MEMORY_PAGE",
    "PROGRAM_PAGES",
    "REPOSITORY",
    "Fence",
    "Step",
    "fences",
    "files",
    "headings",
    "matches",
    "name_of",
    "pages",
    "prose",
    "steps",
]

REPOSITORY = Path(__file__).parents[2]
HANDS_PAGES = [REPOSITORY / "docs" / name for name in ("tools.md", "safety.md")]
"""Pages whose examples want a sandbox as well."""
PROGRAM_PAGES = [
    *(REPOSITORY / "docs" / name for name in ("api.md", "proxy.md", "direct.md")),
    *HANDS_PAGES,
]
"""Pages whose examples want a model that does exactly as the page says."""
MATRIX_PAGE = REPOSITORY / "docs" / "matrix.md"
"""The page whose examples want a homeserver."""
MEMORY_PAGE = REPOSITORY / "docs" / "memory.md"
"""The page whose examples want a model that remembers."""
_FENCE = re.compile(r"^(?P<ticks>```+)(?P<language>\w*)\n(?P<body>.*?)^(?P=ticks)$", re.M | re.S)
_ANYTHING = "…"
# `$ ` at the beginning of a line, or `far$ ` where a page speaks of two machines; or a pressed key.
_PROMPT = re.compile(r"^(?:(?P<machine>[a-z]*)\$ |(?=\^C$))", re.M)


@dataclass(frozen=True, slots=True)
class Fence:
    """A block of code in a page."""

    language: str
    body: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command of an example, and what it is said to print; `machine` is where it is typed."""

    command: str
    output: tuple[str, ...]
    machine: str = ""

    @property
    def may_fail(self) -> bool:
        return any(line.startswith("parley: ") for line in self.output)


def files() -> list[Path]:
    """Every file of the repository, also those that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout
        found = [REPOSITORY / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        # Unpacked from an archive: there is no git to ask, so what is ours is told by its name.
        found = [file for file in REPOSITORY.rglob("*") if not _is_made(file)]
    return sorted(file for file in found if file.is_file())


def _is_made(file: Path) -> bool:
    parts = file.relative_to(REPOSITORY).parts
    return any(part == "__pycache__" or part[0] == "." for part in parts if part != ".ci")


def pages() -> list[Path]:
    return [file for file in files() if file.suffix == ".md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def fences(text: str, language: str) -> list[Fence]:
    found = (Fence(each["language"], each["body"]) for each in _FENCE.finditer(text))
    return [fence for fence in found if fence.language == language]


def prose(text: str) -> str:
    """The page without its blocks of code."""
    return _FENCE.sub("", text)


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+)$", prose(text), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def steps(text: str) -> list[Step]:
    """Every `$ command` of the page's console blocks, in order; `^C` is one too.

    So is a Python block that a block of text follows: a program, and what it prints.
    """
    found = [*_FENCE.finditer(text)]
    made: list[Step] = []
    for each, after in zip_longest(found, found[1:]):
        if each["language"] == "console":
            made += _steps(each["body"], machine=made[-1].machine if made else "")
        elif (
            each["language"] == "python"
            and after is not None
            and after["language"] == "text"
            and not text[each.end() : after.start()].strip()
        ):
            program = f"python - <<'END'\n{each['body']}END"
            made.append(Step(program, tuple(after["body"].splitlines())))
    return made


def _steps(body: str, *, machine: str) -> Iterator[Step]:
    """A key is pressed where the last command was typed."""
    prompts = [*_PROMPT.finditer(body)]
    for prompt, after in zip_longest(prompts, prompts[1:]):
        lines = body[prompt.end() : after.start() if after else None].rstrip("\n").split("\n")
        length = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\"))
        machine = machine if prompt["machine"] is None else prompt["machine"]
        yield Step("\n".join(lines[:length]), tuple(lines[length:]), machine)


def matches(output: tuple[str, ...], printed: str) -> bool:
    """Whether this was printed; `…` is any text, on a line of its own any lines."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line == _ANYTHING
        else ".*".join(re.escape(part) for part in line.split(_ANYTHING)) + r"\n"
        for line in output
    )
    return re.fullmatch(pattern, printed) is not None
