"""The scope: whose work is being done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from parley.profiles.profile import Profile
from parley.protocol import ParleyError

__all__ = ["OutsideScope", "enter_scope", "profile_scope", "require_scope", "scoped_profile"]


class OutsideScope(ParleyError):
    """Something of a profile was asked for while another's work, or nobody's, was being done."""


_scope: ContextVar[Profile | None] = ContextVar("parley_profile", default=None)


@contextmanager
def profile_scope(profile: Profile) -> Iterator[None]:
    """What is done inside, tasks begun there included, is this profile's work.

    Nothing is found through it: a profile is always handed on. It is the second lock, which
    refuses a secret to the wrong one, and it names the profile in the log.
    """
    token = _scope.set(profile)
    try:
        yield
    finally:
        _scope.reset(token)


def enter_scope(profile: Profile) -> None:
    """From here on all of this task is the profile's work, as in a command that has but one."""
    _scope.set(profile)


def scoped_profile() -> Profile | None:
    """Whose work is being done; None outside of any scope."""
    return _scope.get()


def require_scope(profile: Profile) -> None:
    """Raise unless this profile's work is being done."""
    scope = _scope.get()
    if scope != profile:
        doing = f"in the scope of `{scope.name}`" if scope else "outside of any profile's scope"
        raise OutsideScope(f"What belongs to the profile `{profile.name}` was asked for {doing}.")
