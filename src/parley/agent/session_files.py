"""Files of one conversation alone: its long results, and what its agent puts under `.parley`.

All people of a profile share its workspace. What lies here they do not share: tools see the
folder of the running conversation as `.parley` of the workspace, and no other. It lies outside of
the workspace, in a folder of whoever it is counted for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from parley.protocol import Behalf, ParleyError, SessionSource, person_of
from parley.sessions.key import parse_session_key

__all__ = ["PRIVATE", "owner_folder", "owner_of_files", "session_folder", "tidy_session_files"]

PRIVATE: Final = ".parley"
_KEPT_SECONDS: Final = 90 * 86_400.0


def session_folder(root: Path, owner: str, session: str) -> Path:
    """Where the files of a session are; it is made by whoever puts the first one there."""
    return root / owner_folder(owner) / _digest(session)


def owner_folder(owner: str) -> str:
    return _digest(owner)


def owner_of_files(lane: str, source: SessionSource, behalf: Behalf | None = None) -> str:
    """For whom files are counted: a person, or a conversation that several people share."""
    if behalf is not None:
        return behalf.user
    if source.platform == "direct":  # one key speaks for many people: each thread is its own
        return f"direct:{source.chat_id}"
    if source.chat_type != "dm":
        with suppress(ParleyError):
            name = parse_session_key(lane)
            if name.participant is None:
                return f"chat:{name.platform}:{name.chat_id}"
    return person_of(source)


def tidy_session_files(root: Path, workspace: Path, *, now: float | None = None) -> None:
    """Remove what nobody has touched for long, and results from when all people shared them."""
    shared = workspace / PRIVATE / "results"
    if not (shared.parent.is_symlink() or shared.is_symlink()):
        shutil.rmtree(shared, ignore_errors=True)
    before = (time.time() if now is None else now) - _KEPT_SECONDS
    with suppress(OSError):
        for owner in list(root.iterdir()):
            for session in list(owner.iterdir()):
                if _touched(session) < before:
                    shutil.rmtree(session, ignore_errors=True)
            with suppress(OSError):  # others are left in it
                owner.rmdir()


def _touched(folder: Path) -> float:
    newest = folder.lstat().st_mtime
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                newest = max(newest, (Path(path) / name).lstat().st_mtime)
    return newest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:20]
