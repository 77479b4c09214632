"""Process hardening: what Parley writes, and what it holds in memory, is for its owner alone."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

__all__ = ["harden_process"]

_PR_SET_DUMPABLE: Final = 4


def harden_process() -> None:
    """For every command, before it reads a secret. Children inherit all but the last.

    New files are private. There are no core files, which would hold keys. Other processes of the
    same user cannot read the memory or the environment of this one; root still can.
    """
    os.umask(0o077)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
