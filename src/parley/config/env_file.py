"""The `.env` of a profile: its lines as they stand, and what they say."""

from __future__ import annotations

import io
import logging
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from parley.config.errors import ConfigError, Fault, shown
from parley.config.files import read_text, replace_text

__all__ = ["EnvFile", "Line", "read_env_file", "write_env_file"]

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_./:+=@%-]+")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of the file: a variable with its value, or (without a name) anything else."""

    text: str
    name: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class EnvFile:
    """The lines of a `.env`, in their order."""

    lines: tuple[Line, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """Every variable that has a value; of two lines with one name the later one counts."""
        found = {line.name: line.value for line in self.lines if line.name is not None}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def text(self) -> str:
        return "".join(line.text for line in self.lines)

    def with_value(self, name: str, value: str) -> EnvFile:
        """The file with one variable changed where it stands, or added at the end."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"`{name}` cannot be the name of a variable in `.env`.")
        if not value.isprintable():
            raise ConfigError(f"The value of `{name}` must be one line of readable text.")
        places = [index for index, line in enumerate(self.lines) if line.name == name]
        lines = list(self.lines)
        if places:
            end = "\n" if lines[places[-1]].text.endswith("\n") else ""
            blank = _blank(lines[places[-1]].text)
            export = "export " if lines[places[-1]].text.strip().startswith("export ") else ""
            written = f"{blank}{export}{name}={_quoted(value)}{end}"
            lines[places[-1]] = Line(written, name, value)
        else:
            if lines and not lines[-1].text.endswith(("\n", "\r")):
                last = lines[-1]
                lines[-1] = Line(last.text + "\n", last.name, last.value)
            lines.append(Line(f"{name}={_quoted(value)}\n", name, value))
        return EnvFile(tuple(lines))

    def without(self, name: str) -> EnvFile:
        """The file without one variable; the blank lines before it stay."""
        return EnvFile(
            tuple(line if line.name != name else Line(_blank(line.text)) for line in self.lines)
        )


def read_env_file(path: Path) -> EnvFile:
    """Read a `.env`; one that is missing is empty, one that others may read is tightened."""
    text = read_text(path)
    if text is None:
        return EnvFile()
    _tighten(path)
    return _parse(text, path)


def write_env_file(path: Path, file: EnvFile) -> None:
    """Replace a `.env` by `file`, readable by its owner alone."""
    if _parse(file.text, path).values != file.values:
        raise ConfigError(f"{shown(path)} cannot hold this value; edit the file by hand.")
    replace_text(path, file.text, private=True)


def _parse(text: str, path: Path) -> EnvFile:
    from dotenv.parser import parse_stream

    lines: list[Line] = []
    faults: list[Fault] = []
    for binding in parse_stream(io.StringIO(text, newline="")):
        if binding.error:
            number = binding.original.line + _blank(binding.original.string).count("\n")
            faults.append(
                Fault(f"{shown(path)}, line {number}: `NAME=value` is wanted here.", line=number)
            )
        lines.append(Line(binding.original.string, binding.key, binding.value))
    if faults:
        raise ConfigError(*faults)
    return EnvFile(tuple(lines))


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _blank(text: str) -> str:
    """The blank space before a line: the parser counts it to what follows."""
    return text[: len(text) - len(text.lstrip())]


def _tighten(path: Path) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(0o600)
            _log.warning("%s could be read by others; it is now for its owner alone", shown(path))
    except OSError:
        _log.warning("%s can be read by others, and its mode cannot be changed", shown(path))
