"""The seeds from which an account's cross-signing keys grow, kept in the profile's home."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from parley.config.files import make_private_directory, read_text, replace_text
from parley.surfaces.matrix.signing import from_base64, public_key, sign, to_base64

__all__ = ["USAGES", "Seeds", "Usage", "new_seeds", "read_seeds", "write_seeds"]

Usage: TypeAlias = Literal["master", "self_signing", "user_signing"]

USAGES: Final[tuple[Usage, ...]] = ("master", "self_signing", "user_signing")
_FILE: Final = "cross_signing.json"
_LENGTH: Final = 32


@dataclass(frozen=True, slots=True)
class Seeds:
    """Of one user. `stored`: they are in the account's secret storage as well."""

    user_id: str
    master: bytes = field(repr=False)
    self_signing: bytes = field(repr=False)
    user_signing: bytes = field(repr=False)
    stored: bool = False

    def of(self, usage: Usage) -> bytes:
        seed: bytes = getattr(self, usage)
        return seed

    def public(self, usage: Usage) -> str:
        return public_key(self.of(usage))

    def published(self, sign_by_device: Callable[[Mapping[str, Any]], tuple[str, str]]) -> Any:
        """The public keys as they are uploaded: signed by the master key, and that by the device.

        `sign_by_device` tells the name of the device's key, and its signature.
        """
        objects: dict[str, Any] = {}
        for usage in USAGES:
            key = self.public(usage)
            made = {"user_id": self.user_id, "usage": [usage], "keys": {f"ed25519:{key}": key}}
            if usage == "master":
                name, signature = sign_by_device(made)
            else:
                name, signature = f"ed25519:{self.public('master')}", sign(made, self.master)
            objects[f"{usage}_key"] = {**made, "signatures": {self.user_id: {name: signature}}}
        return objects


def new_seeds(user_id: str) -> Seeds:
    master, self_signing, user_signing = (secrets.token_bytes(_LENGTH) for _ in USAGES)
    return Seeds(user_id, master, self_signing, user_signing)


def read_seeds(home: Path) -> Seeds | None:
    """Those that are kept; None where there are none that can be used."""
    text = read_text(home / _FILE)
    try:
        record = json.loads(text or "null")
        held = {usage: from_base64(record[usage]) for usage in USAGES}
        if any(len(seed) != _LENGTH for seed in held.values()):
            return None
        return Seeds(
            str(record["user_id"]),
            held["master"],
            held["self_signing"],
            held["user_signing"],
            stored=record["stored"] is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def write_seeds(home: Path, seeds: Seeds) -> None:
    make_private_directory(home)
    record: dict[str, object] = {"user_id": seeds.user_id, "stored": seeds.stored}
    record |= {usage: to_base64(seeds.of(usage)) for usage in USAGES}
    replace_text(home / _FILE, json.dumps(record, indent=2) + "\n", private=True)
