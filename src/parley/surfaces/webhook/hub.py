"""`POST /webhook`: the one way in for the webhooks of all profiles, told apart by their tokens."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from parley.gateway.access import Refused
from parley.gateway.failures import error_text
from parley.gateway.intake import FrontDoor
from parley.protocol import ParleyError
from parley.storage.contract import Receipt
from parley.surfaces.api.errors import ApiError
from parley.surfaces.webhook.wire import BadMessage, read_message

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.callers import Callers

__all__ = ["Account", "WebhookHub"]

LARGEST_BODY: Final = 1024 * 1024
_BODY_WITHIN = 30.0
_PIECE = 64 * 1024


@dataclass(slots=True)
class Account:
    """The token of one profile. `door` is None while its surface is not started."""

    profile: str
    digest: bytes = field(repr=False)
    door: FrontDoor | None = None


class WebhookHub:
    """One for each process. Surfaces enrol when they are made and open when they start.

    So a token that is known here is never called unknown because its surface starts a moment
    later, or has just stopped.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._callers: Callers | None = None

    def enrol(self, profile: str, token: str) -> Account:
        """The account of this profile, in place of an earlier one."""
        account = self._accounts[profile] = Account(profile, _digest(token))
        return account

    def open(self, account: Account, door: FrontDoor) -> None:
        """Let its messages in; raises when another profile has the same token."""
        for other in self._accounts.values():
            if other is not account and hmac.compare_digest(other.digest, account.digest):
                raise ParleyError(
                    f"The profiles `{other.profile}` and `{account.profile}` have the same "
                    "WEBHOOK_TOKEN: give each one its own."
                )
        account.door = door

    def routes(self, callers: Callers, /) -> Iterable[web.AbstractRouteDef]:
        from aiohttp import web

        self._callers = callers
        return [web.post("/webhook", self._take)]

    def _find(self, token: str) -> Account | None:
        given = _digest(token)
        found = None
        for account in self._accounts.values():
            matches = hmac.compare_digest(account.digest, given)
            if matches and (found is None or account.door is not None):
                found = account
        return found

    async def _take(self, request: web.Request) -> web.Response:
        assert self._callers is not None
        try:
            account = self._callers.attempts.judge(request, self._find, _name)
        except ApiError as error:
            return _refuse(error.status, error.message, retry_after=error.retry_after or 1)
        if account is None:
            return _refuse(
                401, "Send `Authorization: Bearer TOKEN`, with a token that is known here."
            )
        if account.door is None:
            return _refuse(503, "This webhook is not served now; please try again in a moment.")
        try:
            body = await _read(request)
            receipt = await account.door.admit(read_message(body, profile=account.profile))
        except BadMessage as error:
            return _refuse(400, str(error))
        except _TooLarge as error:
            return _refuse(413, str(error))
        except TimeoutError:
            return _refuse(408, "The message did not come in time.")
        except Refused as error:
            return _refuse(403, str(error))
        except ParleyError as error:
            # The gateway stops, or nothing can be stored just now: the message may come again.
            return _refuse(503, error_text(error, operator=False))
        return _answer(receipt)


class _TooLarge(ParleyError):
    """More than a message can be."""


def _name(account: Account) -> str:
    return f"webhook:{account.profile}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


async def _read(request: web.Request) -> bytes:
    from aiohttp import web

    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            while piece := await request.content.read(_PIECE):
                body += piece
                if len(body) > LARGEST_BODY:
                    raise _TooLarge(f"A message may have {LARGEST_BODY} bytes at most.")
    except (web.RequestPayloadError, ConnectionError) as error:
        raise BadMessage("The body is not as its headers say.") from error
    return bytes(body)


def _answer(receipt: Receipt) -> web.Response:
    from aiohttp import web

    match receipt.state:
        case "queued":
            return web.json_response({"state": "queued"}, status=202)
        case "duplicate":
            return web.json_response({"state": "duplicate"}, status=200)
        case "rate_limited":
            return _refuse(429, "Too many messages at once.", retry_after=receipt.retry_after)
        case "refused":
            return _refuse(403, "This sender may not speak to this agent.")


def _refuse(status: int, sentence: str, *, retry_after: float = 1) -> web.Response:
    from aiohttp import web

    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status in {429, 503}:
        headers["Retry-After"] = str(max(1, math.ceil(retry_after)))
    return web.json_response({"error": sentence}, status=status, headers=headers)
