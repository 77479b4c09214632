"""Who may speak on Matrix: owners, and whoever the settings let in. Fails closed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["Allowed", "is_user_id", "server_of"]

_OWNER: Final = "matrix:"
_LONGEST: Final = 255
_SERVER: Final = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,230})(?::[0-9]{1,5})?"
_USER_ID: Final = re.compile(rf"@([^:\s\x00-\x1f\x7f-\x9f]+):({_SERVER})")
_WHOLE_SERVER: Final = re.compile(rf"\*:({_SERVER})")


def is_user_id(text: str) -> bool:
    """Whether it is a whole Matrix id, such as `@ann:example.org`."""
    return len(text.encode("utf-8", "replace")) <= _LONGEST and bool(_USER_ID.fullmatch(text))


def server_of(user_id: str) -> str:
    """The server that someone is on, with its port if it has one; empty when it is no id."""
    found = _USER_ID.fullmatch(user_id)
    return found[2] if found else ""


class Allowed:
    """`allow` holds `@user:server`, `*:server` or `*`; `owners` are `platform:user id`.

    Matrix tells capital letters from small ones, in servers' names too: ids are compared as they
    stand. What is none of these forms lets nobody in, and is listed in `misspelt`.
    """

    def __init__(self, allow: Sequence[str], owners: Sequence[str]) -> None:
        owned = (name.removeprefix(_OWNER) for name in owners if name.startswith(_OWNER))
        self._people = {name for name in owned if is_user_id(name)}
        self._servers: set[str] = set()
        self._everyone = False
        misspelt: list[str] = []
        for pattern in allow:
            if pattern == "*":
                self._everyone = True
            elif whole := _WHOLE_SERVER.fullmatch(pattern):
                self._servers.add(whole[1])
            elif is_user_id(pattern) and "*" not in pattern:
                self._people.add(pattern)
            else:
                misspelt.append(pattern)
        self.misspelt = tuple(misspelt)

    def may_speak(self, user_id: str) -> bool:
        if not is_user_id(user_id):
            return False
        return self._everyone or user_id in self._people or server_of(user_id) in self._servers
