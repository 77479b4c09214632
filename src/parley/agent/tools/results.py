"""Where a long result goes: to a file of the conversation, of which the model is told the name."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from parley.agent.session_files import PRIVATE
from parley.agent.tools.files.hand.beneath import open_folder

if TYPE_CHECKING:
    from pathlib import Path

    from parley.agent.tools.base import ToolContext

__all__ = ["set_aside"]

_FOLDER = "results"
_MOST_FILES = 100
_MOST_BYTES = 100_000_000
_LONGEST_FILE = 20_000_000
_NOTE = 200


def set_aside(text: str, longest: int, context: ToolContext) -> str:
    """The first part of a text, and where the rest of it is. Reads and writes files."""
    head = _head(text, max(longest - _NOTE, 0))
    content = text.encode("utf-8", "replace")
    name = f"{_name(context.call)}.txt"
    left = f"{len(text) - len(head)} more characters were left out"
    if refusal := _refuse(context, min(len(content), _LONGEST_FILE)):
        return f"{_head(text, max(longest - len(refusal) - _NOTE, 0))}\n… ({left}. {refusal})"
    try:
        _keep(context.private, name, content[:_LONGEST_FILE])
    except OSError:
        return f"{head}\n… ({left}: they could not be kept)"
    line = head.count("\n") + 1
    begin = len(head) - head.rfind("\n")
    where = f"first_line={line}" if begin == 1 else f"first_line={line}, column={begin}"
    cut = f", cut to {_LONGEST_FILE} bytes" if len(content) > _LONGEST_FILE else ""
    return (
        f"{head.removesuffix(chr(10))}\n… ({len(text)} characters in all{cut}; for the rest: "
        f"read_file path={PRIVATE}/{_FOLDER}/{name}, {where})"
    )


def _refuse(context: ToolContext, size: int) -> str | None:
    """Why there is no room for it on the disk."""
    if context.disk is None or context.private is None:
        return None
    return context.disk.look(context.private, needed=size).refuse(size)


def _head(text: str, longest: int) -> str:
    """Whole lines, where that does not cost half of it."""
    head = text[:longest]
    end = head.rfind("\n") + 1
    return head[:end] if end > longest // 2 else head


def _name(call: str) -> str:
    """Always the same for the same call, and never that of another."""
    if not call:
        return secrets.token_hex(8)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", call).strip("-")[:40]
    return f"{plain or 'call'}-{hashlib.sha256(call.encode('utf-8', 'replace')).hexdigest()[:10]}"


def _keep(private: Path | None, name: str, content: bytes) -> None:
    """A command may have put a link there: none is followed."""
    if private is None:
        raise FileNotFoundError
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    outer = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileExistsError):
            os.mkdir(_FOLDER, 0o700, dir_fd=outer)
        folder = open_folder(_FOLDER, outer)
    finally:
        os.close(outer)
    try:
        _write(folder, name, content)
        with suppress(OSError):  # it is kept all the same
            _tidy(folder)
    finally:
        os.close(folder)


def _write(folder: int, name: str, content: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _tidy(folder: int) -> None:
    """Let the oldest go."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
    files = [(name, status) for name, status in found if stat.S_ISREG(status.st_mode)]
    files.sort(key=lambda file: file[1].st_mtime_ns, reverse=True)
    total = 0
    for count, (name, status) in enumerate(files, 1):
        total += status.st_size
        if count > _MOST_FILES or total > _MOST_BYTES:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
