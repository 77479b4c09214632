"""How much may be added to files: the disk quota, as far as a request needs to know it."""

from __future__ import annotations

import os
from typing import NamedTuple

from .beneath import Place, Refused, Root

__all__ = ["Room"]

_BLOCK = 4096


class Room(NamedTuple):
    """Bytes and files that are left, for all and for the conversation's owner, and what is said."""

    left: int
    full: str
    left_for_owner: int
    full_for_owner: str
    files_left: int
    too_many_files: str

    def check(self, root: Root, place: Place, size: int) -> None:
        """Refuse a file of this size there, unless it grows by no more than is left."""
        grows = -(-size // _BLOCK) * _BLOCK
        if place.missing:
            if self.files_left < len(place.missing):
                raise Refused(self.too_many_files)
        elif place.name is not None:
            status = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
            grows -= status.st_blocks * 512
        if grows <= 0:
            return
        if grows > self.left:
            raise Refused(self.full)
        if root.is_own([], next(iter(place.names), "")) and grows > self.left_for_owner:
            raise Refused(self.full_for_owner)
