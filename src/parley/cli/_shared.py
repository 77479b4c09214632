"""What every verb needs: the profile it works on, and how it speaks to people and scripts."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

from parley.profiles import Profile, default_profile

__all__ = ["current_profile", "fail", "print_json"]


def current_profile() -> Profile:
    """The profile this command works on."""
    return default_profile()


def fail(sentence: str, *, code: int = 1) -> NoReturn:
    """Say what is wrong and what to do, and end."""
    sys.stderr.write(f"parley: {sentence}\n")
    raise SystemExit(code)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
