"""Check of the whole audit log: that the chain is whole, and what is wrong where it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final, NamedTuple

from parley.audit.chain import GENESIS, LONGEST_LINE, AuditRecord, parse_record
from parley.audit.log_files import CURRENT_NAME, Head, audit_lock, old_parts, read_head

__all__ = ["Verdict", "open_parts", "read_lines", "verify_log"]

_MOST_FINDINGS: Final = 100
_NOTED: Final = re.compile(r"(?:([0-9]{1,18}):)?([0-9a-f]{64})")


class _Part(NamedTuple):
    """One file of the log, opened, as long as it was at that moment."""

    name: str
    file: IO[bytes]
    size: int


@dataclass(slots=True)
class Verdict:
    """What a check found. `findings` are faults, each a sentence; `notes` are none."""

    records: int = 0
    first: int = 0
    head: Head = field(default_factory=lambda: Head(0, GENESIS))
    since: str = ""
    dropped_through: int = 0
    findings: list[str] = field(default_factory=list)
    left_off: int = 0
    notes: list[str] = field(default_factory=list)
    noted_at: str = ""
    """When the record was made whose hash was noted elsewhere, where that was asked."""

    @property
    def ok(self) -> bool:
        return not self.findings

    def find(self, sentence: str) -> None:
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(sentence)
        else:
            self.left_off += 1


def verify_log(folder: Path, *, noted: str | None = None) -> Verdict:
    """Read every record. `noted` is a head that was written down elsewhere, as HASH or N:HASH."""
    check = _Check(noted)
    with ExitStack() as held:
        parts, head = open_parts(folder, held)
        for part in parts:
            for number, line in enumerate(read_lines(part.file, part.size), 1):
                check.read(line, f"{part.name}, line {number}")
    return check.verdict(head)


def open_parts(folder: Path, held: ExitStack) -> tuple[list[_Part], Head]:
    """Every file as it is now, the oldest first, and the note of the head that belongs to them."""
    parts: list[_Part] = []
    if not folder.is_dir():
        return parts, Head(0, GENESIS)
    with ExitStack() as locked:
        try:
            locked.enter_context(audit_lock(folder))
        except OSError:  # who may only read, or waits in vain, sees it as it is
            locked.pop_all()
        for path in (*old_parts(folder), folder / CURRENT_NAME):
            try:
                file = held.enter_context(path.open("rb"))
            except FileNotFoundError:
                continue
            parts.append(_Part(path.name, file, os.fstat(file.fileno()).st_size))
        return parts, read_head(folder)


def read_lines(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Each line, with its line break; a line without end is given in pieces."""
    while size > 0:
        line = file.readline(min(size, LONGEST_LINE))
        if not line:
            return
        size -= len(line)
        yield line


class _Check:
    """Follows the chain, one line after the other."""

    def __init__(self, noted: str | None) -> None:
        wanted = _NOTED.fullmatch(noted.strip().lower()) if noted is not None else None
        self._asked = noted is not None
        self._number = int(wanted[1]) if wanted is not None and wanted[1] else None
        self._hash = wanted[2] if wanted is not None else ""
        self._verdict = Verdict()
        self._last: AuditRecord | None = None
        self._start: AuditRecord | None = None
        self._anchors: set[tuple[object, object]] = set()
        self._torn = ""

    def read(self, line: bytes, where: str) -> None:
        # Only the very last line may be torn: a repair removes it before more is written.
        if self._torn:
            self._verdict.find(f"{self._torn}: this is no record; it was added.")
        self._torn = "" if line.endswith(b"\n") else where
        if self._torn:
            return
        found = parse_record(line[:-1])
        if found is None:
            self._verdict.find(f"{where}: this is no record; the line was changed or added.")
            return
        if not found.intact:
            self._verdict.find(f"{where}: record {found.number} was changed.")
        self._follow(found, where)
        self._note(found, where)
        self._last = found

    def _follow(self, found: AuditRecord, where: str) -> None:
        """Whether it is the one that comes next."""
        last, find = self._last, self._verdict.find
        if last is None:
            self._start = found
            return
        expected = last.number + 1
        if found.number > expected:
            missing = _numbers(expected, found.number - 1)
            find(f"{where}: {missing} missing before record {found.number}.")
        elif found.number < expected:
            find(
                f"{where}: record {found.number} stands behind record {last.number}; it was "
                "moved, repeated or added."
            )
        elif found.previous != last.hash:
            find(
                f"{where}: record {found.number} does not follow on record {last.number}; "
                "one of them was replaced."
            )

    def _note(self, found: AuditRecord, where: str) -> None:
        verdict, data = self._verdict, found.data
        verdict.records += 1
        if self._hash and self._hash in (found.hash, found.previous) and not verdict.noted_at:
            verdict.noted_at = found.at
        match found.kind:
            case "audit.anchor":
                self._anchors.add((data.get("through"), data.get("hash")))
            case "audit.repaired" if "bytes" in data:
                verdict.notes.append(
                    f"{where}: a line that was torn by a kill was removed on {found.at} "
                    f"({data['bytes']} bytes)."
                )
            case "audit.lost":
                verdict.notes.append(
                    f"{where}: {data.get('records')} records could not be written before "
                    f"{found.at} ({data.get('why')})."
                )
            case "audit.gap":
                verdict.find(
                    f"{where}: on {found.at} the log ended at record {data.get('found')}, and "
                    f"record {data.get('noted')} had been written."
                )

    def verdict(self, head: Head) -> Verdict:
        verdict, start, last = self._verdict, self._start, self._last
        if start is not None and last is not None:
            verdict.first, verdict.since = start.number, start.at
            verdict.head = Head(last.number, last.hash)
            self._check_start(start)
        self._check_end(head)
        if self._asked:
            self._check_noted()
        return verdict

    def _check_start(self, start: AuditRecord) -> None:
        if start.number == 1 and start.previous == GENESIS:
            return
        if (start.number - 1, start.previous) in self._anchors:
            self._verdict.dropped_through = start.number - 1
        else:
            self._verdict.find(
                f"{_numbers(1, start.number - 1).capitalize()} missing at the beginning, and no "
                "anchor says that retention dropped them."
            )

    def _check_end(self, noted: Head) -> None:
        verdict = self._verdict
        end = verdict.head
        if noted.number > end.number:
            missing = _numbers(end.number + 1, noted.number)
            verdict.find(
                f"{missing.capitalize()} missing at the end: they were cut off, or lost in a "
                "power failure."
            )
        elif noted.number == end.number and noted.hash != end.hash:
            verdict.find(f"Record {end.number}, the last one, is not the one that was written.")
        elif noted.number == 0 < end.number:
            verdict.notes.append("The file `head` is missing: records cut off are not noticed.")
        if self._torn.startswith(f"{CURRENT_NAME},"):
            verdict.notes.append(
                f"{self._torn}: the last line is torn; the next record repairs that."
            )
        elif self._torn:
            verdict.find(f"{self._torn}: this is no record; it was added.")

    def _check_noted(self) -> None:
        verdict = self._verdict
        if not self._hash:
            verdict.find("A head is 64 digits from 0 to f, as `parley audit --verify` prints it.")
        elif not verdict.noted_at and (
            self._number is not None and self._number <= verdict.dropped_through
        ):
            verdict.find(
                f"Record {self._number} was dropped by retention: nothing can be said about it."
            )
        elif not verdict.noted_at:
            verdict.find(
                "No record has the head that you noted: the log was rewritten since, or the "
                "record was dropped by retention."
            )


def _numbers(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"
