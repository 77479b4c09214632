"""One profile, served: its lanes, its turns, its replies. Nothing here knows of another profile."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from parley import __version__
from parley.agent.budget import Budget
from parley.agent.menu import Menu
from parley.agent.processes import Processes
from parley.agent.sandbox import find_sandbox
from parley.backends.base import Backend
from parley.config.settings import GatewayConfig, Settings
from parley.gateway.approvals import Approvals
from parley.gateway.background import Background
from parley.gateway.chats import Chats
from parley.gateway.commands import Commands, Reach
from parley.gateway.delivery import Deliveries
from parley.gateway.hands import Lender
from parley.gateway.hosted import Hosted, HostedSurface
from parley.gateway.intake import Intake
from parley.gateway.lanes import Lanes
from parley.gateway.live import Live
from parley.gateway.mailbox import GatewayMailbox
from parley.gateway.memory import Remembering
from parley.gateway.owners import Owners
from parley.gateway.people import People
from parley.gateway.persist import until_stored
from parley.gateway.status import DeliveryNote, Introduction, ProfileStatus
from parley.gateway.tally import Tally
from parley.gateway.tasks import TASK_PLATFORM, Tasks
from parley.gateway.turns import TurnRunner
from parley.profiles import Profile, profile_scope
from parley.protocol import InboundMessage, ParleyError, SessionSource
from parley.sessions.store import SessionStore
from parley.storage.contract import Draft, Receipt, Store
from parley.storage.hands import Question, Work

__all__ = ["Parts", "Serving"]

_log = logging.getLogger("parley.gateway")

_FLUSH_SECONDS = 2.0
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What it takes to serve a profile: opened for it, and closed by whoever opened it."""

    settings: Settings
    store: Store
    backend: Backend
    surfaces: Sequence[HostedSurface] = ()
    make_again: Callable[[Collection[str]], Sequence[HostedSurface]] | None = None
    """The surfaces of these platforms, from the settings and keys as they are by then."""
    notes: tuple[str, ...] = ()
    """What somebody should see to in the settings."""


