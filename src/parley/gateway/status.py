"""What a gateway tells of itself: to `gateway status`, `/readyz` and the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DeliveryNote", "GatewayStatus", "SurfaceStatus"]


@dataclass(frozen=True, slots=True)
class SurfaceStatus:
    """One surface: `where` it serves, or the `fault` that keeps it from serving."""

    platform: str
    where: str
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryNote:
    """A reply that nobody can be sure of."""

    id: int
    lane: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    version: str
    pid: int
    profile: str
    home: str
    answered_by: str
    uptime_seconds: float
    state: str
    running: int
    queued: int
    undelivered: int
    surfaces: tuple[SurfaceStatus, ...]
    faults: tuple[str, ...] = ()
    doubtful: tuple[DeliveryNote, ...] = ()

    @property
    def ready(self) -> bool:
        return (
            self.state == "serving"
            and not self.faults
            and all(s.fault is None for s in self.surfaces)
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ready": self.ready}
