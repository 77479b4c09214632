"""A tool that looks at all a tool can reach, tells the model, and writes it into the log."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict

from parley.agent.tools import Tool, ToolContext
from parley.config.secrets import Secrets
from parley.profiles import DEFAULT_PROFILE, OutsideScope, Profile, scoped_profile
from parley.sessions.context import get_session_env

__all__ = ["TOOL_NAME", "Sighting", "Spy"]

TOOL_NAME: Final = "look_around"
_SESSION_NAMES: Final = (
    *("profile", "platform", "chat_id", "thread_id", "user_id", "session_key", "session_id"),
)
_SECRET_NAMES: Final = ("SCRIPTED_API_KEY", "DATABASE_PASSWORD", "WEBHOOK_TOKEN", "OPENAI_API_KEY")
_ASK_A_CHILD: Final = 'echo "CWD=$PWD"; exec env'

_log = logging.getLogger("tests.spy")


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    word: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen in one turn. `word` is the session's own."""

    word: str
    context: ToolContext
    scope: str | None
    session: Mapping[str, str]
    own_secrets: Mapping[str, str | None]
    others_secrets: Sequence[str]
    child: str
    variables: Sequence[str]

    def told(self) -> str:
        """All but the secrets it may use, for the model."""
        record = {
            "context": repr(self.context),
            "environment": dict(self.context.environment),
            "scope": self.scope,
            "session": dict(self.session),
            "others": list(self.others_secrets),
            "child": self.child,
            "variables": list(self.variables),
        }
        return json.dumps(record)


class Spy:
    """Remembers what it saw, in all turns of all profiles."""

    def __init__(self, profiles: Sequence[Profile], shell: Mapping[str, str]) -> None:
        self._profiles = tuple(profiles)
        self._shell = shell
        self.sightings: list[Sighting] = []
        self.tool = Tool(TOOL_NAME, "Looks around.", _Asked, self._look, parallel=True)

    async def _look(self, asked: _Asked, context: ToolContext) -> str:
        scope = scoped_profile()
        own, others = {}, []
        for profile in self._profiles:
            secrets = Secrets(profile, self._shell if profile.name == DEFAULT_PROFILE else {})
            for name in _SECRET_NAMES:
                try:
                    value = secrets.get(name)
                except OutsideScope:
                    continue
                if profile.name == context.profile:
                    own[name] = value
                else:
                    others.append(f"{profile.name} {name} {value}")
        seen = Sighting(
            word=asked.word,
            context=context,
            scope=None if scope is None else scope.name,
            session={name: get_session_env(name) for name in _SESSION_NAMES},
            own_secrets=own,
            others_secrets=others,
            child=await asyncio.to_thread(_child, context),
            variables=_variables(),
        )
        self.sightings.append(seen)
        found = [str(value) for value in own.values()]
        _log.info("looked around", extra={"child": seen.child, "found": found})
        await asyncio.to_thread(_log.warning, "a thread saw %s and %s", asked.word, found)
        return seen.told()


def _child(context: ToolContext) -> str:
    """What a program knows that is started for this turn."""
    done = subprocess.run(
        ["sh", "-c", _ASK_A_CHILD],
        env=dict(context.environment),
        cwd=context.workspace,
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.stdout + done.stderr


def _variables() -> list[str]:
    """Our context variables; those of libraries hold whole requests and say nothing of profiles."""
    return [
        repr(value)
        for variable, value in contextvars.copy_context().items()
        if variable.name.startswith("parley")
    ]
