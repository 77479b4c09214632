"""Searching the files of a folder: by ripgrep where it is given, else by ourselves.

Neither goes into what is hidden, follows a link, reads what is no text or longer than 5 MB.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from .beneath import Place, Refused, Root, open_folder, open_regular, shown
from .findings import Findings
from .globs import glob_pattern
from .wanted import LARGEST_FILE, SKIPPED, Search

__all__ = ["search"]

_SECONDS = 15.0
_DEEPEST = 60

Matcher: TypeAlias = Callable[[str], int | None]


def search(root: Root, wanted: Search, path: str, ripgrep: str | None) -> str:
    """Lines as `path:line: text`, or the names of the files alone; paths are from the root on."""
    findings = Findings()
    deadline = time.monotonic() + _SECONDS
    with root.find(path) as place:
        if place.missing:
            raise Refused(f"There is no {shown(path)} in the workspace.")
        if place.name is not None:
            _search_one(place, wanted, findings)
        elif ripgrep is None or not _by_ripgrep(ripgrep, wanted, place, findings):
            look = _Look(wanted, findings, deadline)
            look.into(place.folder, place.names)
    return findings.text(_SECONDS)


def _by_ripgrep(program: str, wanted: Search, place: Place, findings: Findings) -> bool:
    from .ripgrep import can_search, search_by_ripgrep

    return can_search(wanted) and search_by_ripgrep(
        program, wanted, place, findings, seconds=_SECONDS
    )


class _File(NamedTuple):
    folder: int
    name: str
    path: str


class _Look:
    """One search by ourselves."""

    def __init__(self, wanted: Search, findings: Findings, deadline: float) -> None:
        self._wanted = wanted
        self._findings = findings
        self._deadline = deadline
        self._glob = glob_pattern(wanted.glob)
        self._matcher = None if wanted.lists else _matcher(wanted)

    def into(self, folder: int, names: tuple[str, ...]) -> None:
        for file in _walk(folder, names, len(names)):
            if self._findings.full:
                return
            if time.monotonic() > self._deadline:
                self._findings.stopped = True
                return
            beneath = "/".join(file.path.split("/")[len(names) :])
            if not self._glob.fullmatch(beneath):
                continue
            if self._matcher is None:
                self._findings.add_name(file.path)
                continue
            with suppress(OSError, Refused):  # swapped, gone or not ours to read
                content = _content(file.name, file.folder)
                if content is not None:
                    _match(content, file.path, self._matcher, self._wanted, self._findings)


def _search_one(place: Place, wanted: Search, findings: Findings) -> None:
    name = place.name or ""
    if wanted.lists:
        return findings.add_name(place.path)
    content = _content(name, place.folder)
    if content is None:
        raise Refused(f"{shown(place.path)} is not a text file, or longer than 5 MB.")
    return _match(content, place.path, _matcher(wanted), wanted, findings)


def _walk(folder: int, names: tuple[str, ...], base: int) -> Iterator[_File]:
    """The files beneath, in the order of their names."""
    handle = open_folder(".", folder)
    try:
        with os.scandir(handle) as entries:
            found = sorted(
                (os.fsencode(entry.name), entry.is_dir(follow_symlinks=False))
                for entry in entries
                if not entry.name.startswith(".")
                and (entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False))
            )
        for raw, is_folder in found:
            name = os.fsdecode(raw)
            if not is_folder:
                yield _File(handle, name, "/".join((*names, name)))
            elif name not in SKIPPED and len(names) - base < _DEEPEST:
                with suppress(OSError):
                    below = open_folder(name, handle)
                    try:
                        yield from _walk(below, (*names, name), base)
                    finally:
                        os.close(below)
    finally:
        os.close(handle)


def _content(name: str, folder: int) -> bytes | None:
    """All of a text file of a bearable size."""
    with os.fdopen(open_regular(name, folder), "rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST_FILE:
            return None
        content = file.read(LARGEST_FILE + 1)
    return None if len(content) > LARGEST_FILE or b"\0" in content else content


def _match(content: bytes, path: str, matcher: Matcher, wanted: Search, findings: Findings) -> None:
    lines = content.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        text = line.removesuffix("\r")
        start = matcher(text)
        if start is None:
            continue
        if wanted.names_only:
            return findings.add_name(path)
        findings.add_line(path, number, text, start)
        if findings.full:
            return None
    return None


def _matcher(wanted: Search) -> Matcher:
    """Where in a line the match begins; None when there is none."""
    try:
        pattern = re.compile(re.escape(wanted.pattern) if wanted.plain else wanted.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(
            f"The pattern is no regular expression ({error}): correct it, or set plain=true."
        ) from None

    def match(line: str) -> int | None:
        found = pattern.search(line)
        return None if found is None else found.start()

    return match
