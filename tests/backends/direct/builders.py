"""Builders for the tests of the direct backend: a turn, a mailbox, and a backend at an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from parley.backends.base import Thread, Turn
from parley.backends.direct import DirectBackend, build_thread_key
from parley.backends.direct.threads import Patience
from parley.config import Settings
from parley.profiles import Profile
from parley.protocol import Attachment, SessionSource, TurnEvent
from tests.backends.proxy.builders import a_turn
from tests.servers.direct_agent import DirectAgent

__all__ = [
    "ALICE",
    "KEY",
    "QUICK",
    "Post",
    "Postbox",
    "a_direct_turn",
    "backend_at",
    "direct",
    "run",
]

KEY = "sk-direct-0123456789"
ALICE = build_thread_key("matrix", "@alice:example.org", "C1")
QUICK = Patience(first_pause=0.02, longest_pause=0.1)


@dataclass(frozen=True)
class Post:
    lane: str
    id: str
    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass
class Postbox:
    """A mailbox in memory: each id is taken once, as the gateway's own does it."""

    posts: list[Post] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)
    lanes: set[str] | None = None
    tries: int = 0

    async def post(
        self,
        lane: str,
        id: str,
        text: str,
        *,
        session: str | None,
        attachments: tuple[Attachment, ...] = (),
    ) -> bool:
        assert session != ""
        self.tries += 1
        if self.lanes is not None and lane not in self.lanes:
            return False
        if all(post.id != id for post in self.posts):
            self.posts.append(Post(lane, id, text, attachments))
        return True

    async def keep(self, name: str, value: str | None) -> None:
        if value is None:
            self.marks.pop(name, None)
        else:
            self.marks[name] = value

    async def kept(self, prefix: str) -> Mapping[str, str]:
        return {name: value for name, value in self.marks.items() if name.startswith(prefix)}


def a_direct_turn(
    text: str = "hi",
    *,
    number: int = 1,
    chat: str = "C1",
    source: SessionSource | None = None,
    **turn: Any,
) -> Turn:
    async def thread() -> Thread:
        return Thread("matrix", "@alice:example.org", chat)

    more = {
        name: turn.pop(name)
        for name in ("person", "purse", "profile", "async_delivery")
        if name in turn
    }
    source = source or SessionSource("matrix", "!room:example.org", user_id="@alice:example.org")
    made = a_turn(text, source=source, **turn)
    return replace(made, id=number, thread=thread, session_key=f"lane-{chat}", **more)


def backend_at(
    url: str,
    home: Path,
    *,
    key: str | None = None,
    patience: Patience = QUICK,
    timeout_seconds: float = 5.0,
    profile: str = "default",
) -> DirectBackend:
    settings = Settings.model_validate({"direct": {"url": url, "timeout_seconds": timeout_seconds}})
    held = {"AGENT_WS_KEY": key}
    named = Profile(profile, home)
    return DirectBackend(named, settings, url=url, secret=held.get, patience=patience)


@asynccontextmanager
async def direct(
    agent: DirectAgent, home: Path, *, postbox: Postbox | None = None, **options: Any
) -> AsyncIterator[DirectBackend]:
    backend = backend_at(agent.url, home, **options)
    try:
        if postbox is not None:
            backend.start(postbox)
        yield backend
    finally:
        await backend.close()


async def run(backend: DirectBackend, turn: Turn | None = None) -> list[TurnEvent]:
    async with aclosing(backend.run(turn or a_direct_turn())) as events:
        return [event async for event in events]
