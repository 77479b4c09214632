"""Limits that a child process sets for itself before it parses what others made."""

from __future__ import annotations

import contextlib
import signal

__all__ = ["TooSlow", "end_time_limit", "limit_memory_and_time"]


class TooSlow(BaseException):
    """The time is up. Not an `Exception`: parsers catch those and go on."""


def limit_memory_and_time(memory: int, seconds: float) -> None:
    """By the system's own means, where it has them. `TooSlow` is raised after `seconds`."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds * 4) + 10,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def stop(number: int, frame: object) -> None:
        raise TooSlow

    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def end_time_limit() -> None:
    """The rest is short and may take its time."""
    if hasattr(signal, "SIGALRM"):
        signal.setitimer(signal.ITIMER_REAL, 0)
