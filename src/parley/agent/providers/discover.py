"""Finding model servers that already run on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

__all__ = ["WELL_KNOWN_PORTS", "Discovered", "discover"]

WELL_KNOWN_PORTS: Mapping[int, str] = {
    11434: "ollama",
    1234: "lmstudio",
    8080: "llamacpp",
    8000: "vllm",
}
_KIND_OF_OWNER = {"llamacpp": "llamacpp", "vllm": "vllm", "library": "ollama"}
_ANSWER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Discovered:
    """A running server. `kind` is `ollama`, `lmstudio`, `llamacpp` or `vllm`."""

    kind: str
    base_url: str
    models: tuple[str, ...]


async def discover(
    ports: Mapping[int, str] = WELL_KNOWN_PORTS, *, timeout_seconds: float = 1.0
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
