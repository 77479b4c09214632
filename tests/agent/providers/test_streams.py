"""Reading another provider's stream: closed at once, and never without a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from parley.agent.providers.base import ModelEvent, ModelRequest, ProviderError
from parley.agent.providers.streams import events_of
from parley.protocol import TextDelta
from tests.agent.providers.builders import ask


class Mumbler:
    """A provider that says one word and then no more. Holds its stream, so only a close ends it."""

    label = "mumbler"
    model = "m"
    context_window = 1000
    offers_tools = False

    def __init__(self) -> None:
        self.is_closed = False
        self.events = self._say()

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        return self.events

    async def _say(self) -> AsyncGenerator[ModelEvent, None]:
        try:
            yield TextDelta("mm")
        finally:
            self.is_closed = True

    async def check(self) -> None: ...

    async def close(self) -> None: ...


async def test_closing_closes_what_is_behind_at_once() -> None:
    provider = Mumbler()
    async with aclosing(events_of(provider, ask())) as events:
        assert await anext(events) == TextDelta("mm")
        assert not provider.is_closed
    assert provider.is_closed


async def test_an_end_without_a_reply_is_broken() -> None:
    with pytest.raises(ProviderError) as caught:
        [_ async for _ in events_of(Mumbler(), ask())]
    assert caught.value.kind == "broken"
