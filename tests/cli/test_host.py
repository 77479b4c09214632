"""A gateway of several profiles in this process, wired as `parley gateway run` wires it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from parley.cli import gateway as gateway_command
from parley.cli._host import House, hosted_gateway, plan_gateway
from parley.config.homes import make_home
from parley.gateway import app
from parley.gateway.app import Gateway
from parley.gateway.home import HomeLock
from parley.profiles import Profile, default_profile, find_profile, scoped_profile
from parley.protocol import ParleyError
from tests.waiting import until

_PLAIN = "surfaces: {webhook: {enabled: true, callback_url: 'http://127.0.0.1:9/answers'}}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_log: None) -> Path:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(app, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(app, "_LONGEST_PAUSE", 0.1)
    house = default_profile()
    house.home.mkdir(mode=0o700)
    house.config_file.write_text("gateway: {multiplex_profiles: true, port: 0}\n")
    (house.home / "profiles").mkdir(mode=0o700)
    return house.home


def make(home: Path, name: str, *, settings: str = "# none\n", token: str | None = None) -> Profile:
    profile = Profile(name, home / "profiles" / name)
    make_home(profile.home, soul=f"You are {name}.\n", settings=settings)
    if token is not None:
        profile.env_file.write_text(f"WEBHOOK_TOKEN={token}\n")
    return profile


@asynccontextmanager
async def served() -> AsyncIterator[Gateway]:
    async with hosted_gateway(plan_gateway(default_profile(), alone=False)) as gateway:
        yield gateway


async def problems(gateway: Gateway) -> dict[str, tuple[str, ...]]:
    status = await gateway.status()
    return {profile.name: profile.problems for profile in status.profiles}


async def until_told(gateway: Gateway, expected: set[str]) -> None:
    """Wait until exactly these profiles are there, each without a problem."""
    async with asyncio.timeout(60):
        while True:
            told = await problems(gateway)
            if set(told) == expected and not any(told.values()):
                return
            await asyncio.sleep(0.01)


async def test_a_new_profile_is_taken_in(home: Path) -> None:
    async with served() as gateway:
        await until_told(gateway, {"default"})
        make(home, "coder")
        await until_told(gateway, {"default", "coder"})


async def test_a_profile_that_is_gone_is_not_made_again(home: Path) -> None:
    broken = make(home, "broken", settings="gateway: [\n")
    async with served() as gateway:
        assert "not YAML" in (await problems(gateway))["broken"][0]
        shutil.rmtree(broken.home)
        await until_told(gateway, {"default"})
        make(home, "coder")
        await until_told(gateway, {"default", "coder"})
        assert not broken.home.exists()


async def test_a_token_that_is_mended_is_taken_without_a_restart(home: Path) -> None:
    one = make(home, "one", settings=_PLAIN, token="the-same-for-both")
    make(home, "two", settings=_PLAIN, token="the-same-for-both")
    bare = make(home, "bare", settings=_PLAIN)
    async with served() as gateway:
        told = await problems(gateway)
        assert all("`one` and `two`" in told[name][0] for name in ("one", "two"))
        assert "WEBHOOK_TOKEN" in told["bare"][0]
        one.env_file.write_text("WEBHOOK_TOKEN=one-of-its-own-now\n")
        bare.env_file.write_text("WEBHOOK_TOKEN=here-is-one-at-last\n")
        await until_told(gateway, {"default", "bare", "one", "two"})


async def test_one_gateway_serves_the_house(home: Path) -> None:
    async with served():
        with pytest.raises(ParleyError, match="already served by `parley gateway run`"):
            async with served():
                pass


def test_the_lock_of_a_named_profile_makes_no_home(home: Path) -> None:
    gone = Profile("gone", home / "profiles" / "gone")
    with pytest.raises(ParleyError, match="cannot be used"), HomeLock(gone, "gateway"):
        pass
    assert not gone.home.exists()
    with pytest.raises(ParleyError, match="There is no profile `gone`"):
        find_profile("gone")


async def test_a_chat_that_ends_leaves_its_profile_to_the_gateway(home: Path) -> None:
    coder = make(home, "coder")
    with ExitStack() as chat:
        chat.enter_context(HomeLock(coder, "chat"))
        async with served() as gateway:
            assert "already served by `parley chat`" in (await problems(gateway))["coder"][0]
            chat.close()
            await until_told(gateway, {"default", "coder"})


async def test_a_key_in_the_wrong_place_is_not_repeated_in_a_fault(home: Path) -> None:
    settings = "model: {provider: sk-0123456789abcdef, fallback: [plain-looking-word]}\n"
    make(home, "coder", settings=settings, token="plain-looking-word")
    async with served() as gateway:
        told = str(await problems(gateway))
    assert "names the unknown provider" in told
    assert "sk-0123456789abcdef" not in told
    assert "plain-looking-word" not in told


@pytest.mark.parametrize("chosen", ["default", "coder"])
def test_a_gateway_for_all_works_in_no_profiles_scope(
    home: Path, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(home, "coder")
    monkeypatch.setenv("PARLEY_PROFILE", chosen)
    seen: list[Profile | None] = []

    def watched(house: House) -> House:
        finder = house.finder
        assert finder is not None

        def find() -> Sequence[Profile]:
            seen.append(scoped_profile())
            return finder()

        return replace(house, finder=find)

    async def serve() -> Profile | None:
        async with hosted_gateway(watched(gateway_command.plan())):
            await until(lambda: len(seen) > 1)
            return scoped_profile()

    assert uvloop.run(serve()) is None
    assert set(seen) == {None}
