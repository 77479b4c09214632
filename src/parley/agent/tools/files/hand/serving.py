"""The child itself: one request at a time from standard input, its answer to standard output.

A message is its length in four bytes and then JSON. A message without length says goodbye.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping
from typing import Any

from .beneath import Refused, Root, shown
from .globs import tidy_glob
from .reading import read
from .room import Room
from .searching import search
from .taking import take
from .wanted import Search
from .writing import edit, write

__all__ = ["LONGEST_MESSAGE", "answer", "main"]

LONGEST_MESSAGE = 40_000_000
_FARTHEST = 10_000_000
_MEMORY_BYTES = 512 * 1024 * 1024


def main() -> None:
    """`hand <workspace> <idle seconds> <ripgrep, or nothing> <conversations, or nothing>`."""
    workspace, idle, ripgrep = sys.argv[1], float(sys.argv[2]), sys.argv[3] or None
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    root = Root(workspace, sys.argv[4] or None)
    while select.select([0], [], [], idle)[0]:
        message = _receive()
        if message is None:
            return
        # Whoever waits for us may be gone: then this ends what never would by itself.
        signal.setitimer(signal.ITIMER_REAL, message.pop("seconds"))
        root.own = tuple(message.pop("own"))
        _send(json.dumps(answer(root, ripgrep, message)).encode())
        signal.setitimer(signal.ITIMER_REAL, 0)
    _send(b"")


def answer(root: Root, ripgrep: str | None, message: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a request asks; what goes wrong becomes a sentence."""
    try:
        return {"ok": True, "text": _do(root, ripgrep, **message)}
    except Refused as error:
        return {"ok": False, "text": str(error)}
    except OSError as error:
        reason = error.strerror or type(error).__name__
        return {"ok": False, "text": f"{shown(message['path'])}: {reason}."}
    except MemoryError:
        return {"ok": False, "text": f"{shown(message['path'])} takes too much memory."}


def _do(root: Root, ripgrep: str | None, *, op: str, path: str, **more: Any) -> str:
    if op == "read":
        return read(root, path, more["first_line"], more["lines"], min(more["column"], _FARTHEST))
    if op == "write":
        return write(root, path, more["content"], _room(more))
    if op == "edit":
        return edit(root, path, more["old"], more["new"], more["all"], room=_room(more))
    if op == "take":
        return take(root, path)
    if op == "search":
        wanted = Search(**{**more, "glob": tidy_glob(more["glob"])})
        return search(root, wanted, path, ripgrep)
    raise Refused(f"There is no {op}.")


def _room(more: Mapping[str, Any]) -> Room | None:
    return Room(*more["room"]) if "room" in more else None


def _receive() -> dict[str, Any] | None:
    size = int.from_bytes(_take(4), "big")
    if not 0 < size <= LONGEST_MESSAGE:
        return None
    message: dict[str, Any] = json.loads(_take(size))
    return message


def _take(size: int) -> bytes:
    """So many bytes; fewer only when whoever asks is gone."""
    taken = bytearray()
    while len(taken) < size:
        block = os.read(0, min(size - len(taken), 1 << 20))
        if not block:
            raise SystemExit(0)
        taken += block
    return bytes(taken)


def _send(body: bytes) -> None:
    left = memoryview(len(body).to_bytes(4, "big") + body)
    try:
        while left:
            left = left[os.write(1, left) :]
    except BrokenPipeError:
        raise SystemExit(0) from None
