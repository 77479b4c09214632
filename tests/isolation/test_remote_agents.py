"""Profiles that let the same remote agent answer share nothing there: no thread, no session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.profiles import DEFAULT_PROFILE
from tests.isolation.canaries import Canary, found_in
from tests.isolation.family import Family
from tests.isolation.people import Talk, at_terminal
from tests.isolation.seats import Seat
from tests.servers.direct_agent import Capable, DirectAgent, Peer
from tests.servers.scripted_model import ScriptedModel
from tests.servers.scripted_reply import Reply

pytestmark = pytest.mark.timeout(120)

_SECONDS = 30.0
_SAY_ALL = "Say everything you know."


class _Rememberer(Capable):
    """An agent whose memory is the thread: it says everything it has ever heard there."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: dict[str, list[str]] = {}
        self.reply = self.say_all

    async def say_all(self, peer: Peer, frame: dict[str, Any]) -> None:
        heard = self.threads.setdefault(peer.thread, [])
        heard.append(frame["text"])
        await peer.answer(" ".join(heard), tokens_used=1, pending=0)


@asynccontextmanager
async def _served(root: Path, settings: Mapping[str, Any]) -> AsyncIterator[Family]:
    """Three profiles that all use the same remote agent, with the same people at each."""
    family = Family.of(root, profiles=3, each=1)
    (root / "profiles").mkdir(parents=True)
    for profile in family.profiles:
        for folder in (profile.workspace, profile.memory, profile.skills):
            folder.mkdir(parents=True)
        house = {"multiplex_profiles": True, "port": 0, "drain_seconds": 5}
        gateway = {**settings.get("gateway", {}), **(house if profile.is_default else {})}
        profile.config_file.write_text(json.dumps({**settings, "gateway": gateway}))
    async with family.serve():
        yield family


async def _everyone_talks(family: Family) -> dict[str, str]:
    """Each profile's person tells a word; what each is answered afterwards."""
    words = {name: Canary(name, "word", "s0").word for name in family.names}
    answered: dict[str, str] = {}
    for text in (lambda name: f"My word is {words[name]}.", lambda _: _SAY_ALL):
        for name in family.names:
            answered[name] = await _say(family, name, text)
    return answered


async def _say(family: Family, profile: str, text: Callable[[str], str]) -> str:
    talk = Talk(Seat(profile, "s0", "terminal", 0, 0))
    async with at_terminal(family, talk) as person:
        event = f"{profile}-{text(profile)}"
        return await person.ask(text(profile), event, seconds=_SECONDS)


async def test_a_direct_agent_has_a_thread_for_each_profile(tmp_path: Path) -> None:
    remembers = _Rememberer()
    async with DirectAgent(remembers) as agent:
        settings = {"backend": "direct", "direct": {"url": agent.url}}
        async with _served(tmp_path / "home", settings) as family:
            answered = await _everyone_talks(family)
    for name, text in answered.items():
        assert {canary.profile for canary in found_in(text) if canary.kind == "word"} == {name}
    assert len(remembers.threads) == len(family.names)
    [default] = [key for key in remembers.threads if not key.endswith(tuple(family.names[1:]))]
    assert DEFAULT_PROFILE not in default


async def test_a_far_end_has_a_session_for_each_profile_also_of_a_copied_one(
    tmp_path: Path,
) -> None:
    async with ScriptedModel(lambda asked: Reply(text="noted")) as model:
        settings = {"gateway": {"proxy_url": model.base_url.removesuffix("/v1")}}
        root = tmp_path / "home"
        async with _served(root, settings) as family:
            await _say(family, DEFAULT_PROFILE, lambda _: "before the copy")
        default, *copies = family.profiles
        for copy in copies:
            copy.database_file.write_bytes(default.database_file.read_bytes())
        async with family.serve():
            await _everyone_talks(family)
    told: dict[str, set[str]] = {}
    for request in model.requests:
        session = told.setdefault(request.headers["X-Hermes-Session-Id"], set())
        session |= {canary.profile for canary in found_in(request.body)}
    assert sorted(told.values(), key=sorted) == [{name} for name in sorted(family.names)]
