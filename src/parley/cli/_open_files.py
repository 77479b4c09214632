"""Files that were open when we were started: no child of ours gets them."""

from __future__ import annotations

import contextlib
import os

__all__ = ["secure_open_files"]

_LISTINGS = ("/proc/self/fd", "/dev/fd")


def secure_open_files() -> None:
    """Mark all but the three standard streams close-on-exec, and give each of those a file.

    A standard stream that is closed would be the number of the next file that is opened, such as
    the database, and children are given the standard streams.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
    for listing in _LISTINGS:
        with contextlib.suppress(OSError):
            for name in os.listdir(listing):  # noqa: PTH208 - every command waits for this
                with contextlib.suppress(OSError):  # the listing itself
                    if int(name) > 2:
                        os.set_inheritable(int(name), False)
            return
