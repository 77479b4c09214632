"""What a gateway tells of itself: to `gateway status`, `/readyz` and the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from parley.gateway.tally import Tally

__all__ = ["DeliveryNote", "GatewayStatus", "Introduction", "ProfileStatus", "SurfaceStatus"]


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who answers a person, for the surface that greets them."""

    version: str
    pid: int
    profile: str
    answered_by: str


@dataclass(frozen=True, slots=True)
class SurfaceStatus:
    """One surface: `where` it serves, or the `fault` that keeps it from serving.

    A `note` is what somebody should see to, though it serves.
    """

    platform: str
    where: str
    fault: str | None = None
    account: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryNote:
    """A reply that nobody can be sure of."""

    id: int
    lane: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class ProfileStatus:
    """One profile: what is under way, or the `fault` that keeps it from being served."""

    name: str
    home: str
    answered_by: str = ""
    fault: str | None = None
    faults: tuple[str, ...] = ()
    running: int = 0
    queued: int = 0
    undelivered: int = 0
    surfaces: tuple[SurfaceStatus, ...] = ()
    doubtful: tuple[DeliveryNote, ...] = ()
    notes: tuple[str, ...] = ()
    """What somebody should see to, though it serves."""
    starting: tuple[str, ...] = ()
    """What is still coming; turns that need it wait for it."""
    tally: Tally = field(default_factory=Tally)

    @property
    def sound(self) -> bool:
        whole = self.fault is None and not self.faults
        return whole and all(surface.fault is None for surface in self.surfaces)

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong, each in a sentence."""
        own = (self.fault,) if self.fault else ()
        places = (f"{s.platform}: {s.fault}" for s in self.surfaces if s.fault)
        return (*own, *self.faults, *places)


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The whole process; `surfaces` are those of the house, which belong to no profile."""

    version: str
    pid: int
    home: str
    state: str
    uptime_seconds: float
    multiplex: bool
    profiles: tuple[ProfileStatus, ...]
    surfaces: tuple[SurfaceStatus, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def running(self) -> int:
        return sum(profile.running for profile in self.profiles)

    @property
    def queued(self) -> int:
        return sum(profile.queued for profile in self.profiles)

    @property
    def undelivered(self) -> int:
        return sum(profile.undelivered for profile in self.profiles)

    @property
    def ready(self) -> bool:
        """Whether the gateway serves. One profile's fault is not the others'."""
        return (
            self.state == "serving"
            and all(surface.fault is None for surface in self.surfaces)
            and any(profile.sound for profile in self.profiles)
        )

    @property
    def degraded(self) -> bool:
        return not all(profile.sound for profile in self.profiles)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "ready": self.ready,
            "degraded": self.degraded,
            "running": self.running,
            "queued": self.queued,
            "undelivered": self.undelivered,
        }
