"""A homeserver before there is a device on it: single calls of its API, each with its own token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from parley.config.hosts import is_loopback
from parley.surfaces.matrix.connection import MatrixFault, reason_of

if TYPE_CHECKING:
    from aiohttp import StreamReader
    from yarl import URL

__all__ = ["Answer", "Homeserver"]

_WITHIN: Final = 30.0
_LARGEST: Final = 4 * 1024 * 1024
_MOST_REDIRECTS: Final = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What it said, whether it is a refusal or not."""

    status: int
    told: Mapping[str, Any] = field(repr=False)

    @property
    def fault(self) -> MatrixFault:
        """The refusal, in words."""
        code, words = str(self.told.get("errcode", "")), str(self.told.get("error", "")).strip()
        after = self.told.get("retry_after_ms")
        seconds = after / 1000 if isinstance(after, int | float) else None
        wait = f" Wait {seconds:.0f} s and try again." if seconds else ""
        named = f"{self.status}{f' {code}' if code else ''}"
        return MatrixFault(
            f"The homeserver refused this ({named}): {words or 'it gave no reason'}{wait}",
            status=self.status,
            code=code,
            after=seconds,
        )


@dataclass(frozen=True, slots=True)
class Homeserver:
    """Where it is, as in `https://matrix.example.org`."""

    url: str

    async def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        within: float = _WITHIN,
        follow: bool = False,
    ) -> Answer:
        """Its answer, a refusal too; a `MatrixFault` when there is none.

        With `follow`, it may send us on to another address that is as safe.
        """
        import aiohttp

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=within)) as session,
                session.request(
                    method,
                    self.url + path,
                    json=body,
                    headers=headers,
                    allow_redirects=follow,
                    max_redirects=_MOST_REDIRECTS,
                ) as answer,
            ):
                if not all(_is_safe(hop.url) for hop in (*answer.history, answer)):
                    raise MatrixFault(f"{self.url} leads to an address that is not safe.")
                text, status = await _whole(answer.content), answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise MatrixFault(f"{self.url} cannot be reached ({reason_of(error)}).") from error
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        return Answer(status, told if isinstance(told, dict) else {})

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        token: str | None = None,
        within: float = _WITHIN,
    ) -> Mapping[str, Any]:
        """What it told; a refusal is a `MatrixFault`."""
        answer = await self.ask(method, path, body, token=token, within=within)
        if answer.status != 200:
            raise answer.fault
        return answer.told


async def _whole(content: StreamReader) -> bytes:
    """All of a body, in however many pieces it comes; cut where it is too long to be meant."""
    text = bytearray()
    async for piece in content.iter_any():
        text += piece
        if len(text) > _LARGEST:
            break
    return bytes(text)


def _is_safe(url: URL) -> bool:
    return url.scheme == "https" or is_loopback(url.host or "")
