"""Writing and editing a file: the old one stands until the new one is whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from .beneath import Place, Refused, Root, open_regular, shown
from .reading import is_binary
from .room import Room

__all__ = ["edit", "put_file", "write"]

_LONGEST_CONTENT = 5_000_000
_LONGEST_EDITED = 10_000_000
_LINES_NAMED = 10


def write(root: Root, path: str, content: str, room: Room | None = None) -> str:
    """Write a whole file, if there is room for it; says whether there was one."""
    raw = _bytes(content)
    if len(raw) > _LONGEST_CONTENT:
        raise Refused(f"The content is longer than {_LONGEST_CONTENT} bytes: write it in parts.")
    if path.endswith("/"):
        raise Refused(f"{shown(path)} names a folder, not a file.")
    if room is not None:
        with root.find(path) as place:
            room.check(root, place, len(raw))
    with root.find(path, make_folders=True) as place:
        if place.name is None:
            raise Refused(f"{shown(path)} is a folder.")
        old = _there(place)
        put_file(place.folder, place.name, raw, like=old)
        what = "Wrote" if old is None else "Replaced"
        return f"{what} {shown(place.path)} ({_size(len(raw))})."


def edit(
    root: Root, path: str, old: str, new: str, every: bool, *, room: Room | None = None
) -> str:
    """Put `new` where `old` is: once, or everywhere."""
    if not old:
        raise Refused("`old` is empty: give the text to replace, or use write_file.")
    if old == new:
        raise Refused("`old` and `new` are the same: nothing would change.")
    with root.find(path) as place:
        if place.missing:
            raise Refused(f"There is no {shown(path)} in the workspace.")
        if place.name is None:
            raise Refused(f"{shown(path)} is a folder.")
        content, status = _whole(place.name, place.folder, path)
        wanted, instead = _with_its_line_ends(content, _bytes(old), _bytes(new))
        lines = _lines_of(content, wanted)
        if not lines:
            raise Refused(f"`old` is not in {shown(path)}{_near(content, wanted)}.")
        if len(lines) > 1 and not every:
            raise Refused(
                f"`old` is in {shown(path)} {len(lines)} times ({_named(lines)}): give more of "
                f"the text around it, or all=true."
            )
        size = len(content) + len(lines) * (len(instead) - len(wanted))
        if size > _LONGEST_EDITED:
            raise Refused(f"{shown(path)} would become longer than {_LONGEST_EDITED} bytes.")
        if room is not None:
            room.check(root, place, size)
        put_file(place.folder, place.name, content.replace(wanted, instead), like=status)
        return f"Edited {shown(place.path)} ({_named(lines)})."


def put_file(folder: int, name: str, content: bytes, *, like: os.stat_result | None) -> None:
    """Put a whole file in the place of what has this name, with the rights of the one before."""
    mode = 0o666 if like is None else 0o600
    draft = f".parley-{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(draft, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if like is not None:
                with suppress(OSError):  # in a sandbox other people have no number
                    os.fchown(handle, like.st_uid, like.st_gid)
                os.fchmod(handle, stat.S_IMODE(like.st_mode) & 0o777)
            os.fsync(handle)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def _there(place: Place) -> os.stat_result | None:
    if place.missing or place.name is None:
        return None
    status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{shown(place.path)} is not an ordinary file.")
    return status


def _whole(name: str, folder: int, path: str) -> tuple[bytes, os.stat_result]:
    with os.fdopen(open_regular(name, folder), "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(_LONGEST_EDITED + 1)
    if len(content) > _LONGEST_EDITED:
        raise Refused(f"{shown(path)} is longer than {_LONGEST_EDITED} bytes: too long to edit.")
    if is_binary(content):
        raise Refused(f"{shown(path)} is not a text file.")
    return content, status


def _with_its_line_ends(content: bytes, old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """read_file shows no `\\r`: where lines end with one, the texts are meant so too."""
    if old in content or b"\r\n" not in content or b"\r" in old:
        return old, new
    return _as_lines_of_windows(old), _as_lines_of_windows(new)


def _as_lines_of_windows(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _lines_of(content: bytes, wanted: bytes) -> list[int]:
    """The line of each place where the text begins."""
    lines, line, passed = [], 1, 0
    for at in _places(content, wanted):
        line += content.count(b"\n", passed, at)
        passed = at
        lines.append(line)
    return lines


def _places(content: bytes, wanted: bytes) -> Iterator[int]:
    at = content.find(wanted)
    while at >= 0:
        yield at
        at = content.find(wanted, at + len(wanted))


def _near(content: bytes, wanted: bytes) -> str:
    """Where a line of the text is, when the text as a whole is not."""
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), b"")
    lines = _lines_of(content, first) if first else []
    if not lines:
        return "; read the file again"
    return f" as it stands; its first line is there ({_named(lines)}), so compare what follows"


def _named(lines: list[int]) -> str:
    lines = list(dict.fromkeys(lines))
    if len(lines) == 1:
        return f"line {lines[0]}"
    more = ", …" if len(lines) > _LINES_NAMED else ""
    return f"lines {', '.join(map(str, lines[:_LINES_NAMED]))}{more}"


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused("The text holds half a character, which no file can.") from None


def _size(count: int) -> str:
    return f"{count} {'byte' if count == 1 else 'bytes'}"
