"""Other agents with an OpenAI-compatible server, each installed into an environment of its own.

They are started as their users start them, on loopback and on a home of their own, and told of
one model: the scripted one. What cannot be had here is a `PeerFault`, in a sentence.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.api_load import Door

__all__ = ["PEERS", "PeerFault", "Serving", "free_port", "serve", "until_answers"]

_ENVIRONMENTS = Path(__file__).parent / ".peers"
_INSTALLED_WITHIN = 900.0
_READY_WITHIN = 90.0
_ENDED_WITHIN = 10.0


class PeerFault(Exception):
    """Why a server is not measured: a sentence."""


@dataclass(frozen=True, slots=True)
class Serving:
    name: str
    door: Door
    pid: int


@dataclass(frozen=True, slots=True)
class _Start:
    """A command of the peer's environment, and how the server that it runs is asked."""

    command: tuple[str, ...]
    door: Door
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Peer:
    title: str
    package: str
    wanted: str
    """The package as pip is asked for it."""
    arrange: Callable[[Path, str, int], _Start]
    """From a home, the model's address and a port: write the configuration."""


def _hermes(home: Path, model_url: str, port: int) -> _Start:
    config = {
        "model": {
            "provider": "custom",
            "base_url": model_url,
            "api_key": "scripted-model-key",
            "default": "scripted",
            "context_length": 200_000,
        },
        # It refuses an eleventh request beside ten others unless it is told not to.
        "gateway": {"api_server": {"max_concurrent_runs": 0}},
    }
    folder = home / ".hermes"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    key = secrets.token_hex(16)
    variables = {
        "API_SERVER_ENABLED": "true",
        "API_SERVER_HOST": "127.0.0.1",
        "API_SERVER_PORT": str(port),
        "API_SERVER_KEY": key,
    }
    door = Door(port=port, model="hermes-agent", key=key, session_header="X-Hermes-Session-Id")
    return _Start(("hermes", "gateway", "run"), door, variables)


def _nanobot(home: Path, model_url: str, port: int) -> _Start:
    config = {
        "agents": {"defaults": {"provider": "custom", "model": "scripted"}},
        "providers": {"custom": {"apiKey": "none", "apiBase": model_url}},
    }
    folder = home / ".nanobot"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    command = ("nanobot", "serve", "--host", "127.0.0.1", "--port", str(port))
    return _Start(command, Door(port=port, model="scripted", session_field="session_id"))


# The extra of Hermes Agent is the smallest that brings the HTTP server it needs.
PEERS: Mapping[str, _Peer] = {
    "hermes": _Peer("Hermes Agent", "hermes-agent", "hermes-agent[sms]", _hermes),
    "nanobot": _Peer("nanobot", "nanobot-ai", "nanobot-ai[api]", _nanobot),
}


@asynccontextmanager
async def serve(name: str, home: Path, model_url: str) -> AsyncIterator[Serving]:
    """This peer, answering; installed first where it is not yet."""
    peer = PEERS[name]
    programs = await asyncio.to_thread(_install, peer, _ENVIRONMENTS / name)
    start = peer.arrange(home, model_url, free_port())
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    with (home / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [str(programs / start.command[0]), *start.command[1:]],
            cwd=home,
            env={"PATH": path, "HOME": str(home), **start.variables},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        await until_answers(f"http://127.0.0.1:{start.door.port}/health", process)
        yield Serving(f"{peer.title} {_version(programs, peer)}", start.door, process.pid)
    finally:
        await asyncio.to_thread(_end, process)


async def until_answers(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until somebody says 200 at this address."""
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise PeerFault(f"It ended by itself with code {process.returncode}.")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            await asyncio.sleep(0.05)
    raise PeerFault(f"It did not answer within {_READY_WITHIN:.0f} s.")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _install(peer: _Peer, folder: Path) -> Path:
    """The folder of the peer's programs."""
    programs = folder / "bin"
    if _version(programs, peer):
        return programs
    print(f"{peer.title}: being installed into {folder}", flush=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(programs / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*pip, "--quiet", peer.wanted])
    return programs


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALLED_WITHIN)
    except subprocess.TimeoutExpired:
        raise PeerFault("It could not be installed in time.") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        why = said[-1].removeprefix("ERROR: ") if said else f"code {done.returncode}"
        raise PeerFault(f"It could not be installed here: {why}")


def _version(programs: Path, peer: _Peer) -> str:
    """Empty when it is not installed."""
    ask = f"from importlib.metadata import version; print(version({peer.package!r}))"
    try:
        done = subprocess.run(
            [str(programs / "python"), "-c", ask], capture_output=True, text=True, timeout=30
        )
    except OSError:
        return ""
    return done.stdout.strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: the session is its own."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDED_WITHIN)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
