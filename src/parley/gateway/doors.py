"""The door of one surface: what comes in by it is bound to its account, and to one profile."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from parley.gateway.access import Refused, check_access
from parley.gateway.requests import ProfileDoor
from parley.gateway.routing import NobodyThere
from parley.gateway.status import GatewayStatus, Introduction, ProfileStatus
from parley.profiles import Profile, profile_scope
from parley.protocol import InboundMessage, SessionSource
from parley.sessions.key import names_a_conversation
from parley.storage.contract import Receipt

if TYPE_CHECKING:
    from parley.gateway.app import Gateway, HostedSurface

__all__ = ["Door", "account_for"]

_log = logging.getLogger("parley.doors")

_LONGEST_ID = 1000


def account_for(surface: HostedSurface, owner: Profile, profile: Profile) -> str | None:
    """What `profile` calls this account: one of its own, or one that `owner` shares with it."""
    # A shared one has its owner's name before it: the profile may have one that is called the same.
    return surface.account if profile == owner else f"{owner.name}:{surface.account or ''}"


def _check_names(message: InboundMessage) -> None:
    """Raise unless it says where it came from, in ids of a length that ids have."""
    source = message.source
    if not names_a_conversation(source):
        raise Refused("A message that names neither a chat nor a sender cannot be answered.")
    ids = (source.chat_id, source.thread_id, source.user_id, source.user_id_alt, source.guild_id)
    if any(len(each or "") > _LONGEST_ID for each in (*ids, message.event_id)):
        raise Refused(f"An id may have {_LONGEST_ID} characters at most.")


def _without_words(told: ProfileStatus) -> ProfileStatus:
    return replace(told, doubtful=tuple(replace(note, text="") for note in told.doubtful))


class Door:
    """A surface's way in. It cannot speak for another account than its own."""

    def __init__(self, gateway: Gateway, surface: HostedSurface, owner: Profile) -> None:
        self._gateway = gateway
        self._surface = surface
        self._owner = owner

    async def admit(self, message: InboundMessage) -> Receipt:
        profile, source = self._bind(self._checked(message).source)
        serving = self._gateway.serving(profile)
        with profile_scope(profile):
            return await serving.admit(replace(message, source=source))

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        self._gateway.check_open()
        ours = self._gateway.serving(self._owner)
        receipts = [Receipt("refused")] * len(messages)
        by_profile: dict[Profile, list[int]] = {self._owner: []}
        bound: dict[int, InboundMessage] = {}
        for index, message in enumerate(messages):
            try:
                profile, source = self._bind(self._checked(message).source)
                self._gateway.serving(profile)
            except (Refused, NobodyThere) as error:
                _log.warning("message_refused", extra={"why": str(error)})
                continue
            bound[index] = replace(message, source=source)
            by_profile.setdefault(profile, []).append(index)
        # The others first: should we end in between, what they have is known when it comes again.
        for profile in sorted(by_profile, key=lambda each: each == self._owner):
            indexes = by_profile[profile]
            serving = ours if profile == self._owner else self._gateway.serving(profile)
            moved = marks if profile == self._owner else {}
            with profile_scope(profile):
                taken = await serving.admit_all([bound[index] for index in indexes], moved)
            for index, receipt in zip(indexes, taken, strict=True):
                receipts[index] = receipt
        return receipts

    async def take_back(self, source: SessionSource, event_id: str) -> bool:
        profile, source = self._bind(source)
        serving = self._gateway.serving(profile)
        with profile_scope(profile):
            lane, name = serving.intake.named(InboundMessage(source, "", event_id))
            return await serving.intake.withdraw(lane, name)

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        message = self._checked(InboundMessage(source, "", event_id))
        profile, source = self._bind(message.source)
        serving = self._gateway.serving(profile)
        with profile_scope(profile):
            await serving.welcome(source, event_id)

    async def mark(self, name: str) -> str | None:
        return await self._gateway.serving(self._owner).store.mark(name)

    async def marks(self, prefix: str) -> dict[str, str]:
        return await self._gateway.serving(self._owner).store.marks(prefix)

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        await self._gateway.serving(self._owner).store.put_marks(marks)

    async def back(self, source: SessionSource) -> None:
        """Whoever answered there may have something left to say, whoever answers now."""
        for serving in self._gateway.servings_by(self._owner):
            _, bound = self._bind(source, serving.profile)
            with profile_scope(serving.profile):
                await serving.back(bound)

    def introduce(self, source: SessionSource) -> Introduction:
        profile, _ = self._bind(source)
        return self._gateway.introduction(profile)

    async def status(self) -> GatewayStatus:
        """Of all profiles; what one of them said is for itself alone."""
        status = await self._gateway.status()
        profiles = (p if p.name == self._owner.name else _without_words(p) for p in status.profiles)
        return replace(status, profiles=tuple(profiles))

    def profiles(self) -> tuple[str, ...]:
        return tuple(p.name for p in self._gateway.profiles_by(self._owner))

    def to(self, profile: str) -> ProfileDoor:
        for found in self._gateway.profiles_by(self._owner):
            if found.name == profile:
                break
        else:
            raise NobodyThere(f"There is no profile `{profile}` here.")

        def bind(message: InboundMessage) -> InboundMessage:
            _, source = self._bind(self._checked(message).source, found)
            return replace(message, source=source)

        return ProfileDoor(self._gateway.serving(found), bind)

    def _checked(self, message: InboundMessage) -> InboundMessage:
        """Raise unless it may come in."""
        self._gateway.check_open()
        check_access(message.source, vouched=self._surface.vouches)
        _check_names(message)
        return message

    def _bind(
        self, source: SessionSource, profile: Profile | None = None
    ) -> tuple[Profile, SessionSource]:
        """The profile that answers, and the source with its account and that profile in it."""
        surface, owner = self._surface, self._owner
        source = replace(source, platform=surface.platform, account=surface.account or owner.name)
        profile = profile or self._gateway.router.choose(owner, source)
        account = account_for(surface, owner, profile)
        return profile, replace(source, account=account, profile=profile.name)
