"""What one profile remembers: given to its turns, and tended while nobody talks."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from parley.agent.prompt import mend
from parley.agent.tokens import estimate_tokens
from parley.backends.base import Backend, Standing
from parley.config.settings import Settings
from parley.gateway.delivery import Deliveries
from parley.gateway.failures import error_text, is_operator
from parley.gateway.lanes import Lanes, RunningTurn
from parley.gateway.memory_hand import TurnMemory
from parley.gateway.owners import Owners
from parley.gateway.people import People, settings_in
from parley.gateway.persist import until_stored
from parley.memory.consolidator import MemoryConsolidator, Prompt
from parley.memory.core import core_facts
from parley.memory.cutting import Budget as Room
from parley.memory.desk import MemoryDesk
from parley.memory.finding import Finder
from parley.memory.places import NOWHERE, Places, places_of
from parley.memory.views import Views
from parley.profiles import Profile
from parley.protocol import ChatMessage, ParleyError, Request, SessionSource, Usage
from parley.storage.contract import Claim, Draft, Store
from parley.storage.hands import Payer
from parley.storage.memory import PROFILE, Commit, Tended

if TYPE_CHECKING:
    from parley.agent.budget import Budget
    from parley.agent.providers.base import Provider
    from parley.memory.embeddings import Embedder

__all__ = ["Remembering"]

_log = logging.getLogger("parley.memory")

_MOST_BLOCKS: Final = 2_000
_MOST_NOTED: Final = 2_000
_NEARLY_FULL: Final = 0.9
_TOLD_FOR: Final = 600.0
_CALIBRATION: Final = "memory:tokens"
_COMPACT: Final = "memory:compact:"


@dataclass(frozen=True, slots=True)
class _Block:
    versions: tuple[int, ...]
    text: str
    people: frozenset[str]
    """Who told the facts that are remembered there."""


class Remembering:
    """Made once for a profile: `start`, then `stop`."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        store: Store,
        backend: Backend,
        lanes: Lanes,
        deliveries: Deliveries,
        people: People,
        owners: Owners,
        budget: Budget,
        owner: str,
    ) -> None:
        self._profile = profile
        self._settings = settings.memory
        self._store = store
        self._backend = backend
        self._deliveries = deliveries
        self._people = people
        self._owners = owners
        self._budget = budget
        self._owner = owner
        self._views = Views(profile.memory, store)
        self._finder = Finder(store, self._embedder)
        self.desk = MemoryDesk(store, views=self._views, search=self._finder)
        self.consolidator = MemoryConsolidator(
            profile.memory,
            None,
            None,
            store,
            None,
            self._prompt,
            tuple,
            idle_check_interval=settings.memory.idle_check_interval,
            place_of=self._place_of,
            learn=settings.memory.learn,
            is_busy=lambda lane: lanes.turn_of(lane) is not None,
            is_anyone_busy=lambda: lanes.running > 0,
            estimate=self._estimate,
            may_spend=self._may_spend,
            priced=budget.priced,
            prepare=self._prepare,
        )
        self._blocks: OrderedDict[tuple[str, ...], _Block] = OrderedDict()
        self._rooms: dict[tuple[str, str | None, str | None], int] = {}
        self._noted: OrderedDict[str, str] = OrderedDict()
        self._kept_calibration: dict[str, str] = {}
        self._compacting: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, float] = {}

    # ── for turns ──

    def places(self, lane: str, source: SessionSource, request: Request | None = None) -> Places:
        if not self._backend.remembers(source.platform):
            return NOWHERE
        return places_of(lane, source, request=request, groups=self._settings.groups)

    async def block(self, places: Places, versions: tuple[int, ...]) -> str:
        """What is remembered there, as the prompt has it: read again only when it changed."""
        if not any(versions):
            return ""
        known = self._blocks.get(places.read)
        if known is not None and known.versions == versions:
            self._blocks.move_to_end(places.read)
            return known.text
        facts = await self._store.facts(places.read)
        text = core_facts(facts, budget_tokens=self._settings.prompt_tokens, now=time.time())
        people = frozenset(fact.person for fact in facts if fact.person)
        self._blocks[places.read] = _Block(versions, text, people)
        if len(self._blocks) > _MOST_BLOCKS:
            self._blocks.popitem(last=False)
        return text

    def people_of(self, places: Places) -> frozenset[str]:
        """Whose words are remembered there, as of the last `block`."""
        known = self._blocks.get(places.read)
        return frozenset() if known is None else known.people

    def hand(self, running: RunningTurn, places: Places) -> TurnMemory | None:
        """What the turn's tool may use of it."""
        return TurnMemory(self.desk, running.claim, places) if places.write else None

    async def note_place(self, claim: Claim, places: Places) -> None:
        """A program's session is remembered where its last request said, from then on."""
        session, place = claim.session, places.write
        if self._noted.get(session) != place:
            await until_stored(partial(self._store.remember_at, session, claim.turn, place))
            self._noted[session] = place
            if len(self._noted) > _MOST_NOTED:
                self._noted.popitem(last=False)

    def turn_over(self, running: RunningTurn, usage: Usage | None) -> None:
        """Its conversation is put in order soon where it nearly fills the window."""
        self.consolidator.record_activity(running.claim.lane)
        window = self._rooms.get((running.claim.source.platform, *running.chosen), 0)
        used = 0 if usage is None else usage.input_tokens + usage.output_tokens
        if running.trimmed or used > window * _NEARLY_FULL:
            self.consolidator.maybe_consolidate_by_tokens(running.claim.session)

    # ── for commands ──

    def compact(self, lane: str, session: str, source: SessionSource, name: str) -> bool:
        """Begin to fold a conversation; False when that is under way already."""
        if session in self._compacting:
            return False
        task = asyncio.create_task(self._compact(lane, session, source, name), name="compact")
        self._compacting[session] = task
        task.add_done_callback(lambda _: self._compacting.pop(session, None))
        return True

    async def _compact(self, lane: str, session: str, source: SessionSource, name: str) -> None:
        mark = f"{_COMPACT}{session}"
        wanted = json.dumps({"lane": lane, "source": source.to_dict(), "name": name})
        await until_stored(partial(self._store.put_marks, {mark: wanted}))
        try:
            commit = await self.consolidator.compact(session)
            text = _compacted(commit)
        except ParleyError as error:
            why = error_text(error, operator=is_operator(self._owners, source))
            _log.warning("not_folded", extra={"lane": lane, "why": str(error)})
            text = f"This conversation could not be folded: {why}"
        await self._tell(lane, source, name, text)
        await until_stored(partial(self._store.put_marks, {mark: None}))

    async def _tell(self, lane: str, source: SessionSource, name: str, text: str) -> None:
        surface = self._deliveries.surface(source)
        if surface is None or not surface.supports_async_delivery:
            return
        handover = self._deliveries.knows_repeats(source)
        draft = Draft(dedupe=name, source=source, text=text, kind="notice", handover=handover)
        post = partial(self._store.post, lane, draft, owner=self._owner)
        self._deliveries.hand_over(await until_stored(post), source.platform)

    # ── for the consolidator ──

    async def _prompt(self, session: Tended, history: Sequence[ChatMessage]) -> Prompt | None:
        """How the next turn of this session would ask."""
        source = replace(session.source, profile=self._profile.name)
        surface = self._deliveries.surface(source)
        places = self._places_of(session)
        versions = await self._store.place_versions(places.read)
        theirs = await self._people.settings_of(session.person)
        prefix = await self._backend.prefix(
            Standing(
                source=source,
                provider=session.provider,
                model=session.model,
                sends_files=surface is not None and surface.sends_files,
                person=settings_in(session.key, source, theirs),
                summary=session.summary,
                memory=await self.block(places, versions),
                remembers=bool(places.write),
            )
        )
        asked = (source.platform, session.provider, session.model)
        if prefix is None:
            self._rooms[asked] = sys.maxsize
            return None
        self._rooms[asked] = Room.of(prefix.provider.context_window).tokens
        return Prompt(
            system=prefix.system,
            messages=mend(history),
            tools=prefix.tools,
            provider=prefix.provider,
            learns=prefix.learns and not await self._is_used_up(session),
            alone=prefix.alone,
            lean=prefix.lean,
            outside=prefix.outside,
        )

    async def _is_used_up(self, session: Tended) -> bool:
        """Whoever has nothing left of their plan costs nothing by other ways either."""
        plan = await self._people.plan_of(session.person)
        limits = [each for each in self._budget.limits(time.time(), plan) if each.plan is not None]
        if not limits:
            return False
        spent = await self._store.spent(Payer(session.person, session.id), limits)
        pairs = zip(limits, spent, strict=True)
        return any(
            limit.tokens is not None and used.tokens >= limit.tokens for limit, used in pairs
        )

    def _places_of(self, session: Tended) -> Places:
        if session.place:
            return Places(session.place, (PROFILE, session.place))
        return self.places(session.key, session.source)

    def _place_of(self, session: Tended) -> str:
        return self._places_of(session).write

    def _estimate(self, provider: Provider, size: int) -> int:
        tokens, calibration = estimate_tokens(size), self._backend.calibration
        if calibration is None:
            return tokens
        return calibration.tokens(provider.label, provider.model, tokens)

    async def _may_spend(self, session: Tended, provider: Provider, tokens: int) -> str | None:
        """The limits of the profile and the conversation hold; a person's plan is left alone."""
        budget = self._budget
        if not budget.is_limited:
            return None
        if budget.limits_money and budget.price(provider.label, provider.model) is None:
            return budget.no_price(provider.model)
        limits = [each for each in budget.limits(time.time()) if each.whose != "user"]
        spent = await self._store.spent(Payer("", session.id), limits)
        for limit, used in zip(limits, spent, strict=True):
            over_tokens = limit.tokens is not None and used.tokens + tokens > limit.tokens
            if over_tokens or (limit.micros is not None and used.micros >= limit.micros):
                return "The budget does not reach for tending memory; it is tried again later."
        return None

    async def _prepare(self) -> None:
        """Before each look: what people wrote into the files, and what was learned of tokens."""
        now = time.monotonic()
        seen = dict.fromkeys(await self._views.sync(), now)
        # What was wrong only once, such as a line that was left out, is told for a while.
        told = {each: at for each, at in self._problems.items() if now - at < _TOLD_FOR}
        self._problems = told | seen
        await self._finder.catch_up()
        calibration = self._backend.calibration
        rows = {} if calibration is None else calibration.to_rows()
        if rows and rows != self._kept_calibration:
            await self._store.put_marks({_CALIBRATION: json.dumps(rows)})
            self._kept_calibration = rows

    def _embedder(self) -> Embedder | None:
        from parley.memory.embeddings import find_embedder

        return find_embedder(self._settings.embeddings)

    # ── life ──

    async def start(self) -> None:
        kept = (await self._store.marks(_CALIBRATION)).get(_CALIBRATION)
        calibration = self._backend.calibration
        if kept is not None and calibration is not None:
            self._kept_calibration = json.loads(kept)
            calibration.from_rows(self._kept_calibration)
        for mark, wanted in (await self._store.marks(_COMPACT)).items():
            told = json.loads(wanted)
            source = SessionSource.from_dict(told["source"])
            self.compact(told["lane"], mark.removeprefix(_COMPACT), source, told["name"])
        await self.consolidator.start_background_task()

    async def stop(self) -> None:
        await self.consolidator.stop_background_task()
        for task in tuple(self._compacting.values()):
            task.cancel()
        await asyncio.gather(*self._compacting.values(), return_exceptions=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody should know of it, each in a sentence."""
        status = self.consolidator.status
        notes = [*self._problems]
        if status.failing:
            many = "conversation" if status.failing == 1 else "conversations"
            notes.append(
                f"Memory: {status.failing} {many} could not be tended and will be tried again: "
                f"{status.last_fault}"
            )
        elif status.last_fault:
            notes.append(f"Memory: {status.last_fault}")
        return tuple(notes)


def _compacted(commit: Commit | None) -> str:
    if commit is None:
        return "There was nothing to fold in this conversation."
    if commit.kind == "archived":
        return (
            "No summary could be made, so the older messages were put away as they are; "
            "they can still be searched."
        )
    return "Folded: what was said before is now a summary, and answers start from it."
