"""The gateway: whether one runs and how it is, and what would keep one from starting."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import json
import os
import socket
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from parley import __version__
from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground
from parley.cli._plain import one_line
from parley.gateway.home import Holder, holder_of, socket_path
from parley.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_gateway", "set_gateway"]

_START = "parley gateway run"
_TELLS_WITHIN = 1.0
_PORTS_TRIED = 100
_DESCRIPTION_BYTES = 1024 * 1024


async def check_gateway(ground: Ground) -> list[Finding]:
    """How the gateway of this home is; that none runs is worth a note, not a fault."""
    profile = ground.profile
    holder = holder_of(profile)
    status = await _ask_status(profile) if profile.run.is_dir() else None
    if holder is not None:
        return _of_running(profile, holder, status)
    if status is not None:
        pid = status.get("pid")
        what = f"process {pid} serves this home without holding it: a second one could start."
        return [fault("gateway", what, f"kill {pid} && {_START}")]
    left = _left_behind(profile)
    return [
        note("gateway", f"none is running{left}.", _START),
        *await asyncio.to_thread(_check_port, ground),
    ]


def _of_running(
    profile: Profile, holder: Holder, status: Mapping[str, Any] | None
) -> list[Finding]:
    what = "the gateway" if holder.kind == "gateway" else "a chat in a terminal"
    if status is None:
        told = f"{what} (process {holder.pid}) holds this home but does not answer."
        return [fault("gateway", told, f"kill {holder.pid} && {_START}")]
    uptime = status.get("uptime_seconds")
    since = datetime.now(UTC) - timedelta(seconds=uptime if isinstance(uptime, int | float) else 0)
    moment = f"{since.astimezone():%Y-%m-%d %H:%M}"
    surfaces = _surfaces(status, profile)
    serving = [surface for surface in surfaces if not surface.get("fault")]
    names = ", ".join(f"{surface.get('platform')} ({surface.get('where')})" for surface in serving)
    told = f"{what} (process {holder.pid}) runs since {moment} and serves {names or 'nothing'}."
    again = f"kill {holder.pid} && {_START}"
    found = [ok("gateway", told) if serving else fault("gateway", told, again)]
    for surface in surfaces:
        if surface.get("fault"):
            told = f"{surface.get('platform')} is not served: {surface.get('fault')}"
            mend = "parley matrix status" if surface.get("platform") == "matrix" else again
            found.append(fault("gateway", told, mend))
        elif surface.get("note"):
            mend = "parley matrix status" if surface.get("platform") == "matrix" else ""
            found.append(note("gateway", f"{surface.get('platform')}: {surface['note']}", mend))
    if status.get("state") != "serving":
        found.append(note("gateway", f"it is {status.get('state')}."))
    if status.get("version") != __version__:
        told = f"it runs Parley {status.get('version')}, and {__version__} is installed."
        found.append(note("gateway", told, again))
    return found + _others(status, profile)


async def _ask_status(profile: Profile) -> dict[str, object] | None:
    from parley.surfaces.terminal.client import Disconnected, TerminalClient

    try:
        async with asyncio.timeout(_TELLS_WITHIN):
            client = await TerminalClient.connect(socket_path(profile))
            try:
                return (await client.status()).status
            finally:
                await client.close()
    except (Disconnected, TimeoutError):
        return None


def _surfaces(status: Mapping[str, Any], profile: Profile) -> list[dict[str, object]]:
    """Those of the profile, and those of the house."""
    own = [place for p in _profiles(status) if p["name"] == profile.name for place in p["surfaces"]]
    return [*own, *(status.get("surfaces") or [])]


def _profiles(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(status.get("profiles") or [])


def _others(status: Mapping[str, Any], profile: Profile) -> list[Finding]:
    """The troubles of the profiles that the same gateway serves."""
    return [
        note("gateway", f"{told['name']} is not served: {told['fault']}", "parley gateway status")
        for told in _profiles(status)
        if told["name"] != profile.name and told["fault"]
    ]


def _left_behind(profile: Profile) -> str:
    """A dead gateway's traces do no harm: the next one takes its place and goes on."""
    record: object = None
    with contextlib.suppress(OSError, ValueError):
        record = json.loads((profile.run / "lock").read_text(encoding="utf-8") or "null")
    stale = profile.run.is_dir() and socket_path(profile).exists()
    if not isinstance(record, dict) and not stale:
        return ""
    who = f" (process {record.get('pid')})" if isinstance(record, dict) else ""
    return f"; the last one{who} was killed, and the next takes up what it left"


def _check_port(ground: Ground) -> list[Finding]:
    if ground.settings is None:
        return [note("port", "not looked at while the settings cannot be used.")]
    host, port = ground.settings.gateway.host, ground.settings.gateway.port
    if port == 0:
        return [ok("port", "any free port is taken at the start.")]
    try:
        _try_port(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            what = f"{host}:{port} cannot be opened: {(error.strerror or str(error)).lower()}."
            wrong_port = error.errno == errno.EACCES
            mend = set_gateway("port", "8642") if wrong_port else set_gateway("host", "127.0.0.1")
            return [fault("port", what, mend)]
        tls = ground.settings.gateway.tls.certificate is not None
        other = _another_gateway(host, port, tls=tls)
        user = f"a second Parley gateway ({other}), of another home" if other else "another program"
        return [
            fault(
                "port", f"{port} is in use by {user}.", set_gateway("port", _free_port(host, port))
            )
        ]
    return [ok("port", f"{host}:{port} is free.")]


def _try_port(host: str, port: int) -> None:
    """Bind as the gateway would, and let go at once."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind(address)


def _free_port(host: str, port: int) -> str:
    for candidate in range(port + 1, min(port + _PORTS_TRIED, 65_536)):
        with contextlib.suppress(OSError):
            _try_port(host, candidate)
            return str(candidate)
    return "0"


def set_gateway(name: str, value: str) -> str:
    """The command that changes a setting of the gateway where it is set."""
    variable = f"PARLEY_GATEWAY_{name.upper()}"
    if os.environ.get(variable, "").strip():
        return f"export {variable}={value}"
    return f"parley config set gateway.{name} {value}"


def _another_gateway(host: str, port: int, *, tls: bool) -> str | None:
    """The version of the gateway that answers there, if it is one."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared only
    connection = http.client.HTTPConnection(reached, port, timeout=3)
    if tls:
        import ssl

        # Only its version is asked for, and shown: nothing is told to whoever answers.
        unchecked = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(reached, port, timeout=3, context=unchecked)
    try:
        # Of what is told without a key, only this says what answers here.
        connection.request("GET", "/openapi.json")
        told = json.loads(connection.getresponse().read(_DESCRIPTION_BYTES))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    about = told.get("info") if isinstance(told, dict) else None
    if not isinstance(about, dict) or about.get("title") != "Parley":
        return None
    return one_line(f"Parley {about.get('version')}", longest=40)
