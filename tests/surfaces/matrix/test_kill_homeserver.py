"""The homeserver goes away, says nonsense, or signs us off: it is told, and goes on after."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from parley.surfaces.matrix.account import read_account, write_account
from tests.servers.gateway_process import ModelProcess
from tests.servers.synapse import Synapse, running_synapse
from tests.surfaces.matrix.plain_person import PlainPerson
from tests.surfaces.matrix.processes import MatrixProcess
from tests.surfaces.matrix.turnstile import Turnstile

pytestmark = pytest.mark.timeout(300)  # a busy machine is slow to start a process again

QUICK = 10.0
SLOW = "[[chunks 10]] [[pace 0.1]] "


@contextmanager
def begun_again(synapse: Synapse) -> Iterator[Synapse]:
    """The same homeserver, with the same port and database, after it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "synapse.app.homeserver", "-c", "homeserver.yaml"],
        cwd=synapse.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield replace(synapse, process=process)
    finally:
        process.terminate()
        process.wait(60)


async def up(synapse: Synapse) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await asyncio.to_thread(synapse.call, "GET", "/_matrix/client/versions")
            except (OSError, RuntimeError):
                await asyncio.sleep(0.05)
            else:
                return


async def until_told(gateway: MatrixProcess, *, seconds: float = 60.0) -> str:
    async with asyncio.timeout(seconds):
        while (told := await gateway.fault()) is None:
            await asyncio.sleep(0.05)
    return told


async def until_well(gateway: MatrixProcess, *, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await gateway.fault() is not None:
            await asyncio.sleep(0.05)


async def slowest_status(gateway: MatrixProcess, *, looks: int = 20) -> float:
    """How long it takes at most to be told how the gateway is."""
    longest = 0.0
    for _ in range(looks):
        began = time.perf_counter()
        assert await gateway.status() is not None
        longest = max(longest, time.perf_counter() - began)
        await asyncio.sleep(0.02)
    return longest


async def test_a_homeserver_that_was_killed_and_comes_back_is_waited_for(tmp_path: Path) -> None:
    with (
        running_synapse() as synapse,
        ModelProcess() as model,
        MatrixProcess(tmp_path / "home") as gateway,
    ):
        await gateway.prepare(synapse, model.base_url)
        gateway.start()
        await gateway.until_ready()
        alice = await PlainPerson.on(synapse)
        room = await alice.create_dm(gateway.user_id)
        await alice.wait_for(room, gateway.user_id, "Hello…")

        await alice.send(room, f"{SLOW}in the middle")
        await alice.wait_for(room, gateway.user_id, "echo: [[…")
        synapse.process.kill()
        synapse.process.wait(60)
        assert "cannot be reached" in await until_told(gateway)
        assert await slowest_status(gateway) < QUICK
        with begun_again(synapse) as again:
            await up(again)
            alice.synapse = again
            await alice.wait_for(room, gateway.user_id, f"echo: {SLOW}in the middle")
            await alice.send(room, "here again")
            await alice.wait_for(room, gateway.user_id, "echo: here again")
            await until_well(gateway)
            again.process.kill()
            again.process.wait(60)
        # Started while nobody is there.
        assert await gateway.stop() == 0
        gateway.start()
        await gateway.until_ready()
        assert "cannot be reached" in await until_told(gateway)
        assert await slowest_status(gateway) < QUICK
        with begun_again(synapse) as again:
            await up(again)
            alice.synapse = again
            await alice.send(room, "third")
            await alice.wait_for(room, gateway.user_id, "echo: third")
            await gateway.until_quiet()
            said = await alice.texts(room, gateway.user_id)
            assert said[1:] == [f"echo: {SLOW}in the middle", "echo: here again", "echo: third"]


async def test_a_homeserver_that_hangs_or_says_nonsense_or_signs_us_off_is_told_and_mended(
    synapse: Synapse, tmp_path: Path
) -> None:
    with ModelProcess() as model, MatrixProcess(tmp_path / "home") as gateway:
        async with Turnstile.before(synapse.url) as gate:
            await gateway.prepare(synapse, model.base_url, url=gate.url)
            gateway.start()
            await gateway.until_ready()
            alice = await PlainPerson.on(synapse)
            room = await alice.create_dm(gateway.user_id)
            await alice.wait_for(room, gateway.user_id, "Hello…")

            nonsense = (
                ("502", 502, "<html>Bad gateway</html>"),
                ("no Matrix", 200, "<html>Welcome!</html>"),
            )
            for words, status, text in nonsense:
                gate.instead = partial(web.Response, status=status, text=text)
                await alice.send(room, f"while it says {words}")
                assert words in await until_told(gateway)
                assert await slowest_status(gateway) < QUICK
                gate.instead = None
                await alice.wait_for(
                    room, gateway.user_id, f"echo: while it says {words}", seconds=60
                )
                await until_well(gateway)

            account = read_account(gateway.profile)
            assert account is not None
            await asyncio.to_thread(
                synapse.call, "POST", "/_matrix/client/v3/logout", {}, token=account.access_token
            )
            await alice.send(room, "signed out")
            assert "parley matrix login" in await until_told(gateway)
            assert await gateway.stop() == 0
            assert account.access_token not in gateway.output
            made = await asyncio.to_thread(
                synapse.call,
                "POST",
                "/_matrix/client/v3/login",
                {
                    "type": "m.login.password",
                    "identifier": {"type": "m.id.user", "user": account.user_id},
                    "password": gateway.password,
                },
            )
            write_account(
                gateway.profile,
                replace(account, access_token=made["access_token"], device_id=made["device_id"]),
            )
            hangs = gate.hold("GET", "/sync", done=False)
            gateway.start()
            await gateway.until_ready()
            assert "has not answered yet" in await until_told(gateway)
            assert await slowest_status(gateway) < QUICK
            hangs.over.set()
            await alice.wait_for(room, gateway.user_id, "echo: signed out")
            await until_well(gateway)
            await gateway.until_quiet()
            said = await alice.texts(room, gateway.user_id)
            assert said[1:] == [
                "echo: while it says 502",
                "echo: while it says no Matrix",
                "echo: signed out",
            ]
