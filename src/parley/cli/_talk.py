"""One conversation with a gateway: the one that runs, or one started in this process.

A connection that breaks is made again, and what was said into it is said again under the same
id, so that nothing is lost and nothing counts twice. A gateway in this process serves until a
whole one wants the home: it is handed over at once, and the conversation goes on there.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from parley.cli._host import hosted_gateway, plan_chat
from parley.gateway.home import HomeInUse, Silent, gateway_of, holder_of, socket_path
from parley.profiles import Profile
from parley.protocol import ParleyError
from parley.surfaces.terminal.client import Disconnected, TerminalClient
from parley.surfaces.terminal.wire import (
    LONGEST_LINE,
    Accepted,
    Deliver,
    Frame,
    Say,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from parley.config.settings import Settings

__all__ = ["Talk"]

_OTHERS_START_WITHIN = 30.0
_RESTART_TAKES = 2.0
_LOOKS_EVERY = 0.1
_WELCOMED_WITHIN = 15.0
_LONGEST_TEXT = f"{LONGEST_LINE // 1024 // 1024} MB at most"


class Talk:
    """`async with Talk(...)`, then `say` and read `frames`."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        chat: str,
        user: str = "",
        once: bool = False,
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._chat = chat
        self._user = user
        self._once = once
        self._client: TerminalClient | None = None
        self._hosting = AsyncExitStack()
        self._unconfirmed: dict[str, str] = {}
        self._taken_back: set[str] = set()
        self._seen: set[str] = set()
        self._giving_way: asyncio.Task[None] | None = None
        self._may_connect = asyncio.Event()
        self._may_connect.set()
        self.welcome: Welcome | None = None
        self.hosted = False

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()
        if self._giving_way is not None:
            if self.hosted:
                self._giving_way.cancel()
            await asyncio.gather(self._giving_way, return_exceptions=True)
        await self._hosting.aclose()

    @property
    def connected(self) -> bool:
        return self._client is not None

    async def say(self, text: str) -> str:
        """Send a message; returns its id, which the reply names in `answers`."""
        number = uuid.uuid4().hex
        if len(encode(Say(number, text))) >= LONGEST_LINE:
            raise ParleyError(f"That message is too long; it may have {_LONGEST_TEXT}.")
        self._unconfirmed[number] = text
        if self._client is not None:
            with contextlib.suppress(Disconnected):
                await self._client.say(number, text)
        return number

    async def take_back(self, number: str) -> None:
        """Nobody waits for that answer any more; `Accepted` with `taken back` says it is so."""
        self._taken_back.add(number)
        if self._client is not None:
            with contextlib.suppress(Disconnected):
                await self._client.take_back(number)

    async def ask_about(self, number: str) -> None:
        """`About` says what became of a message, unless the gateway is away just now."""
        if self._client is not None:
            with contextlib.suppress(Disconnected):
                await self._client.ask_about(number)

    async def shown(self, delivery: Deliver) -> None:
        """The person has it."""
        self._seen.add(delivery.key)
        if self._client is not None:
            with contextlib.suppress(Disconnected):
                await self._client.ack(delivery.delivery)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Serve nothing meanwhile: a process that is stopped could not hand its home over."""
        self._may_connect.clear()
        try:
            if self.hosted and self._giving_way is not None:
                self._giving_way.cancel()
                await self._stop_serving()
            yield
        finally:
            self._may_connect.set()

    async def frames(self) -> AsyncIterator[Frame]:
        """Everything the gateway says, without repeats, across reconnections."""
        while True:
            if self._client is None:
                await self._connect(again=True)
                if self.welcome is not None:
                    yield self.welcome
            client = self._client
            if client is None:
                raise ParleyError("No gateway could be reached.")
            try:
                frame = await client.receive()
            except Disconnected:
                await client.close()
                self._client = None
                continue
            if isinstance(frame, Accepted):
                if frame.state == "later":
                    continue  # it stays unconfirmed, and is said again to the next gateway
                self._unconfirmed.pop(frame.id, None)
            if isinstance(frame, Deliver) and frame.key in self._seen:
                await self.shown(frame)
                continue
            yield frame

    async def _connect(self, *, again: bool = False) -> None:
        """Join the gateway that runs; when there is none, be it."""
        path = socket_path(self._profile)
        now = asyncio.get_running_loop().time
        begun = now()
        await self._may_connect.wait()
        if self._giving_way is not None and not self.hosted:
            await asyncio.wait([self._giving_way])
        # Whoever restarts a gateway need not get the home from us.
        serve_from = begun + (_RESTART_TAKES if again and not self.hosted else 0.0)
        while True:
            with contextlib.suppress(Disconnected):
                client = await TerminalClient.connect(path)
                try:
                    async with asyncio.timeout(_WELCOMED_WITHIN):
                        self.welcome = await client.hello(
                            self._chat, user=self._user, once=self._once
                        )
                except TimeoutError as error:
                    await client.close()
                    raise Silent(self._profile.home, holder_of(self._profile)) from error
                for number, text in self._unconfirmed.items():
                    await client.say(number, text)
                for number in self._taken_back:
                    await client.take_back(number)
                self._client = client
                return
            if now() < serve_from:
                await asyncio.sleep(_LOOKS_EVERY)
                continue
            try:
                await self._serve()
            except HomeInUse:
                # Someone else is just starting, or just stopping. Once joined, we wait for them.
                if not again and now() > begun + _OTHERS_START_WITHIN:
                    raise
                await asyncio.sleep(0.05)

    async def _serve(self) -> None:
        """Be the gateway, for terminals alone, until a whole one wants the home."""
        await self._hosting.enter_async_context(
            hosted_gateway(plan_chat(self._profile, self._settings))
        )
        self.hosted = True
        self._giving_way = asyncio.create_task(self._give_way())

    async def _give_way(self) -> None:
        while gateway_of(self._profile) is None:  # noqa: ASYNC110 - another process's lock
            await asyncio.sleep(_LOOKS_EVERY)
        await self._stop_serving()

    async def _stop_serving(self) -> None:
        """What is shown just now is still confirmed: `frames` reads until the connection ends."""
        self.hosted = False
        await self._hosting.aclose()
