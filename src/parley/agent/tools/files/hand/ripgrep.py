"""Searching by ripgrep. It opens files by their paths, so it is for the sandbox alone."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from .beneath import Place
from .findings import MOST_FINDINGS, Findings
from .wanted import LARGEST_FILE, SKIPPED, Search

__all__ = ["can_search", "search_by_ripgrep"]

_SAME_GLOB = re.compile(r"(?:[\w.*?/-]|\{[\w.*?,-]*\})+")
_OPTIONS = (
    *("--no-config", "--json", "--no-ignore", "--no-messages", "--sort=path", "--threads=1"),
    *("--no-mmap", "--encoding=none", "--crlf", "--case-sensitive", "--no-follow"),
    f"--max-filesize={LARGEST_FILE}",
)


def can_search(wanted: Search) -> bool:
    """Whether ripgrep reads the names' pattern as we do."""
    return not wanted.lists and _SAME_GLOB.fullmatch(wanted.glob) is not None


def search_by_ripgrep(
    program: str, wanted: Search, place: Place, findings: Findings, *, seconds: float
) -> bool:
    """Whether it could: there are patterns that it does not know and Python does."""
    # What comes last counts: a pattern that names hidden files does not bring them back.
    globs = (*((wanted.glob,) if wanted.glob != "*" else ()), "!.*", *(f"!{n}" for n in SKIPPED))
    os.fchdir(place.folder)
    with subprocess.Popen(
        [
            program,
            *_OPTIONS,
            *(f"--glob={glob}" for glob in globs),
            *(("--fixed-strings",) if wanted.plain else ()),
            f"--regexp={wanted.pattern}",
            *("--", "."),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        stopper = threading.Timer(seconds, process.kill)
        stopper.start()
        try:
            ended = _collect(_events(process), place, wanted, findings)
        finally:
            late = not stopper.is_alive()
            stopper.cancel()
            process.kill()
    findings.stopped = late and not ended
    return ended or late


def _events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    for line in process.stdout or ():
        yield json.loads(line)


def _collect(
    events: Iterator[dict[str, Any]], place: Place, wanted: Search, findings: Findings
) -> bool:
    """Take what was found file by file: only at its end is it known to be text.

    Whether it came to an end: a pattern that it cannot read gives no summary.
    """
    matches: list[dict[str, Any]] = []
    for event in events:
        kind, about = event["type"], event["data"]
        if kind == "begin":
            matches = []
        elif kind == "match" and len(matches) < _kept(wanted):
            matches.append(about)
        elif kind == "end" and about["binary_offset"] is None:
            for match in matches:
                _add(match, place, wanted, findings)
            if findings.full:
                return True
        elif kind == "summary":
            return True
    return False


def _kept(wanted: Search) -> int:
    """How many of a file's matches can be of use."""
    return 1 if wanted.names_only else MOST_FINDINGS + 1


def _add(match: dict[str, Any], place: Place, wanted: Search, findings: Findings) -> None:
    beneath = os.fsdecode(_raw(match["path"])).removeprefix("./")
    path = "/".join((*place.names, beneath))
    if wanted.names_only:
        return findings.add_name(path)
    raw = _raw(match["lines"])
    start = match["submatches"][0]["start"] if match["submatches"] else 0
    line = raw.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    before = len(raw[:start].decode("utf-8", "replace"))
    return findings.add_line(path, match["line_number"], line, before)


def _raw(value: dict[str, str]) -> bytes:
    if "text" in value:
        return value["text"].encode()
    return base64.b64decode(value["bytes"])
