"""Several profiles, each with a webhook, in one gateway: nothing of one reaches another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.backends.agent import AgentBackend
from parley.config import Settings
from parley.gateway.app import Gateway, Parts
from parley.profiles import Profile
from parley.storage.sqlite import SqliteStore
from parley.surfaces.webhook.hub import WebhookHub
from tests.servers.api_server import an_api
from tests.servers.callback_receiver import CallbackReceiver
from tests.servers.scripted_model import ScriptedModel
from tests.surfaces.webhook import Caller, a_surface
from tests.waiting import until

NAMES = ("default", "coder", "writer")


class Family:
    """Three profiles, each with a token and a callback of its own; `open` serves them all."""

    def __init__(self, home: Path, model: ScriptedModel) -> None:
        self.receivers = {name: CallbackReceiver() for name in NAMES}
        self.stores: dict[str, SqliteStore] = {}
        self.hub = WebhookHub()
        self.profiles = [Profile(name, home / name) for name in NAMES]
        self.api = an_api(*self.profiles, mounted=[self.hub])
        self._settings: dict[str, Any] = {
            "model": {"provider": "scripted"},
            "providers": {"scripted": {"base_url": model.base_url, "model": "scripted"}},
            "gateway": {
                "multiplex_profiles": True,
                "routes": [{"platform": "webhook", "chat": "lab/7", "profile": "coder"}],
            },
        }

    @staticmethod
    def token(name: str) -> str:
        return f"the-token-of-{name}-xxxxxxxx"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        settings = Settings.model_validate(self._settings)
        for receiver in self.receivers.values():
            await receiver.start()
        gateway = Gateway(settings.gateway, self.profiles, self._open_profile, surfaces=[self.api])
        await gateway.start()
        try:
            yield gateway
        finally:
            await gateway.stop()
            for receiver in self.receivers.values():
                await receiver.stop()

    @asynccontextmanager
    async def _open_profile(self, profile: Profile) -> AsyncIterator[Parts]:
        name = profile.name
        settings = Settings.model_validate(self._settings)
        profile.workspace.mkdir(parents=True, exist_ok=True)
        store = self.stores[name] = SqliteStore.open(profile.database_file)
        backend = AgentBackend(profile, settings, secret=lambda _: None)
        surface = a_surface(
            self.receivers[name], hub=self.hub, profile=name, token=self.token(name)
        )
        try:
            yield Parts(settings, store, backend, [surface])
        finally:
            await backend.close()
            await store.close()

    async def say(self, token_of: str, text: str, number: str, **more: Any) -> int:
        async with Caller(f"{self.api.where}/webhook", self.token(token_of)) as caller:
            return (await caller.say(text, number, **more))[0]

    def taken(self, name: str) -> list[tuple[str, str]]:
        """Who said what to the program of this profile."""
        posted = self.receivers[name].posted
        return [(each.answer["profile"], each.text) for each in posted]


@pytest.fixture
def family(tmp_path: Path, model: ScriptedModel) -> Family:
    return Family(tmp_path, model)


async def test_each_token_speaks_to_its_own_profile_and_hears_its_answers(family: Family) -> None:
    """The same ids with every token: another profile, another session, another callback."""
    async with family.open():
        for name in NAMES:
            assert await family.say(name, f"for {name}", "m1", thread="t") == 202
        for name in NAMES:
            await until(lambda name=name: family.receivers[name].posted)  # type: ignore[misc]
        for name in NAMES:
            assert family.taken(name) == [(name, f"echo: for {name}")]
            [posted] = family.receivers[name].posted
            assert posted.headers["Authorization"] == f"Bearer {family.token(name)}"
            assert (posted.answer["chat"], posted.answer["thread"]) == ("ann", "t")
            assert len(await family.stores[name].sessions()) == 1


async def test_a_route_brings_a_shared_chat_to_a_profile_apart_from_its_own(
    family: Family, model: ScriptedModel
) -> None:
    """Both speak to `coder` in a chat of the same id; each answer goes the way it came."""
    async with family.open():
        place = {"chat": "lab/7", "chat_type": "group"}
        assert await family.say("coder", "mine", "m1", **place) == 202
        assert await family.say("default", "shared", "m1", **place) == 202
        await until(lambda: family.taken("coder") and family.taken("default"))
        assert family.taken("coder") == [("coder", "echo: mine")]
        assert family.taken("default") == [("coder", "echo: shared")]
        ids = {r.posted[0].answer["id"] for r in family.receivers.values() if r.posted}
        assert len(ids) == 2
        assert {r.posted[0].answer["chat"] for r in family.receivers.values() if r.posted} == {
            "lab/7"
        }
        assert len(await family.stores["coder"].sessions()) == 2
        assert await family.stores["default"].sessions() == []
        assert all(len(request.json["messages"]) == 2 for request in model.requests)


async def test_one_callback_that_is_down_is_its_own_profiles_matter(family: Family) -> None:
    async with family.open():
        await family.receivers["coder"].stop()
        assert await family.say("coder", "hello", "m1") == 202
        for number in range(3):
            assert await family.say("writer", f"hello {number}", f"m{number}") == 202
            expected = number + 1
            await until(lambda n=expected: len(family.taken("writer")) == n)  # type: ignore[misc]
        assert family.taken("coder") == []
        await family.receivers["coder"].start()
        await until(lambda: family.taken("coder") == [("coder", "echo: hello")])
