"""One profile's webhook: its token, its callback, and its place at `POST /webhook`."""

from __future__ import annotations

import logging
from typing import Final

from parley.gateway.intake import FrontDoor
from parley.profiles import DEFAULT_PROFILE
from parley.protocol import ParleyError
from parley.storage.contract import Delivery
from parley.surfaces.base import NotSent, Surface
from parley.surfaces.webhook.callback import Callback
from parley.surfaces.webhook.hub import WebhookHub
from parley.surfaces.webhook.wire import PLATFORM, encode_answer

__all__ = ["WebhookSurface"]

_log = logging.getLogger("parley.webhook")

_SHORTEST_TOKEN: Final = 16


class WebhookSurface(Surface):
    """Serves the programs that hold the token: they say who speaks, and get the answers."""

    platform = PLATFORM
    knows_repeats = True
    can_ask = True
    vouches = True

    def __init__(
        self,
        hub: WebhookHub,
        *,
        profile: str,
        token: str | None,
        callback_url: str | None,
        greets: bool = False,
    ) -> None:
        self.greets = greets
        self._profile = profile
        self._hub = hub
        self._token = token
        self._url = callback_url
        self._place = hub.enrol(profile, token) if token and not _fault_of(token) else None
        self._callback: Callback | None = None
        self._fails = False

    @property
    def credential(self) -> str | None:
        return self._token

    @property
    def where(self) -> str:
        return "POST /webhook"

    async def start(self, door: FrontDoor) -> None:
        if self._place is None or not self._token:
            raise ParleyError(
                f"The webhook's token {_fault_of(self._token)}: {self._command('WEBHOOK_TOKEN')}"
            )
        if not self._url:
            raise ParleyError(
                "The webhook does not know where answers go: "
                f"{self._command('surfaces.webhook.callback_url http://127.0.0.1:9000/answers')}"
            )
        callback = Callback(self._url, self._token)
        self._hub.open(self._place, door)
        self._callback = callback

    async def stop(self) -> None:
        if self._place is not None:
            self._place.door = None
        callback, self._callback = self._callback, None
        if callback is not None:
            await callback.close()

    async def send(self, delivery: Delivery) -> str | None:
        if self._callback is None:
            raise NotSent("The webhook is not served now.")
        profile = delivery.source.profile or self._profile
        try:
            given = await self._callback.post(encode_answer(delivery, profile=profile))
        except NotSent as reason:
            self._note(str(reason))
            raise
        self._note("")
        return given

    def _note(self, fault: str) -> None:
        """Into the log when the callback fails, and when it works again; not each time."""
        if fault and not self._fails:
            _log.warning("callback_fails", extra={"owner": self._profile, "why": fault})
        elif self._fails and not fault:
            _log.info("callback_works", extra={"owner": self._profile})
        self._fails = bool(fault)

    def _command(self, what: str) -> str:
        named = "" if self._profile == DEFAULT_PROFILE else f" --profile {self._profile}"
        return f"parley config set {what}{named}"


def _fault_of(token: str | None) -> str:
    """Why this can be no token; empty when it can."""
    if not token:
        return "is missing"
    if len(token) < _SHORTEST_TOKEN:
        return f"is too short, {_SHORTEST_TOKEN} characters are the least"
    if not (token.isascii() and token.isprintable() and " " not in token):
        return "holds a space or a character that no header can"
    return ""
