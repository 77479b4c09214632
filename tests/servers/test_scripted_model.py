"""The scripted model does as it is told, also from another process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.servers.scripted_model import Reply, ScriptedModel


@pytest.fixture
def port() -> Iterator[int]:
    command = [sys.executable, "-m", "tests.servers.scripted_model", "--port", "0", "--delay", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["port"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def post(port: int, *messages: dict[str, Any], stream: bool = False) -> tuple[int, str]:
    body = {"model": "m", "messages": list(messages), "stream": stream}
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(address, json=body) as response:
        return response.status, await response.text()


async def said(port: int, *messages: dict[str, Any]) -> Any:
    return json.loads((await post(port, *messages))[1])["choices"][0]["message"]


async def test_it_obeys_directives_in_its_own_process(port: int) -> None:
    before = [user("old"), {"role": "assistant", "content": "echo: old"}]
    assert (await said(port, *before, user("a"), user("b")))["content"] == "echo: a | b"
    assert (await said(port, user("[[long 3]]")))["content"] == "word1 word2 word3"

    asked = user('time? [[tool now {"zone": "UTC"}]]')
    message = await said(port, asked)
    [call] = message["tool_calls"]
    assert (message["content"], call["function"]["name"]) == (None, "now")
    assert json.loads(call["function"]["arguments"]) == {"zone": "UTC"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "noon"}
    assert (await said(port, asked, message, result))["content"] == "tool said: noon"

    failing = user("[[status 429 retry-after 1 times 1]] x")
    assert (await post(port, failing))[0] == 429
    assert (await post(port, failing))[0] == 200

    _, streamed = await post(port, user("[[chunks 20]]"), stream=True)
    assert streamed.count('"content"') == min(20, len("echo: [[chunks 20]]"))

    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/stats") as response:
            stats = await response.json()
        async with session.get(f"http://127.0.0.1:{port}/requests") as response:
            requests = await response.json()
    assert (stats["requests"], stats["open_streams"], len(requests)) == (7, 0, 7)


async def test_a_directive_may_delay_the_first_byte(port: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await post(port, user("[[delay 0.2]]"))
    assert loop.time() - began >= 0.2


async def test_it_counts_streams_and_notes_aborted_ones() -> None:
    async with ScriptedModel(lambda _: Reply("x", delay=30)) as server:
        tasks = [asyncio.create_task(post(server.port, user("a"))) for _ in range(3)]
        await server.until(lambda s: s.open_streams == 3)
        for task in tasks:
            task.cancel()
        await server.until(lambda s: s.open_streams == 0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (server.max_open_streams, server.aborted, server.total) == (3, 3, 3)


async def test_it_can_cut_the_connection() -> None:
    async with ScriptedModel() as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await post(server.port, user("[[cut]] hello"), stream=True)
