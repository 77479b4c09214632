"""A program that talks to a webhook, and the surfaces it needs for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp

from parley.gateway.requests import ProfileDoor
from parley.gateway.routing import NobodyThere
from parley.gateway.status import GatewayStatus, Introduction
from parley.profiles import Profile
from parley.protocol import InboundMessage, SessionSource
from parley.storage.contract import Receipt
from parley.surfaces.webhook.hub import WebhookHub
from parley.surfaces.webhook.surface import WebhookSurface
from tests.servers.api_server import an_api
from tests.servers.callback_receiver import CallbackReceiver

__all__ = ["TOKEN", "Caller", "Door", "WebhookHouse", "a_surface"]

TOKEN = "a-token-of-the-default-profile"


def a_surface(
    receiver: CallbackReceiver,
    *,
    hub: WebhookHub | None = None,
    profile: str = "default",
    token: str = TOKEN,
) -> WebhookSurface:
    return WebhookSurface(
        hub or WebhookHub(), profile=profile, token=token, callback_url=receiver.url
    )


class WebhookHouse:
    """The HTTP server of a gateway and one webhook behind it, on any free port."""

    def __init__(self, receiver: CallbackReceiver, home: Profile) -> None:
        self.hub = WebhookHub()
        self.api = an_api(home, mounted=[self.hub])
        self.webhook = a_surface(receiver, hub=self.hub)
        self.surfaces = (self.api, self.webhook)

    @property
    def url(self) -> str:
        return f"{self.api.where}/webhook"


class Caller:
    """Posts messages as a program would."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self._url = url
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def say(self, text: str, number: str, **more: Any) -> tuple[int, dict[str, Any]]:
        """Ann says something; returns the status and the JSON of the reply."""
        return await self.post({"id": number, "text": text, "user": "ann", **more})

    async def post(
        self, body: object, *, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        assert self._session is not None
        if headers is None:
            headers = {"Authorization": f"Bearer {self._token}"}
        raw = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self._session.post(self._url, headers=headers, **raw) as response:
            return response.status, await response.json()


class Door:
    """A front door that notes what it is given and answers as it is told."""

    def __init__(self, answer: Receipt | Exception | None = None) -> None:
        self.answer = answer or Receipt("queued", 1)
        self.admitted: list[InboundMessage] = []

    async def admit(self, message: InboundMessage) -> Receipt:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.admitted.append(message)
        return self.answer

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        raise NotImplementedError

    async def take_back(self, source: SessionSource, event_id: str) -> bool:
        raise NotImplementedError

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        raise NotImplementedError

    async def mark(self, name: str) -> str | None:
        raise NotImplementedError

    async def marks(self, prefix: str) -> dict[str, str]:
        raise NotImplementedError

    async def put_marks(self, marks: Mapping[str, str | None]) -> None:
        raise NotImplementedError

    async def back(self, source: SessionSource) -> None:
        raise AssertionError("nothing was parked")

    def introduce(self, source: SessionSource) -> Introduction:
        raise NotImplementedError

    async def status(self) -> GatewayStatus:
        raise NotImplementedError

    def profiles(self) -> tuple[str, ...]:
        return ()

    def to(self, profile: str) -> ProfileDoor:
        raise NobodyThere("Nobody is served here.")
