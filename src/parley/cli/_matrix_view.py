"""How a profile stands on Matrix, in words and as a record. Pure but for the files it looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parley.cli._matrix_standing import Standing
from parley.config.errors import ConfigError, shown
from parley.config.load import load_settings
from parley.profiles import Profile
from parley.surfaces.matrix.account import Account, matrix_home
from parley.surfaces.matrix.secret_storage import kept_recovery_key, recovery_file

__all__ = ["as_lines", "as_record"]


def as_record(profile: Profile, account: Account, standing: Standing) -> dict[str, Any]:
    """What `--json` prints; no secret is in it."""
    home = matrix_home(profile)
    kept = kept_recovery_key(home) is not None
    identity = standing.identity
    return {
        "logged_in": True,
        "homeserver": account.homeserver,
        "user_id": account.user_id,
        "device_id": account.device_id,
        "enabled": _is_enabled(profile),
        "trouble": standing.trouble,
        "token_valid": None
        if standing.identity is None and not standing.token_refused
        else not standing.token_refused,
        "cross_signed": None if identity is None else identity.is_cross_signed,
        "recovery_key": str(recovery_file(home)) if kept else None,
        "encryption_keys": "lost"
        if standing.keys_lost
        else str(home / "keys")
        if any(home.glob("keys/*.db"))
        else None,
    }


def as_lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"account     {record['user_id']}"
    yield f"device      {record['device_id']}"
    trouble = record["trouble"]
    how = "answers and knows this device"
    lost = record["encryption_keys"] == "lost"
    if trouble is not None and not lost:
        how = trouble.removeprefix(f"{record['homeserver']} ")
    yield f"homeserver  {record['homeserver']} · {how}"
    if trouble is not None and record["token_valid"] is False:
        yield "            log in again with: parley matrix login"
    signed = {True: "yes", False: "no: run parley matrix verify", None: "not known"}
    yield f"signed      {signed[record['cross_signed']]}"
    kept = record["recovery_key"]
    yield f"recovery    {_home_of(kept) if kept else 'its key is not kept here'}"
    keys = record["encryption_keys"]
    yield f"keys        {trouble if lost else _home_of(keys) if keys else 'none yet'}"
    if not record["enabled"]:
        yield "served      no: parley config set surfaces.matrix.enabled true"


def _home_of(path: str) -> str:
    from pathlib import Path

    return shown(Path(path))


def _is_enabled(profile: Profile) -> bool:
    try:
        return load_settings(profile).surfaces.matrix.enabled
    except ConfigError:
        return False
