"""The child's life: it starts once, is replaced when it dies, and never outlives its parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from parley.agent.providers.base import ModelRequest, ProviderError
from parley.agent.providers.local.provider import LocalProvider
from parley.config.settings import LocalModelSettings
from parley.protocol import ChatMessage, TextDelta
from tests.agent.providers.local.watching import (
    ENDLESS,
    PARIS,
    answer,
    child_of,
    children_of,
    exists,
    until,
)


async def test_a_killed_child_breaks_the_reply_and_the_next_one_comes_from_a_new_child(
    provider: LocalProvider,
) -> None:
    first = 0
    with pytest.raises(ProviderError, match="ended while it was answering") as caught:
        async for event in provider.stream(ENDLESS):
            if isinstance(event, TextDelta) and not first:
                first = child_of(os.getpid())
                os.kill(first, signal.SIGKILL)
    assert caught.value.kind == "broken"
    _, reply = await answer(provider, PARIS)
    assert "Paris" in reply.text
    assert child_of(os.getpid()) != first


async def test_a_child_that_died_between_replies_is_replaced_unnoticed(
    provider: LocalProvider,
) -> None:
    await provider.check()
    os.kill(child_of(os.getpid()), signal.SIGKILL)
    _, reply = await answer(provider, PARIS)
    assert "Paris" in reply.text


async def test_closing_ends_the_child_and_what_it_was_saying(provider: LocalProvider) -> None:
    stream = provider.stream(ENDLESS)
    await anext(stream)
    pid = child_of(os.getpid())
    await provider.close()
    assert not exists(pid)
    with pytest.raises(ProviderError):
        async for _ in stream:
            pass
    with pytest.raises(ProviderError, match="has been closed"):
        await provider.check()


async def test_closing_while_the_weights_load_leaves_no_child(provider: LocalProvider) -> None:
    provider.warm()
    await until(lambda: bool(children_of(os.getpid())))
    waiting = asyncio.create_task(provider.check())
    await asyncio.sleep(0)
    await provider.close()
    with pytest.raises(ProviderError, match="has been closed"):
        await waiting
    assert children_of(os.getpid()) == []


async def test_a_request_given_up_while_the_weights_load_does_not_stop_the_loading(
    provider: LocalProvider,
) -> None:
    given_up = asyncio.create_task(provider.check())
    await until(lambda: bool(children_of(os.getpid())))
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    pid = child_of(os.getpid())
    await provider.check()
    assert child_of(os.getpid()) == pid


async def test_the_event_loop_goes_on_while_the_weights_load(provider: LocalProvider) -> None:
    longest, last = 0.0, time.thread_time()
    task = asyncio.create_task(provider.check())
    while not task.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.thread_time() - last), time.thread_time()
    await task
    assert longest < 0.5


async def test_the_child_gets_no_secret_and_wants_its_key(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1234")
    await provider.check()
    pid = child_of(os.getpid())
    process = provider._running
    assert process is not None
    seen = Path(f"/proc/{pid}/cmdline").read_bytes()
    if os.geteuid() == 0:  # nobody else may look into it
        seen += Path(f"/proc/{pid}/environ").read_bytes()
    else:
        assert not os.access(f"/proc/{pid}/environ", os.R_OK)
    assert b"sk-secret" not in seen
    assert process.key.encode() not in seen
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{process.address}/v1/chat/completions", json={}) as response,
    ):
        assert response.status == 401
    assert process.address.startswith("http://127.0.0.1:")


async def test_the_child_says_nothing_on_the_terminal(
    smollm2: LocalModelSettings, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    provider = LocalProvider(smollm2, log_dir=tmp_path)
    with pytest.raises(ProviderError):
        await answer(provider, ModelRequest("", (ChatMessage("user", "word " * 2500),)))
    log = tmp_path / "local-model.log"
    # A thread of the child writes it.
    await until(lambda: "exceeds the available context size" in log.read_text())
    await provider.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("moment", ["loading", "answering"])
async def test_the_child_dies_with_a_killed_parent(
    moment: str, smollm2: LocalModelSettings
) -> None:
    script = (
        "import asyncio, sys\n"
        "from parley.agent.providers.base import ModelRequest\n"
        "from parley.agent.providers.local.provider import LocalProvider\n"
        "from parley.config.settings import LocalModelSettings\n"
        "from parley.protocol import ChatMessage\n"
        "async def main():\n"
        "    provider = LocalProvider(LocalModelSettings(weights=sys.argv[1]))\n"
        "    request = ModelRequest('', (ChatMessage('user', 'Count to 1000.'),))\n"
        "    async for event in provider.stream(request):\n"
        "        print('answering', flush=True)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, smollm2.weights], stdout=subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        if moment == "answering":
            assert await asyncio.to_thread(parent.stdout.readline) == b"answering\n"
        await until(lambda: bool(children_of(parent.pid)))
        child = child_of(parent.pid)
    finally:
        parent.kill()
        parent.communicate()
    await until(lambda: not exists(child))
