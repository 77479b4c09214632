"""Surfaces as the gateway runs them: whose each is, and what keeps it from serving."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from parley.gateway.delivery import SurfacePort
from parley.gateway.intake import FrontDoor
from parley.gateway.status import SurfaceStatus
from parley.profiles import Profile

__all__ = ["Hosted", "HostedSurface", "refuse_shared_credentials"]


class HostedSurface(SurfacePort, Protocol):
    """A surface as the gateway runs it."""

    @property
    def account(self) -> str | None:
        """Which of its platform's accounts it serves; None where its profile has but one."""

    @property
    def credential(self) -> str | None:
        """What proves the account to its platform. Compared, never shown."""

    @property
    def vouches(self) -> bool:
        """Whether the surface itself makes sure that every sender may speak."""

    @property
    def fault(self) -> str | None:
        """What is wrong with it just now, though it was started."""

    @property
    def note(self) -> str | None:
        """What somebody should see to, though it serves."""

    @property
    def where(self) -> str:
        """In a few words, where people find it."""

    async def start(self, door: FrontDoor) -> None: ...

    async def stop(self) -> None: ...


@dataclass(slots=True)
class Hosted:
    """One surface and the profile that brought it."""

    surface: HostedSurface
    owner: Profile
    fault: str | None = None
    open: bool = False

    @property
    def status(self) -> SurfaceStatus:
        surface = self.surface
        fault = self.fault or (surface.fault if self.open else None)
        note = surface.note if self.open else None
        return SurfaceStatus(surface.platform, surface.where, fault, surface.account, note)


def refuse_shared_credentials(hosted: Iterable[Hosted]) -> None:
    """Mark the surfaces of different profiles that use the same token: it is nobody's to guess
    whose messages would be whose. One that serves already goes on.
    """
    held = [one for one in hosted if one.surface.credential]
    for one in held:
        others = [other for other in held if other is not one and _same(one, other)]
        if others and not one.open:
            names = sorted({one.owner.name, *(other.owner.name for other in others)})
            listed = " and ".join(f"`{name}`" for name in names)
            one.fault = (
                f"The profiles {listed} have the same token for {one.surface.platform}; "
                "give each its own."
            )


def _same(one: Hosted, other: Hosted) -> bool:
    if one.surface.platform != other.surface.platform or one.owner == other.owner:
        return False
    ours, theirs = one.surface.credential or "", other.surface.credential or ""
    return hmac.compare_digest(ours.strip().encode(), theirs.strip().encode())
