"""What can be wrong with a profile's settings, said in one sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from parley.protocol import ParleyError

__all__ = ["ConfigError", "Fault", "nearest", "shown"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `line` and `column` count from 1."""

    sentence: str
    setting: str = ""
    line: int | None = None
    column: int | None = None


class ConfigError(ParleyError):
    """The settings cannot be used. Its text is the first fault; `faults` holds them all."""

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = tuple(
            Fault(fault) if isinstance(fault, str) else fault for fault in faults
        ) or (Fault("The settings cannot be used."),)
        super().__init__(self.faults[0].sentence)


def shown(path: Path) -> str:
    """A path as a person writes it: with `~` for their home."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is no home
    text = str(path)
    if home not in ("~", "/") and text.startswith(home + "/"):
        return "~" + text[len(home) :]
    return text


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was most likely meant to be, or None when none is close."""
    from difflib import get_close_matches

    found = get_close_matches(name.lower(), list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None
