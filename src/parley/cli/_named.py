"""Which person or session is meant by what was typed on the command line."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from parley.cli._plain import one_line
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.storage.contract import SessionRecord, Store
    from parley.storage.people import PeopleStore, User

__all__ = ["MOST_PEOPLE", "person_named", "session_named"]

MOST_PEOPLE: Final = 10_000
_MOST_NAMED: Final = 5
_ON_MATRIX: Final = re.compile(r"matrix:(@[^:\s]+:\S+)")


async def person_named(store: PeopleStore, wanted: str, *, may_be_new: bool = False) -> User:
    """The one person who is called so; with `may_be_new`, also one who never spoke."""
    from parley.storage.people import User

    users = await store.users(limit=MOST_PEOPLE)
    # People name themselves: a name that looks like somebody's id is not asked for.
    by_name = () if ":" in wanted else (_name,)
    for name_of in (_person, _id, *by_name):
        found = [user for user in users if name_of(user) == wanted.strip()]
        if len(found) == 1:
            return found[0]
        if found:
            several = ", ".join(one_line(user.person, longest=60) for user in found[:_MOST_NAMED])
            raise ParleyError(
                f"Several people are called so: {several}; give the whole `platform:id`."
            )
    new = _ON_MATRIX.fullmatch(wanted.strip())
    if may_be_new and new is not None:
        return User(new[0], "matrix", new[1], None, time.time())
    said = one_line(wanted, longest=60)
    raise ParleyError(f"Nobody called {said} has spoken here; `parley people list` shows who has.")


async def session_named(store: Store, prefix: str) -> SessionRecord:
    """The one session whose id begins so."""
    wanted = prefix.strip().lower()
    if not wanted:
        raise ParleyError("Give the id of a session; `parley sessions list` shows them.")
    found = await store.find_sessions(wanted)
    exact = [record for record in found if record.id == wanted]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    said = one_line(prefix, longest=40)
    if not found:
        raise ParleyError(
            f"There is no session that begins with {said}; `parley sessions list` shows them."
        )
    several = ", ".join(record.id for record in found[:_MOST_NAMED])
    more = ", and others" if len(found) > _MOST_NAMED else ""
    raise ParleyError(f"Several sessions begin with {said}: {several}{more}; give more of the id.")


def _person(user: User) -> str:
    return user.person


def _id(user: User) -> str:
    return user.external_id


def _name(user: User) -> str | None:
    return user.display_name
