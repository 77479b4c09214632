"""The built-in agent as a backend."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from parley.agent.lean import LeanTools
from parley.agent.loop import run_agent
from parley.agent.prompt import (
    DEFAULT_SOUL,
    build_lean_system,
    build_system,
    unanswered_calls,
)
from parley.agent.providers import build_provider, is_local, provider_names
from parley.agent.providers.base import Provider, is_small
from parley.agent.session_files import owner_of_files, session_folder
from parley.agent.skills import prompt_part
from parley.agent.taint import described_by
from parley.agent.task import AgentTask, Limits, specs_for
from parley.agent.tokens import Calibration
from parley.agent.toolbox import Toolbox
from parley.agent.tools.base import Tool, ToolContext
from parley.backends.base import Mailbox, Prefix, Standing, Turn
from parley.config.child_env import child_environment
from parley.config.files import read_text
from parley.config.settings import Settings
from parley.profiles import Profile
from parley.protocol import Failed, ParleyError, TurnEvent

if TYPE_CHECKING:
    from parley.agent.providers.local.pool import ModelPool

__all__ = ["AgentBackend"]

_LEAN_STEPS = 8  # a small model that needs more goes in circles


class AgentBackend:
    """Answers with a model and tools, in this process.

    `local_models` is shared with the backends of other profiles, so that one child serves them all.
    """

    def __init__(
        self,
        profile: Profile,
        settings: Settings,
        *,
        secret: Callable[[str], str | None],
        local_models: ModelPool | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._profile = profile
        self._settings = settings
        self._secret = secret
        self._local_models = local_models
        self._environment = MappingProxyType(child_environment(profile, environ))
        self._providers: dict[tuple[str | None, str | None], Provider] = {}
        self.calibration = Calibration()
        self._soul = _Soul(profile.soul_file)
        self._lean_tools = LeanTools(settings.agent.lean_tools)
        self._toolbox = Toolbox(profile, settings, secret=secret, environment=self._environment)

    @property
    def models(self) -> AgentBackend:
        return self

    def names(self) -> tuple[str, ...]:
        return provider_names(self._settings)

    def describe(self, provider: str | None, model: str | None) -> str:
        found = self._provider(provider, model)
        return f"{found.label} · {found.model}"

    def is_file(self, provider: str, model: str) -> bool:
        from parley.agent.providers.local.weights import names_file

        return is_local(self._settings, provider) and names_file(model)

    def about(self) -> str:
        return self.describe(None, None)

    async def health(self) -> str | None:
        return self._toolbox.health()  # a model is asked when there is something to ask

    def starting(self) -> tuple[str, ...]:
        return self._toolbox.starting()

    def start(self, mailbox: Mailbox) -> None:
        self._toolbox.start()

    def warm(self) -> None:
        """Load the local model while the person still types."""
        if self._settings.model.provider != "local":
            return
        from parley.agent.providers.local.provider import LocalProvider

        provider = self._provider(None, None)
        if isinstance(provider, LocalProvider):
            provider.warm()

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        try:
            needed = tuple(call.name for call in unanswered_calls(turn.progress))
            await self._toolbox.ready(needed)
            task = self._task(turn)
        except ParleyError as error:
            yield Failed(str(error), cause="no provider")
            return
        async with aclosing(run_agent(task)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._toolbox.close()
        for provider in self._providers.values():
            await provider.close()

    def remembers(self, platform: str) -> bool:
        return self._settings.memory.enabled

    async def prefix(self, standing: Standing) -> Prefix | None:
        """With who tends memory, where the settings name somebody for that."""
        memory = self._settings.memory
        if not memory.enabled:
            return None
        await self._toolbox.ready()
        begins = self._begin(standing)
        who = (standing.provider, standing.model)
        if memory.provider is not None or memory.model is not None:
            who = (memory.provider, memory.model)
        tends = self._provider(*who)
        return Prefix(
            provider=tends,
            system=begins.system,
            tools=specs_for(begins.provider, begins.tools, standing.request),
            learns=tends.offers_tools,
            alone=is_local(self._settings, who[0]),
            lean=self._is_lean(tends),
            outside=", ".join(described_by(begins.tools.values())),
        )

    def _begin(self, standing: Standing) -> _Beginning:
        """How a prompt begins there, of a turn as of what tends it."""
        provider = self._provider(standing.provider, standing.model)
        request, person = standing.request, standing.person
        tools = self._toolbox.offered(standing.source.platform, request, person)
        of_use = {"memory": standing.remembers, "send_file": standing.sends_files}
        without = {name for name, is_of_use in of_use.items() if not is_of_use}
        if not without.isdisjoint(tools):
            tools = {name: each for name, each in tools.items() if name not in without}
        is_lean = self._is_lean(provider)
        if is_lean:
            tools = self._lean_tools.offered(tools)
        skills = prompt_part(self._toolbox.listing(person.off)) if "read_skill" in tools else ""
        build: Callable[..., str] = build_system
        if not provider.offers_tools:
            # A model too small for tools is too small for a long prompt as well.
            build = partial(build_system, brief=True)
        elif is_lean:
            build = build_lean_system
        system = build(
            self._soul.read(),
            standing.source,
            skills=skills,
            person=person.soul,
            instructions=request.instructions or "" if request is not None else "",
            memory=standing.memory,
            summary=standing.summary,
        )
        return _Beginning(provider, system, tools, is_lean)

    def _is_lean(self, provider: Provider) -> bool:
        chosen = self._settings.agent.prompt
        return chosen == "lean" or (chosen == "auto" and is_small(provider))

    def _task(self, turn: Turn) -> AgentTask:
        agent = self._settings.agent
        begins = self._begin(_standing_of(turn))
        return AgentTask(
            system=begins.system,
            history=turn.history,
            progress=turn.progress,
            resumed=turn.attempt > 1,
            provider=begins.provider,
            tools=begins.tools,
            context=ToolContext(
                profile=turn.profile.name,
                workspace=turn.profile.workspace,
                source=turn.source,
                session_key=turn.session_key,
                async_delivery=turn.async_delivery,
                environment=self._environment,
                hands=turn.hands,
                off=turn.person.off,
                private=self._own_files(turn),
                disk=self._toolbox.disk,
            ),
            limits=Limits(
                min(agent.max_steps, _LEAN_STEPS) if begins.is_lean else agent.max_steps,
                agent.turn_seconds,
                agent.turn_tokens,
            ),
            steer=turn.steer,
            check=turn.check,
            request=turn.request,
            ask=turn.ask,
            purse=turn.purse,
            longest_answer=self._longest_answer(turn.provider),
            turn=f"{turn.session_id}.{turn.id}",
            calibration=self.calibration,
            outside=turn.outside,
            strangers=turn.strangers,
            taint=agent.taint,
        )

    def _own_files(self, turn: Turn) -> Path:
        """Where the files of this conversation are; a task works with those of who delegated it."""
        behalf = turn.request.behalf if turn.request is not None else None
        owner = owner_of_files(turn.session_key, turn.source, behalf)
        session = turn.session_id if behalf is None else behalf.session
        return session_folder(turn.profile.session_files, owner, session)

    def _longest_answer(self, provider: str | None) -> int | None:
        """Of the provider that is asked first, and of those that stand in for it."""
        chosen, entries = self._settings.model, self._settings.providers
        names = (provider,) if provider is not None else (chosen.provider, *chosen.fallback)
        found = [entries[name].max_output_tokens for name in names if name in entries]
        return max((each for each in found if each is not None), default=None)

    def _provider(self, provider: str | None, model: str | None) -> Provider:
        chosen = self._settings.model
        if provider == chosen.provider and model in (None, chosen.name):
            provider, model = None, None
        key = (provider, model)
        if key not in self._providers:
            self._providers[key] = build_provider(
                self._settings,
                self._secret,
                provider=provider,
                model=model,
                log_dir=self._profile.logs,
                local_models=self._local_models,
            )
        return self._providers[key]


@dataclass(frozen=True, slots=True)
class _Beginning:
    provider: Provider
    system: str
    tools: Mapping[str, Tool[Any]]
    is_lean: bool


def _standing_of(turn: Turn) -> Standing:
    return Standing(
        source=turn.source,
        provider=turn.provider,
        model=turn.model,
        sends_files=turn.sends_files,
        person=turn.person,
        summary=turn.summary,
        memory=turn.memory,
        remembers=turn.hands is not None and turn.hands.memory is not None,
        request=turn.request,
    )


class _Soul:
    """`SOUL.md`, read again only when it changed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._text = DEFAULT_SOUL

    def read(self) -> str:
        try:
            found = self._file.stat()
            seen = (found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                text = read_text(self._file, lossy=True)
                self._text, self._seen = DEFAULT_SOUL if text is None else text, seen
        except FileNotFoundError:
            self._text, self._seen = DEFAULT_SOUL, None
        except OSError as error:
            raise ParleyError(
                f"{self._file} cannot be read ({error.strerror}); mend it, or remove it."
            ) from error
        return self._text
