"""Skills: instructions in the profile's folder, told by name, and read when they are needed.

A skill is a folder with a `SKILL.md`. Nothing in it is run by listing or reading it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from parley.agent.foreign import one_line
from parley.config.document import parse_document
from parley.config.errors import ConfigError
from parley.protocol import ParleyError

__all__ = ["Skill", "SkillError", "Skills", "prompt_part"]

FILE: Final = "SKILL.md"
LARGEST_FILE: Final = 200_000
_MOST_SKILLS: Final = 100
_MOST_FOLDERS: Final = 1_000
_LONGEST_DESCRIPTION: Final = 300
_LARGEST_FRONT: Final = 16_000
_MOST_BRACKETS: Final = 100  # each one nests what follows: a thousand take seconds to read
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FENCE: Final = re.compile(r"^---[ \t]*$", re.MULTILINE)


class SkillError(ParleyError):
    """A skill that cannot be used, in a sentence."""


@dataclass(frozen=True, slots=True)
class Skill:
    """What is told of a skill. `folder` is where it really lies."""

    name: str
    description: str
    folder: Path = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Read:
    """One folder as it was read: again only when the mark is another."""

    mark: tuple[int, ...]
    skill: Skill | None
    fault: str | None = None


class Skills:
    """The skills in a folder. Looking costs a glance at each; reading, only what has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, _Read] = {}
        self._faults: dict[str, str] = {}
        self._listing: tuple[Skill, ...] = ()

    def listing(self) -> tuple[Skill, ...]:
        """All that can be used, by name."""
        read: dict[str, _Read] = {}
        faults: dict[str, str] = {}
        found: dict[str, Skill] = {}
        for name in self._folders():
            one = read[name] = self._look(name)
            if one.skill is None:
                faults[name] = one.fault or "It cannot be read."
            elif one.skill.name in found:
                faults[name] = f"There is another skill `{one.skill.name}`; rename one."
            elif len(found) >= _MOST_SKILLS:
                faults[name] = f"There are more than {_MOST_SKILLS} skills."
            else:
                found[one.skill.name] = one.skill
        self._read, self._faults = read, faults
        fresh = tuple(found[name] for name in sorted(found))
        if fresh != self._listing or any(
            new.folder != old.folder for new, old in zip(fresh, self._listing, strict=True)
        ):
            self._listing = fresh
        return self._listing

    def faults(self) -> dict[str, str]:
        """What was left out at the last listing, by folder, and why."""
        return dict(self._faults)

    def find(self, name: str) -> Skill | None:
        return next((skill for skill in self.listing() if skill.name == name), None)

    def _folders(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except OSError:
            return []
        return sorted(names)[:_MOST_FOLDERS]

    def _look(self, name: str) -> _Read:
        path = self._folder / name
        try:
            there, file = path.lstat(), (path / FILE).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return _Read((), None, f"It holds no {FILE}.")
        except (OSError, ValueError) as error:
            return _Read((), None, f"It cannot be read ({type(error).__name__}).")
        # A link says nothing of what it leads to: that is looked at anew each time.
        linked = stat.S_ISLNK(there.st_mode) or stat.S_ISLNK(file.st_mode)
        mark = (there.st_ino, file.st_ino, file.st_mtime_ns, file.st_ctime_ns, file.st_size)
        known = self._read.get(name)
        if known is not None and known.mark == mark and not linked:
            return known
        try:
            return _Read(mark, read_skill_folder(self._folder, name))
        except SkillError as error:
            return _Read(mark, None, str(error))


def prompt_part(skills: Sequence[Skill]) -> str:
    """What the system prompt says of them; nothing when there are none."""
    if not skills:
        return ""
    lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills)
    return f"Skills are instructions for certain work; read a fitting one by read_skill:\n{lines}"


def read_skill_folder(root: Path, name: str) -> Skill:
    """Read the one in `root / name`; raises `SkillError` when it cannot be used."""
    if not _NAME.fullmatch(name):
        raise SkillError("Its folder's name may hold letters, digits, `.`, `_` and `-` only.")
    folder = inside(root, name)
    front, body = split_front(read_text(inside(folder, FILE)))
    if front is None:
        first = next((line for line in body.splitlines() if line.strip()), "")
        return Skill(name, _described(first.lstrip("# ")), folder)
    if len(front) > _LARGEST_FRONT or front.count("[") + front.count("{") > _MOST_BRACKETS:
        raise SkillError("What stands between its `---` lines is too long.")
    try:
        values = parse_document(front, folder / FILE).values
    except ConfigError as error:
        raise SkillError(str(error)) from error
    called, told = values.get("name", name), values.get("description")
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        raise SkillError("Its `name` may hold letters, digits, `.`, `_` and `-` only.")
    if not isinstance(told, str) or not told.strip():
        raise SkillError("Its `description` is missing: say in a sentence what it is for.")
    return Skill(called, _described(told), folder)


def split_front(text: str) -> tuple[str | None, str]:
    """The text between the first two `---` lines, and what comes after."""
    if not _FENCE.match(text):
        return None, text
    begin = text.find("\n") + 1
    end = _FENCE.search(text, begin) if begin else None
    if end is None:
        return None, text
    return text[begin : end.start()], text[end.end() :].lstrip("\n")


def inside(folder: Path, path: str) -> Path:
    """The real path, when it lies in the folder; links and `..` are followed first."""
    if "\0" in path:
        raise SkillError("A path cannot hold a NUL character.")
    try:
        base = folder.resolve(strict=True)
        real = (base / path).resolve()
    except (OSError, RuntimeError) as error:
        raise SkillError(f"{one_line(path, longest=100)} cannot be reached.") from error
    if base not in real.parents:
        raise SkillError(f"{one_line(path, longest=100)} leads out of the skill's folder.")
    return real


def read_text(file: Path) -> str:
    """The text of an ordinary file of bounded size."""
    try:
        # Not to hang on a pipe, nor follow a link put there a moment ago.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SkillError(f"{file.name} is not an ordinary file.")
            content = opened.read(LARGEST_FILE + 1)
    except FileNotFoundError as error:
        raise SkillError(f"There is no {file.name} in it.") from error
    except OSError as error:
        raise SkillError(f"{file.name} cannot be read ({error.strerror}).") from error
    if len(content) > LARGEST_FILE:
        raise SkillError(f"{file.name} is larger than {LARGEST_FILE // 1000} kB.")
    if b"\0" in content:
        raise SkillError(f"{file.name} is not a text file.")
    return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _described(text: str) -> str:
    return one_line(text, longest=_LONGEST_DESCRIPTION) or "(no description)"
