"""Hash chain of the audit log: how one record is written, read back and checked. Pure.

A line is a JSON object that ends in the SHA-256 of all that stands before it, and holds the hash
of the line before. So a change to one record shows in it, and in the link to the next one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["GENESIS", "LONGEST_LINE", "AuditRecord", "parse_record", "seal_record"]

GENESIS: Final = "0" * 64
LONGEST_LINE: Final = 64 * 1024
_ENDING: Final = re.compile(rb',"hash":"([0-9a-f]{64})"\}')
_ENDING_LENGTH: Final = len(',"hash":""}') + 64
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class AuditRecord(NamedTuple):
    """One record as it was read. `intact`: its own hash fits what it says."""

    number: int
    at: str
    kind: str
    fields: Mapping[str, Any]
    previous: str
    hash: str
    intact: bool

    @property
    def profile(self) -> str:
        return str(self.fields.get("profile", ""))

    @property
    def data(self) -> Mapping[str, Any]:
        found = self.fields.get("data")
        return found if isinstance(found, dict) else {}


def seal_record(number: int, previous: str, fields: Mapping[str, Any]) -> tuple[bytes, str]:
    """The line of a record, and its hash. ASCII alone: nothing in it moves a terminal's cursor."""
    body = _dumps({"n": number, **fields, "prev": previous})
    if len(body) > LONGEST_LINE - _ENDING_LENGTH - 1:
        data = _dumps(fields.get("data"))
        short = {"shortened": data[:4_000], "bytes": len(data), "sha256": _sha256(data.encode())}
        body = _dumps({"n": number, **fields, "data": short, "prev": previous})
    digest = _sha256(body.encode("ascii"))
    return f'{body[:-1]},"hash":"{digest}"}}\n'.encode("ascii"), digest


def parse_record(line: bytes) -> AuditRecord | None:
    """The record in a line without its line break; None when it is none at all."""
    ending = _ENDING.fullmatch(line[-_ENDING_LENGTH:])
    if ending is None:
        return None
    body = line[:-_ENDING_LENGTH] + b"}"
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    number, previous = fields.get("n"), fields.get("prev")
    at, kind = fields.get("at"), fields.get("kind")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        return None
    if not isinstance(previous, str) or not _HASH.fullmatch(previous):
        return None
    if not isinstance(at, str) or not isinstance(kind, str):
        return None
    stated = ending[1].decode()
    return AuditRecord(number, at, kind, fields, previous, stated, _sha256(body) == stated)


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
