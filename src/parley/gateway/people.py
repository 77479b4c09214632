"""Who has spoken, what they set for themselves, and what they may use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from parley import audit
from parley.agent.person import Plan, Soul, UserSettings
from parley.config.settings import Settings
from parley.gateway.owners import Owners
from parley.protocol import SessionSource, person_of
from parley.sessions.key import parse_session_key
from parley.storage.contract import Store
from parley.storage.people import User

__all__ = ["People", "settings_in"]

_KNOWN: Final = 4_096
_SECONDS: Final = 5.0
_WITHOUT_PLAN: Final = frozenset({"terminal", "api", "direct", "task"})

K = TypeVar("K")
V = TypeVar("V")


class People:
    """The people of one profile. What was read of them a moment ago is not read again."""

    def __init__(self, store: Store, settings: Settings, owners: Owners) -> None:
        self._store = store
        self._owners = owners
        self._plan = settings.plan
        self._safety = settings.agent.safety
        self._users: dict[tuple[str, str], User] = {}
        self._settings: dict[str, tuple[float, UserSettings]] = {}
        self._changes = 0

    async def get_or_create_user(
        self, external_id: str, platform: str, display_name: str | None = None
    ) -> User:
        """Stable for each platform and id; `is_new` the first time, and never again."""
        known = self._users.get((platform, external_id))
        if known is not None and display_name in (None, known.display_name):
            return known
        found = await self._store.get_or_create_user(external_id, platform, display_name)
        as_known = User(
            found.person,
            found.platform,
            found.external_id,
            found.display_name,
            found.created_at,
        )
        _keep(self._users, (platform, external_id), as_known)
        return found

    async def settings_of(self, person: str | SessionSource) -> UserSettings:
        """What they have set; a change from outside is seen within seconds, our own at once."""
        name = person if isinstance(person, str) else person_of(person)
        known = self._settings.get(name)
        if known is not None and time.monotonic() < known[0]:
            return _copied(known[1])
        before = self._changes
        rows = await self._store.person_settings(name)
        found = UserSettings.read(rows, safety=self._safety, plan=self._plan_in(rows, name))
        if before == self._changes:  # else it may be what was so before a change
            _keep(self._settings, name, (time.monotonic() + _SECONDS, found))
        return _copied(found)

    async def put(
        self, person: str, name: str, value: str | None, *, by: str | None = None
    ) -> None:
        """Set one thing; None is its default again. `by`: who did, if not the person themselves."""
        await self._store.put_person_setting(person, name, value)
        told = None if name.startswith("soul.") else value
        who = person if by is None else by
        audit.record("person.changed", who=who, person=person, name=name, value=told)
        self._changes += 1
        self._settings.pop(person, None)

    async def plan_of(self, person: str | SessionSource) -> Plan | None:
        """What they may use; None for those who have no plan, such as owners."""
        name = person if isinstance(person, str) else person_of(person)
        return (await self.settings_of(name)).plan if self._is_guest(name) else None

    def _plan_in(self, rows: Mapping[str, str], person: str) -> Plan | None:
        tokens = str(rows.get("plan.tokens", self._plan.tokens))  # a number, or `none`
        if not tokens.isdecimal() or not self._is_guest(person):
            return None
        return Plan(rows.get("plan.name", self._plan.name), int(tokens))

    def _is_guest(self, person: str) -> bool:
        platform = person.partition(":")[0]
        return platform not in _WITHOUT_PLAN and not self._owners.is_owner(person)


def settings_in(lane: str, source: SessionSource, theirs: UserSettings) -> UserSettings:
    """What a person has set, as it holds there: their wishes are not for all who share a lane."""
    is_shared = source.chat_type != "dm" and parse_session_key(lane).participant is None
    return replace(theirs, soul=Soul()) if is_shared else theirs


def _copied(found: UserSettings) -> UserSettings:
    """Whoever changes what they were given changes nobody else's."""
    return replace(
        found,
        skills=dict(found.skills),
        connectors=dict(found.connectors),
        safety=dict(found.safety),
    )


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """The newest few thousand: what was kept first goes first."""
    known.pop(key, None)
    if len(known) >= _KNOWN:
        del known[next(iter(known))]
    known[key] = value
