"""Records of the audit log for people: the newest, those that match, and those still to come."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from parley.audit.chain import AuditRecord, parse_record
from parley.audit.log_files import CURRENT_NAME, parse_time
from parley.audit.verify import open_parts, read_lines

__all__ = ["RecordFilter", "follow_records", "newest_records"]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are wanted. A kind stands for all below it: `approval` for `approval.asked`."""

    profile: str | None = None
    kinds: tuple[str, ...] = ()
    since: float | None = None

    def takes(self, record: AuditRecord) -> bool:
        if self.profile is not None and record.profile != self.profile:
            return False
        if self.since is not None and parse_time(record.at) < self.since:
            return False
        return not self.kinds or any(
            record.kind == kind or record.kind.startswith(f"{kind}.") for kind in self.kinds
        )


def newest_records(folder: Path, wanted: RecordFilter, limit: int) -> list[AuditRecord]:
    """The last `limit` records that are wanted, the oldest of them first."""
    found: list[AuditRecord] = []
    with ExitStack() as held:
        for part in reversed(open_parts(folder, held)[0]):
            records = list(_records(part.file, part.size))
            found = [*filter(wanted.takes, records), *found]
            oldest = parse_time(records[0].at) if records else time.time()
            if len(found) >= limit or (wanted.since is not None and oldest < wanted.since):
                break
    return found[-limit:]


def follow_records(
    folder: Path, wanted: RecordFilter, after: int, *, pause: float = 0.2
) -> Iterator[AuditRecord]:
    """Each record behind number `after`, for ever, as it is written."""
    offset, inode = 0, -1
    while True:
        with ExitStack() as held:
            if inode != _inode(folder):  # the first look, or a new part was begun meanwhile
                parts = open_parts(folder, held)[0]
                for part in parts[:-1]:
                    for record in _records(part.file, part.size):
                        if record.number > after:
                            after = record.number
                            yield from filter(wanted.takes, (record,))
                offset = 0
                inode = os.fstat(parts[-1].file.fileno()).st_ino if parts else -1
            if inode != -1:
                with suppress(FileNotFoundError), (folder / CURRENT_NAME).open("rb") as file:
                    if os.fstat(file.fileno()).st_ino == inode:
                        file.seek(offset)
                        content = file.read()
                        whole = content[: content.rfind(b"\n") + 1]
                        offset += len(whole)
                        for line in whole.split(b"\n"):
                            found = parse_record(line)
                            if found is not None and found.number > after:
                                after = found.number
                                yield from filter(wanted.takes, (found,))
        time.sleep(pause)


def _inode(folder: Path) -> int:
    try:
        return (folder / CURRENT_NAME).stat().st_ino
    except OSError:
        return -1


def _records(file: IO[bytes], size: int) -> Iterator[AuditRecord]:
    """Whole lines alone: what has no line break is no record, or not yet."""
    for line in read_lines(file, size):
        found = parse_record(line[:-1]) if line.endswith(b"\n") else None
        if found is not None:
            yield found
