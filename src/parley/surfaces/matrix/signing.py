"""Signatures of Matrix: ed25519 over canonical JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["canonical", "from_base64", "is_signed", "public_key", "sign", "to_base64"]


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one way to write an object that signatures are made over."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode()


def to_base64(data: bytes) -> str:
    """Base64 as Matrix writes it: without padding."""
    return base64.b64encode(data).decode().rstrip("=")


def from_base64(text: str) -> bytes:
    """With padding or without; a `ValueError` for anything else."""
    try:
        bare = text.rstrip("=").encode("ascii")
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("not base64") from error


def public_key(seed: bytes) -> str:
    """The public half of the key that grows from a seed of 32 bytes."""
    from Crypto.PublicKey import ECC

    raw: bytes = ECC.construct(curve="Ed25519", seed=seed).public_key().export_key(format="raw")
    return to_base64(raw)


def sign(value: Mapping[str, Any], seed: bytes) -> str:
    """The signature of an object; what is signed of it is all but its signatures."""
    from Crypto.PublicKey import ECC
    from Crypto.Signature import eddsa

    key = ECC.construct(curve="Ed25519", seed=seed)
    return to_base64(eddsa.new(key, "rfc8032").sign(_signed_part(value)))


def is_signed(value: Mapping[str, Any], user_id: str, key: str, *, named: str = "") -> bool:
    """Whether `user_id` signed it with this public key; a device's key is `named` by its id."""
    from Crypto.Signature import eddsa

    try:
        signature = from_base64(value["signatures"][user_id][f"ed25519:{named or key}"])
        public = eddsa.import_public_key(from_base64(key))
        eddsa.new(public, "rfc8032").verify(_signed_part(value), signature)
    except (KeyError, TypeError, AttributeError, ValueError):
        return False
    return True


def _signed_part(value: Mapping[str, Any]) -> bytes:
    left_out = ("signatures", "unsigned")
    return canonical({name: part for name, part in value.items() if name not in left_out})