class Serving:
    """Serves one profile: `start`, then `drain`, `flush` and `close`. `held` is closed with it."""

    def __init__(
        self,
        profile: Profile,
        parts: Parts,
        house: GatewayConfig,
        *,
        owner: str,
        held: AsyncExitStack,
    ) -> None:
        settings = parts.settings
        live, tally = Live(), Tally()
        self.profile = profile
        self.hosted = tuple(Hosted(surface, profile) for surface in parts.surfaces)
        self._held = held
        self._make_again = parts.make_again
        self._notes = parts.notes
        self._store = parts.store
        self._backend = parts.backend
        self._owner = owner
        self._tally = tally
        self._sessions = SessionStore(house, settings.sessions, active=profile.name)
        self._lanes = Lanes(parts.store, owner=owner, concurrency=settings.gateway.running_turns)
        self._deliveries = Deliveries(profile, parts.store, owner=owner, live=live, tally=tally)
        parts.store.on_notice = self._deliveries.look_again
        self._task_lanes = Lanes(
            parts.store,
            owner=owner,
            concurrency=settings.agent.running_tasks,
            platforms=(TASK_PLATFORM,),
            keeps_time=False,
        )
        self.owners = owners = Owners(settings.access.owners)
        patience = settings.agent.answer_minutes * _MINUTE
        self.approvals = Approvals(
            parts.store,
            owners,
            tell=self._put_question,
            patience=patience,
            safety=settings.agent.safety,
            profile=profile,
        )
        processes = Processes(
            profile.home / "processes",
            sandbox=partial(find_sandbox, settings.terminal.sandbox),
            settings=settings.terminal,
            namespace=self._sessions.namespace,
        )
        self._delegated = Tasks(
            parts.store,
            self._sessions,
            self._task_lanes,
            processes,
            profile=profile.name,
            report=self._report,
        )
        budget = Budget(settings)
        self._people = People(parts.store, settings, owners)
        self._chats = Chats(parts.store, self._sessions, self._deliveries)
        self._mailbox = GatewayMailbox(parts.store, self._deliveries, owner=owner)
        self._memory = None
        if settings.memory.enabled:
            self._memory = Remembering(
                profile,
                settings,
                store=parts.store,
                backend=parts.backend,
                lanes=self._lanes,
                deliveries=self._deliveries,
                people=self._people,
                owners=owners,
                budget=budget,
                owner=owner,
            )
        self._commands = Commands(
            Reach(
                sessions=self._sessions,
                store=parts.store,
                lanes=self._lanes,
                deliveries=self._deliveries,
                approvals=self.approvals,
                owners=owners,
                processes=processes,
                tasks=self._delegated,
                budget=budget,
                people=self._people,
                chats=self._chats,
                menu=Menu(profile, settings),
                models=parts.backend.models,
                memory=self._memory,
            )
        )
        self.intake = Intake(
            sessions=self._sessions,
            lanes=self._lanes,
            deliveries=self._deliveries,
            commands=self._commands,
            people=self._people,
            is_archived=self._chats.is_archived,
            greet_newcomer=self._chats.greet_newcomer,
            asked_of=self.approvals.asked_of,
            arrived=self._arrived,
            busy=settings.gateway.busy,
            tally=tally,
        )
        self._background = Background(parts.store, self.intake, processes, self._delegated)
        lender = Lender(
            store=parts.store,
            lanes=self._lanes,
            deliveries=self._deliveries,
            processes=processes,
            tasks=self._delegated,
            background=self._background,
            owners=owners,
            patience=patience,
        )
        self._runner = TurnRunner(
            profile,
            store=parts.store,
            backend=parts.backend,
            live=live,
            deliveries=self._deliveries,
            approvals=self.approvals,
            lender=lender,
            people=self._people,
            owners=owners,
            chats=self._chats,
            budget=budget,
            memory=self._memory,
            steers=settings.gateway.busy == "steer",
            tally=tally,
        )
        self._broken: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # ── in ──

    async def admit(self, message: InboundMessage) -> Receipt:
        return await self.intake.admit(message)

    async def admit_all(
        self, messages: Sequence[InboundMessage], marks: Mapping[str, str | None]
    ) -> list[Receipt]:
        return await self.intake.admit_all(messages, marks)

    async def welcome(self, source: SessionSource, event_id: str) -> None:
        await self._commands.welcome(source, event_id)

    def _arrived(self, lane: str) -> None:
        """Somebody speaks: whoever tends memory steps aside."""
        if self._memory is not None:
            self._memory.consolidator.record_activity(lane)

    @property
    def store(self) -> Store:
        return self._store

    async def _report(self, work: Work, message: InboundMessage) -> None:
        await until_stored(partial(self.intake.admit, message, lane=work.lane))

    async def _put_question(self, question: Question, source: SessionSource, text: str) -> None:
        """Where a surface does not show questions itself, one is sent like a reply."""
        surface = self._deliveries.surface(source)
        if surface is None or surface.shows_questions:
            return
        draft = Draft(
            dedupe=f"ask:{question.id}",
            source=source,
            text=f"{text}\n\n{_how_to_answer(question)}",
            kind="notice",
            handover=surface.knows_repeats,
        )
        post = partial(self._store.post, question.lane, draft, owner=self._owner)
        self._deliveries.hand_over(await until_stored(post), source.platform)

    async def back(self, source: SessionSource) -> None:
        await self._deliveries.back(self._sessions.key_for(source), source.platform)

    def attach(self, surface: HostedSurface, account: str | None) -> None:
        """Answer by this account too, under the name that this profile has for it."""
        with profile_scope(self.profile):
            self._deliveries.attach(surface, account)
            for_people = surface.supports_async_delivery
            self._lanes.attach(surface.platform, for_people=for_people)

    def renew_surfaces(self) -> None:
        """Make those that could not start anew: a token may have been mended."""
        closed = {hosted.surface.platform: hosted for hosted in self.hosted if not hosted.open}
        if closed and self._make_again is not None:
            with profile_scope(self.profile):
                for surface in self._make_again(closed):
                    closed[surface.platform].surface = surface

    # ── what it tells ──

    def introduction(self) -> Introduction:
        return Introduction(__version__, os.getpid(), self.profile.name, self._answered_by())

    async def status(self) -> ProfileStatus:
        health = await self._store.health()
        with profile_scope(self.profile):
            who_answers = await self._backend.health()
        faults = [*self._broken.values()]
        faults += [fault for fault in (health.fault, who_answers) if fault]
        return ProfileStatus(
            name=self.profile.name,
            home=str(self.profile.home),
            answered_by=self._answered_by(),
            faults=tuple(faults),
            running=health.running,
            queued=health.queued,
            undelivered=health.undelivered,
            surfaces=tuple(hosted.status for hosted in self.hosted),
            doubtful=tuple(
                DeliveryNote(found.id, found.lane, found.state, found.text)
                for found in (*health.unsure, *health.dead)
            ),
            notes=(*self._notes, *(self._memory.notes if self._memory is not None else ())),
            starting=self._backend.starting(),
            tally=replace(self._tally),
        )

    # ── life ──

    async def start(self) -> None:
        """Take up what an earlier process left."""
        with profile_scope(self.profile):
            for note in self._notes:
                _log.warning("setting_unused", extra={"note": note})
            renamed = await self._store.adopt(self._sessions.namespace)
            unwaited = await self._store.drop_unwaited()
            left = await self._store.recover(self._owner)
            if renamed or left or unwaited:
                told = {"turns": left, "renamed": renamed, "nobody_waits": unwaited}
                _log.info("resuming", extra=told)
            lanes = partial(self._lanes.serve, self._runner)
            tasks = partial(self._delegated.serve, self._runner)
            self._backend.start(self._mailbox)
            await self._chats.open()
            await self._background.open()
            await self._commands.recover()  # by now what runs in the background is known
            await self._background.start()
            self._tasks = [
                asyncio.create_task(self._keep("lanes", lanes)),
                asyncio.create_task(self._keep("tasks", tasks)),
                asyncio.create_task(self._keep("deliveries", self._deliveries.serve)),
            ]
            if self._memory is not None:
                await self._memory.start()
            self._lanes.look_again()
            self._task_lanes.look_again()

    async def drain(self, seconds: float) -> None:
        with profile_scope(self.profile):
            if self._memory is not None:
                await self._memory.stop()
            left = await asyncio.gather(self._lanes.drain(seconds), self._task_lanes.drain(seconds))
            interrupted = sum(left)
            if interrupted:
                _log.info("set_aside", extra={"turns": interrupted})

    async def flush(self) -> None:
        await self._deliveries.flush(_FLUSH_SECONDS)

    async def close(self) -> None:
        with profile_scope(self.profile):
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.intake.close()
            await self._commands.close()
            await self._background.close()
            await self._held.aclose()

    def hurry(self) -> None:
        """Wait no longer for running turns."""
        self._lanes.hurry()
        self._task_lanes.hurry()

    async def _keep(self, name: str, serve: Callable[[], Awaitable[None]]) -> None:
        """The supervisor of what runs for ever: a fault is told, and it begins again."""
        pause = 0.5
        while True:
            try:
                await serve()
            except Exception as error:  # noqa: BLE001 - the supervisor
                _log.exception("broke_off", extra={"part": name, "again_in": pause})
                self._broken[name] = f"{name} broke off: {_first(error)}"
            await asyncio.sleep(pause)
            pause = min(pause * 2, 30.0)
            self._broken.pop(name, None)

    def _answered_by(self) -> str:
        try:
            with profile_scope(self.profile):
                return self._backend.about()
        except (ParleyError, OSError) as error:
            return str(error)


def _how_to_answer(question: Question) -> str:
    """With its name where the answer may come from another conversation in the same room."""
    named = f" {question.id}" if question.owner else ""
    who = "An owner answers" if question.owner else "Answer"
    told = "" if question.owner else f" (`{question.id}`)"
    longer = f"; `!yes session{named}` or `!yes always{named}` allows this exact call from now on"
    return f"{who} `!yes{named}` or `!no{named}`{'' if question.once else longer}.{told}"


def _first(error: BaseException) -> BaseException:
    """What went wrong first, of several things that went wrong together."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
