"""What a homeserver tells of our own keys: the device's, and those that sign it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.surfaces.matrix.signing import is_signed

__all__ = ["Identity", "key_of", "read_identity"]

_Keys = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Identity:
    """Each is None where the homeserver has none."""

    user_id: str
    device_id: str
    device: _Keys | None = field(default=None, repr=False)
    master: _Keys | None = field(default=None, repr=False)
    self_signing: _Keys | None = field(default=None, repr=False)
    user_signing: _Keys | None = field(default=None, repr=False)

    @property
    def is_cross_signed(self) -> bool:
        """Whether whoever trusts the master key trusts this device."""
        master, signing = key_of(self.master), key_of(self.self_signing)
        return (
            master is not None
            and signing is not None
            and self.self_signing is not None
            and self.device is not None
            and is_signed(self.self_signing, self.user_id, master)
            and is_signed(self.device, self.user_id, signing)
        )

    def device_has(self, *, ed25519: str, curve25519: str) -> bool:
        """Whether the device is published with these keys, and by who holds them."""
        if self.device is None:
            return False
        published = self.device.get("keys")
        ours = {f"ed25519:{self.device_id}": ed25519, f"curve25519:{self.device_id}": curve25519}
        return (
            published == ours
            and self.device.get("user_id") == self.user_id
            and self.device.get("device_id") == self.device_id
            and is_signed(self.device, self.user_id, ed25519, named=self.device_id)
        )


def key_of(keys: _Keys | None) -> str | None:
    """The public key in an object of cross-signing, which holds exactly one."""
    held = None if keys is None else keys.get("keys")
    if not isinstance(held, Mapping) or len(held) != 1:
        return None
    [(name, key)] = held.items()
    return key if isinstance(key, str) and name == f"ed25519:{key}" else None


def read_identity(told: _Keys, user_id: str, device_id: str) -> Identity:
    """Read an answer of `/keys/query`."""

    def of(part: str) -> _Keys | None:
        held = told.get(part)
        found = held.get(user_id) if isinstance(held, Mapping) else None
        return found if isinstance(found, Mapping) else None

    devices = of("device_keys") or {}
    device = devices.get(device_id)
    return Identity(
        user_id,
        device_id,
        device if isinstance(device, Mapping) else None,
        of("master_keys"),
        of("self_signing_keys"),
        of("user_signing_keys"),
    )
