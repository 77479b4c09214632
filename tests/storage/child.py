"""A process that submits messages and names each one after the store took it, until killed."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from parley.storage.contract import Store
from parley.storage.people import Arrival
from parley.storage.sqlite import SqliteStore
from tests.builders import a_message, event_name, say

AT_ONCE = 20


def open_at(address: str) -> Store:
    engine, _, place = address.partition(":")
    assert engine == "sqlite", engine
    return SqliteStore.open(Path(place))


async def _submit_for_ever(store: Store, chat: str) -> None:
    for number in count():
        await say(store, str(number), chat=chat)
        sys.stdout.write(f"{chat} {number}\n")
        sys.stdout.flush()


async def _stream_for_ever(store: Store, stream: str) -> None:
    """Two messages at a time, with a mark that says how far the stream is."""
    for number in count():
        arrivals = [
            Arrival(chat, event_name(str(number), chat=chat), a_message(str(number), chat=chat))
            for chat in (f"{stream}-a", f"{stream}-b")
        ]
        await store.submit_all(arrivals, {stream: str(number)})
        sys.stdout.write(f"{stream} {number}\n")
        sys.stdout.flush()


async def _main(address: str, submit: str) -> None:
    store = open_at(address)
    for_ever = _stream_for_ever if submit == "together" else _submit_for_ever
    async with asyncio.TaskGroup() as group:
        for number in range(AT_ONCE):
            group.create_task(for_ever(store, f"chat-{number}"))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
