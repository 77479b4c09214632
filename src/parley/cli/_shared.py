"""What every verb needs: the profile it works on, and how it speaks to people and scripts."""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from typing import NoReturn

from parley.profiles import Profile, active_profile, enter_scope, find_profile

__all__ = [
    "asked_profile",
    "choose_profile",
    "chosen_profile",
    "current_profile",
    "fail",
    "print_json",
]

_asked: ContextVar[str | None] = ContextVar("parley_asked_profile", default=None)


def choose_profile(name: str) -> None:
    """What `--profile` said."""
    _asked.set(name)


def asked_profile() -> str | None:
    """The name given by `--profile`, if it was."""
    return _asked.get()


def current_profile() -> Profile:
    """The profile this command works on; from here on its secrets may be read."""
    profile = chosen_profile()
    enter_scope(profile)
    return profile


def chosen_profile() -> Profile:
    """The profile this command works on, without its scope: for what serves others as well."""
    asked = _asked.get()
    return active_profile() if asked is None else find_profile(asked)


def fail(sentence: str, *, code: int = 1) -> NoReturn:
    """Say what is wrong and what to do, and end."""
    sys.stderr.write(f"parley: {sentence}\n")
    raise SystemExit(code)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
