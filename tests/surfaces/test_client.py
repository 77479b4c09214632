"""The terminal's end of the socket."""

from __future__ import annotations

import asyncio
import select
import socket
from pathlib import Path

from parley.surfaces.terminal.client import TerminalClient
from parley.surfaces.terminal.wire import Ack, Deliver, Show, encode


async def test_the_last_acknowledgement_arrives_although_more_is_said_meanwhile(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client = await TerminalClient.connect(tmp_path / "s")
        gateway, _ = listener.accept()
    gateway.sendall(encode(Deliver(7, "k", "reply", "hello")))
    assert isinstance(await client.receive(), Deliver)
    await client.ack(7)
    leaving = asyncio.create_task(client.close())
    left = select.poll()
    left.register(gateway, select.POLLRDHUP)
    assert await asyncio.to_thread(left.poll, 5000)
    reader, writer = await asyncio.open_unix_connection(sock=gateway)
    writer.write(encode(Show(1, "ended")))
    assert await reader.readline() == encode(Ack(7))
    writer.close()
    await leaving
