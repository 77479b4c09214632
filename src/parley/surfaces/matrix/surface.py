"""Matrix as a surface: one account of one profile, in all the rooms it is in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from parley.config.surfaces import MatrixSettings
from parley.gateway.intake import FrontDoor
from parley.gateway.live import LiveEvent
from parley.profiles import DEFAULT_PROFILE, Profile
from parley.protocol import ParleyError, SessionSource
from parley.storage.contract import Delivery
from parley.storage.people import Chat
from parley.surfaces.base import NotSent, Surface
from parley.surfaces.matrix.account import Account, matrix_home, read_account
from parley.surfaces.matrix.allowed import Allowed
from parley.surfaces.matrix.extra import require_extra

if TYPE_CHECKING:
    from parley.surfaces.matrix.serving import Serving

__all__ = ["MatrixSurface"]

_log = logging.getLogger("parley.matrix")

_AGAIN: Final = 0.5
_AGAIN_WHEN_AWAY: Final = 5.0
_LOOK_FOR_LOGIN: Final = 3.0


class MatrixSurface(Surface):
    """Serves whoever the settings let in. It is open as soon as its keys are: a homeserver that is
    away is waited for, and told of as its `fault`.
    """

    platform = "matrix"
    knows_repeats = True
    can_ask = True
    vouches = True
    sends_files = True
    verb = "!"

    def __init__(
        self, profile: Profile, settings: MatrixSettings, *, owners: Sequence[str]
    ) -> None:
        self._profile = profile
        self.settings = settings
        self._allowed = Allowed(settings.allow, owners)
        self._account: Account | None = None
        self._serving: Serving | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.rooms = _Rooms(self)

    @property
    def credential(self) -> str | None:
        """The account: two profiles that share it would answer everything twice."""
        try:
            account = read_account(self._profile)
        except ParleyError:
            return None
        return None if account is None else account.user_id

    @property
    def where(self) -> str:
        return "Matrix" if self._account is None else self._account.user_id

    async def start(self, door: FrontDoor) -> None:
        require_extra()
        login = "parley matrix login"
        if self._profile.name != DEFAULT_PROFILE:
            login += f" --profile {self._profile.name}"
        account = await asyncio.to_thread(read_account, self._profile)
        if account is None:
            raise ParleyError(f"Nobody has logged in to Matrix yet: run `{login}`.")
        await self._open(account, door, login)
        self._renewing = asyncio.create_task(self._renew_for_ever(door, login), name="matrix-login")

    async def _open(self, account: Account, door: FrontDoor, login: str) -> None:
        from parley.surfaces.matrix.serving import Serving

        self._account = account
        serving = Serving(
            account,
            matrix_home(self._profile),
            self._profile,
            self.settings,
            allowed=self._allowed,
            door=door,
            log_in=login,
            tell=self._tell,
        )
        await serving.open()
        self._serving = serving

    async def _renew_for_ever(self, door: FrontDoor, login: str) -> None:
        """While nothing comes, whoever logs in again need not start the gateway anew."""
        while True:
            await asyncio.sleep(_LOOK_FOR_LOGIN)
            if self.fault is None or self._account is None:
                continue
            try:
                account = await asyncio.to_thread(read_account, self._profile)
                is_ours = account is not None and account.user_id == self._account.user_id
                if account is not None and is_ours and account != self._account:
                    await self._close()
                    await self._open(account, door, login)
            except (ParleyError, OSError) as error:
                _log.warning("login_not_taken", extra={"why": str(error)})

    async def stop(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.close()

    async def send(self, delivery: Delivery) -> str | None:
        return await self.serving.send(delivery)

    async def show(self, event: LiveEvent) -> None:
        if self._serving is not None:
            self._serving.show(event)

    @property
    def serving(self) -> Serving:
        """What serves it now; raises when nothing does."""
        if self._serving is None or not self._serving.is_ready:
            after = _AGAIN if self.fault is None else _AGAIN_WHEN_AWAY
            raise NotSent("Matrix is not connected yet.", after=after)
        return self._serving

    def _tell(self, fault: str | None, note: str | None) -> None:
        self.fault = fault
        self.note = note


class _Rooms:
    """The rooms of people's chats, whether Matrix is served just now or not."""

    def __init__(self, surface: MatrixSurface) -> None:
        self._surface = surface

    @property
    def first_in_place(self) -> bool:
        return not self._surface.settings.spaces

    async def open_room(self, source: SessionSource, chat: Chat) -> SessionSource:
        return await self._surface.serving.spaces.open_room(source, chat)

    async def name_room(self, chat: Chat) -> None:
        await self._surface.serving.spaces.name_room(chat)

    async def archive_room(self, chat: Chat) -> None:
        await self._surface.serving.spaces.archive_room(chat)
