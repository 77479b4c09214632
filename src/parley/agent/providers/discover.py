"""Finding model servers that already run on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import aiohttp

__all__ = ["WELL_KNOWN_PORTS", "Discovered", "discover", "ports_here"]

WELL_KNOWN_PORTS: Mapping[int, str] = {
    11434: "ollama",
    1234: "lmstudio",
    8080: "llamacpp",
    8000: "vllm",
}
_KIND_OF_OWNER = {"llamacpp": "llamacpp", "vllm": "vllm", "library": "ollama"}
_HERE = {"", "0.0.0.0", "127.0.0.1", "::", "::1", "localhost"}  # noqa: S104 - only asked for
_ANSWER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Discovered:
    """A running server. `kind` is `ollama`, `lmstudio`, `llamacpp` or `vllm`."""

    kind: str
    base_url: str
    models: tuple[str, ...]


def ports_here(environ: Mapping[str, str]) -> Mapping[int, str]:
    """Where to look: the well-known ports, and Ollama's where `OLLAMA_HOST` has moved it."""
    told = environ.get("OLLAMA_HOST", "").strip()
    try:
        address = urlsplit(told if "://" in told else f"//{told}")
        host, port = address.hostname or "", address.port
    except ValueError:
        return WELL_KNOWN_PORTS
    if port is None or host not in _HERE:
        return WELL_KNOWN_PORTS
    others = {p: kind for p, kind in WELL_KNOWN_PORTS.items() if kind != "ollama"}
    return {port: "ollama", **{p: kind for p, kind in others.items() if p != port}}


async def discover(
    ports: Mapping[int, str] = WELL_KNOWN_PORTS, *, timeout_seconds: float = 3.0
) -> list[Discovered]:
    """Ask all `ports` (each with the kind it is known for) at once; return who answered."""
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        found = await asyncio.gather(*(_ask(session, port, kind) for port, kind in ports.items()))
    return [server for server in found if server is not None]


async def _ask(session: aiohttp.ClientSession, port: int, kind: str) -> Discovered | None:
    import aiohttp

    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        async with session.get(f"{base_url}/models", allow_redirects=False) as response:
            if response.status != 200:
                return None
            body = b""
            while len(body) < _ANSWER_BYTES and (piece := await response.content.readany()):
                body += piece
        answer = json.loads(body)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
        return None  # nobody there, or somebody else
    if not isinstance(answer, dict):
        return None
    entries = answer.get("data")
    if entries is None and answer.get("object") == "list":
        entries = []  # an Ollama without models
    if not isinstance(entries, list):
        return None
    named = [e for e in entries if isinstance(e, dict) and isinstance(e.get("id"), str)]
    if entries and not named:
        return None
    owners = (_KIND_OF_OWNER.get(str(entry.get("owned_by"))) for entry in named)
    known = next((owner for owner in owners if owner), kind)
    return Discovered(known, base_url, tuple(entry["id"] for entry in named))
