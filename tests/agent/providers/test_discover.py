"""Finding model servers on this machine."""

from __future__ import annotations

import asyncio
import time

import pytest

from parley.agent.providers.discover import (
    WELL_KNOWN_PORTS,
    Discovered,
    discover,
    ports_here,
)
from tests.servers.ports import free_port
from tests.servers.scripted_model import ScriptedModel


async def test_running_servers_are_found_with_their_models() -> None:
    async with ScriptedModel(models=("a", "b")) as one, ScriptedModel(models=()) as two:
        found = await discover({one.port: "ollama", two.port: "lmstudio", free_port(): "vllm"})
    assert found == [
        Discovered("ollama", one.base_url, ("a", "b")),
        Discovered("lmstudio", two.base_url, ()),
    ]


async def test_a_server_that_says_what_it_is_is_believed() -> None:
    async with ScriptedModel(owner="vllm") as server:
        [found] = await discover({server.port: "llamacpp"})
    assert found.kind == "vllm"


async def test_something_else_on_the_port_is_not_found() -> None:
    async def web_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")
        writer.close()

    async with await asyncio.start_server(web_page, "127.0.0.1", 0) as server:
        assert await discover({server.sockets[0].getsockname()[1]: "vllm"}) == []


async def test_silent_ports_are_waited_for_at_the_same_time_and_not_long() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other side goes
        writer.close()

    async with (
        await asyncio.start_server(silent, "127.0.0.1", 0) as one,
        await asyncio.start_server(silent, "127.0.0.1", 0) as two,
    ):
        ports = {s.sockets[0].getsockname()[1]: "vllm" for s in (one, two)}
        began = time.monotonic()
        assert await discover(ports, timeout_seconds=5) == []
        assert time.monotonic() - began < 9


def test_the_usual_ports_are_known() -> None:
    assert WELL_KNOWN_PORTS == {11434: "ollama", 1234: "lmstudio", 8080: "llamacpp", 8000: "vllm"}


@pytest.mark.parametrize(
    "told", ["127.0.0.1:11500", "0.0.0.0:11500", ":11500", "http://localhost:11500", "[::]:11500"]
)
def test_an_ollama_at_another_port_is_looked_for_there(told: str) -> None:
    ports = ports_here({"OLLAMA_HOST": told})
    assert ports == {11500: "ollama", 1234: "lmstudio", 8080: "llamacpp", 8000: "vllm"}


@pytest.mark.parametrize("told", ["", "0.0.0.0", "box.lan:11500", "127.0.0.1:many", "[::1"])
def test_without_another_port_on_this_machine_the_usual_ones_are_asked(told: str) -> None:
    assert ports_here({"OLLAMA_HOST": told}) == WELL_KNOWN_PORTS


def test_an_ollama_takes_the_place_of_whoever_is_known_at_its_port() -> None:
    assert ports_here({"OLLAMA_HOST": ":8080"}) == {8080: "ollama", 1234: "lmstudio", 8000: "vllm"}
