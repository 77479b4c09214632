"""The gateway: serves one profile or many on their surfaces. One profile's fault stays its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeAlias

from parley import __version__
from parley.config.settings import GatewayConfig
from parley.gateway.doors import Door, account_for
from parley.gateway.home import HomeInUse, holder_of
from parley.gateway.hosted import Hosted, HostedSurface, refuse_shared_credentials
from parley.gateway.intake import Stopping
from parley.gateway.routes import RouteTable
from parley.gateway.routing import NobodyThere, Router
from parley.gateway.serving import Parts, Serving
from parley.gateway.status import GatewayStatus, Introduction, ProfileStatus
from parley.profiles import Profile, profile_scope
from parley.protocol import ParleyError

__all__ = ["Gateway", "HostedSurface", "Opener", "Parts", "already_open"]

_log = logging.getLogger("parley.gateway")

_AT_ONCE = 8
_PATIENCE = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 5.0

Opener: TypeAlias = Callable[[Profile], AbstractAsyncContextManager[Parts]]


def already_open(parts: Parts) -> Opener:
    """The opener for one profile whose parts are open; they are closed with its serving."""

    @asynccontextmanager
    async def opener(profile: Profile) -> AsyncIterator[Parts]:
        try:
            yield parts
        finally:
            await parts.backend.close()
            await parts.store.close()

    return opener


class Gateway:
    """Serves profiles: `start`, then `stop`.

    `opener` opens what a profile needs; when that fails the profile is reported, the others are
    served, and it is tried again from time to time. `finder` is asked now and then who is to be
    served: a new profile is taken in. `surfaces` belong to the house, whose profile is `home`.
    """

    def __init__(
        self,
        house: GatewayConfig,
        profiles: Sequence[Profile],
        opener: Opener,
        *,
        home: Profile | None = None,
        surfaces: Sequence[HostedSurface] = (),
        notes: Sequence[str] = (),
        finder: Callable[[], Sequence[Profile]] | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.profiles = list(profiles)
        self.home = home or self.profiles[0]
        routes = RouteTable(house.routes, served=[profile.name for profile in profiles])
        self.router = Router(profiles, routes if house.multiplex_profiles else None)
        self._house = house
        self._opener = opener
        self._notes = notes
        self._finder = finder
        self._redact = redact
        self._hosted = [Hosted(surface, self.home) for surface in surfaces]
        self._servings: dict[str, Serving] = {}
        self._faults: dict[str, ParleyError] = {}
        self._started_at = time.monotonic()
        self._state = "starting"
        self._mending: asyncio.Task[None] | None = None
        self._late: dict[asyncio.Task[None], Profile] = {}

    # ── for the doors ──

    def check_open(self) -> None:
        if self._state != "serving":
            raise Stopping("The gateway is stopping; please try again in a moment.")

    def serving(self, profile: Profile) -> Serving:
        found = self._servings.get(profile.name)
        if found is None:
            raise NobodyThere(
                f"`{profile.name}` cannot answer now; `parley gateway status` says why."
            )
        return found

    def profiles_by(self, owner: Profile) -> list[Profile]:
        """Those that may speak by the accounts of `owner`, whether they can just now or not."""
        lent = self._house.multiplex_profiles and owner.is_default
        return [profile for profile in self.profiles if lent or profile == owner]

    def servings_by(self, owner: Profile) -> list[Serving]:
        """Those of them that can."""
        names = (profile.name for profile in self.profiles_by(owner))
        return [self._servings[name] for name in names if name in self._servings]

    def introduction(self, profile: Profile) -> Introduction:
        found = self._servings.get(profile.name)
        if found is not None:
            return found.introduction()
        return Introduction(__version__, os.getpid(), profile.name, "nobody: it is not served now")

    async def status(self) -> GatewayStatus:
        told = await asyncio.gather(*(self._status_of(profile) for profile in self.profiles))
        return GatewayStatus(
            version=__version__,
            pid=os.getpid(),
            home=str(self.home.home),
            state=self._state,
            uptime_seconds=round(time.monotonic() - self._started_at, 1),
            multiplex=self._house.multiplex_profiles,
            profiles=tuple(told),
            surfaces=tuple(hosted.status for hosted in self._hosted),
            notes=tuple(self._notes),
        )

    async def _status_of(self, profile: Profile) -> ProfileStatus:
        serving = self._servings.get(profile.name)
        fault = self._faults.get(profile.name)
        if serving is not None:
            try:
                return await serving.status()
            except (ParleyError, OSError) as error:
                fault = ParleyError(str(error))
        return ProfileStatus(profile.name, str(profile.home), fault=str(fault or "It is starting."))

    # ── life ──

    async def start(self) -> None:
        """Serve every profile that can be, then open the surfaces. Nobody at all is an error."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def begin(profile: Profile) -> None:
            async with limit:
                await self._begin(profile)

        begun = {asyncio.create_task(begin(profile)): profile for profile in self.profiles}
        try:
            # Others are not kept waiting by one whose disk is slow or whose database is locked.
            _, late = await asyncio.wait(begun, timeout=_PATIENCE)
            while late and not self._servings:
                _, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _cancelled(begun)
            raise
        self._late = {task: begun[task] for task in late}
        for profile in self._late.values():
            self._faults[profile.name] = _why_late(profile)
        if not self._servings:
            raise next(iter(self._faults.values()), ParleyError("There is no profile to serve."))
        self._state = "serving"
        await self._open_surfaces()
        everywhere = list(self._all_hosted())
        if everywhere and all(hosted.fault for hosted in everywhere):
            await self.stop()
            raise ParleyError(everywhere[0].fault or "No surface could be opened.")
        self._mending = asyncio.create_task(self._mend_for_ever(), name="mending")

    async def stop(self, *, at_once: bool = False) -> None:
        """Let running turns finish for a while, set the others aside, and close everything."""
        self._state = "stopping"
        await _cancelled([*self._late, *([self._mending] if self._mending else [])])
        seconds = 0.0 if at_once else self._house.drain_seconds
        servings = tuple(self._servings.values())
        await asyncio.gather(*(_quietly(partial(each.drain, seconds)) for each in servings))
        await asyncio.gather(*(_quietly(each.flush) for each in servings))
        for hosted in self._all_hosted():
            await _close(hosted)
        await asyncio.gather(*(_quietly(each.close) for each in servings))
        self._state = "stopped"

    def hurry(self) -> None:
        """Wait no longer for running turns."""
        for serving in self._servings.values():
            serving.hurry()

    # ── profiles ──

    async def _begin(self, profile: Profile) -> bool:
        """Serve one profile; False, and the reason noted, when that cannot be."""
        with profile_scope(profile):
            held = AsyncExitStack()
            try:
                parts = await held.enter_async_context(self._opener(profile))
                # A name of its own: what an earlier serving held is a dead one's.
                owner = f"{os.getpid()}-{secrets.token_hex(4)}"
                serving = Serving(profile, parts, self._house, owner=owner, held=held)
                await serving.start()
            except Exception as error:  # noqa: BLE001 - the supervisor: others are served
                await _quietly(held.aclose)
                self._note_fault(profile, error)
                return False
            except BaseException:
                await held.aclose()
                raise
        self._join_up(serving)
        self._servings[profile.name] = serving
        self._faults.pop(profile.name, None)
        return True

    def _note_fault(self, profile: Profile, error: Exception) -> None:
        sentence = self._redact(_sentence(error))
        if str(self._faults.get(profile.name)) != sentence:
            _log.error("profile_fault", extra={"why": sentence}, exc_info=_trace(error))
        if isinstance(error, ParleyError) and str(error) == sentence:
            self._faults[profile.name] = error
        else:
            self._faults[profile.name] = ParleyError(sentence)

    def _join_up(self, serving: Serving) -> None:
        """Let it answer by its own accounts and the shared ones, and others by those it shares."""
        for hosted in (*serving.hosted, *self._shared_hosted()):
            account = account_for(hosted.surface, hosted.owner, serving.profile)
            serving.attach(hosted.surface, account)
        if self._shares(serving):
            for other in self._servings.values():
                for hosted in serving.hosted:
                    account = account_for(hosted.surface, hosted.owner, other.profile)
                    other.attach(hosted.surface, account)

    def _shares(self, serving: Serving) -> bool:
        return self._house.multiplex_profiles and serving.profile.is_default

    def _shared_hosted(self) -> Iterator[Hosted]:
        yield from self._hosted
        for serving in self._servings.values():
            if self._shares(serving):
                yield from serving.hosted

    def _all_hosted(self) -> Iterator[Hosted]:
        yield from self._hosted
        for serving in self._servings.values():
            yield from serving.hosted

    # ── surfaces ──

    async def _open_surfaces(self) -> None:
        known = {id(hosted): hosted.fault for hosted in self._all_hosted()}
        for hosted in self._all_hosted():
            if not hosted.open:
                hosted.fault = None
        refuse_shared_credentials(self._all_hosted())
        for hosted in list(self._all_hosted()):
            if not hosted.open and hosted.fault is None:
                await self._open(hosted)
            if hosted.fault is not None and hosted.fault != known.get(id(hosted)):
                with profile_scope(hosted.owner):
                    told = {"platform": hosted.surface.platform, "why": hosted.fault}
                    _log.error("surface_fault", extra=told)

    async def _open(self, hosted: Hosted) -> None:
        surface = hosted.surface
        with profile_scope(hosted.owner):
            try:
                await surface.start(Door(self, surface, hosted.owner))
                hosted.open = True
            except Exception as error:  # noqa: BLE001 - the supervisor: others are served
                hosted.fault = self._redact(_sentence(error))
                if _trace(error) is not None:
                    _log.exception("surface_broke", extra={"platform": surface.platform})

    # ── what could not be served ──

    async def _mend_for_ever(self) -> None:
        """Try again what could not be served: a settings file may be mended, a port freed."""
        pause = _FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            changed = False
            try:
                changed = await self._mend()
            except Exception:  # noqa: BLE001 - the supervisor: it is tried again
                _log.exception("mending_broke_off")
            pause = _FIRST_PAUSE if changed else min(pause * 2, _LONGEST_PAUSE)

    async def _mend(self) -> bool:
        """Whether anything is served now that was not."""
        newcomers = await self._newcomers()
        trying = [profile for task, profile in self._late.items() if not task.done()]
        broken = [p for p in self.profiles if p.name not in self._servings and p not in trying]
        # Together: a home that a chat is slow to hand over keeps no other waiting.
        mended = await asyncio.gather(*(self._begin(profile) for profile in broken))
        if any(not hosted.open for hosted in self._all_hosted()):
            self._renew_surfaces()
            await self._open_surfaces()
        return newcomers or any(mended)

    def _renew_surfaces(self) -> None:
        for serving in self._servings.values():
            if all(hosted.open for hosted in serving.hosted):
                continue
            try:
                serving.renew_surfaces()
            except (ParleyError, OSError) as error:
                _log.warning("surfaces_not_made", extra={"why": str(error)})
            else:
                self._join_up(serving)

    async def _newcomers(self) -> bool:
        """Profiles that were made since. One that is gone is forgotten, unless it is served."""
        if self._finder is None:
            return False
        try:
            found = await asyncio.to_thread(self._finder)
        except ParleyError as error:
            _log.warning("profiles_not_found", extra={"why": str(error)})
            return False
        for profile in list(self.profiles):
            if profile not in found and profile.name not in self._servings:
                self.profiles.remove(profile)
                self.router.remove(profile)
                self._faults.pop(profile.name, None)
        fresh = [profile for profile in found if profile not in self.profiles]
        for profile in fresh:
            self.profiles.append(profile)
            self.router.add(profile)
        return bool(fresh)


def _why_late(profile: Profile) -> ParleyError:
    holder = holder_of(profile)
    if holder is not None and holder.kind == "chat":
        return HomeInUse(profile.home, holder)
    return ParleyError("It takes long to open; it is still tried.")


def _sentence(error: Exception) -> str:
    """What went wrong, for people; what nobody thought of is whole in the log alone."""
    if isinstance(error, ParleyError | OSError) and str(error):
        return str(error)
    return f"Something went wrong inside Parley ({type(error).__name__})."


def _trace(error: Exception) -> Exception | None:
    return None if isinstance(error, ParleyError | OSError) else error


async def _cancelled(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _close(hosted: Hosted) -> None:
    try:
        async with asyncio.timeout(5):
            await hosted.surface.stop()
    except Exception as error:  # noqa: BLE001 - the supervisor: the others are closed
        told = {"platform": hosted.surface.platform, "why": _sentence(error)}
        _log.warning("surface_close", extra=told, exc_info=_trace(error))


async def _quietly(close: Callable[[], Awaitable[None]]) -> None:
    """Close one thing; what goes wrong there keeps nothing else from being closed."""
    try:
        await close()
    except Exception:  # noqa: BLE001 - the supervisor
        _log.exception("close_failed")
