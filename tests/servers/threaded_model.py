"""The scripted model in a thread of its own, for tests that wait for real processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.scripted_model import Script, ScriptedModel

__all__ = ["model_in_thread"]


@contextmanager
def model_in_thread(script: Script | None = None) -> Iterator[ScriptedModel]:
    """Serve until the block ends."""
    server = ScriptedModel(script)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with server:
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(60)
        loop.close()
