"""Whether the kernel can keep a command from Unix sockets that have a name and no path.

Such a socket belongs to a network, not to a folder: a command that may use the network of this
machine would reach those of other programs, the desktop's among them.
"""

from __future__ import annotations

import ctypes
import functools
import sys

__all__ = ["can_scope_sockets"]

_CREATE_RULESET = 444  # the same on every machine
_VERSION = 1
_FIRST_WITH_SCOPES = 6  # Linux 6.12


@functools.cache
def can_scope_sockets() -> bool:
    """By Landlock; the keeper of a command applies it."""
    if sys.platform != "linux":
        return False
    found: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return found >= _FIRST_WITH_SCOPES
