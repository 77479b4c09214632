"""A client of the plain protocol: one connection for each message."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from parley.backends.direct.dial import AgentSessionConfig, Dialer
from parley.backends.direct.events import Chunk, End, Working
from parley.backends.direct.letters import Letters

__all__ = ["AgentSessionClient", "MessageChunk", "MessageResponse"]


@dataclass(frozen=True, slots=True)
class MessageChunk:
    """A piece of an answer; the last one is `finished`, and says what the answer took."""

    message_id: str
    delta: str
    finished: bool
    tokens_used: int = 0


@dataclass(frozen=True, slots=True)
class MessageResponse:
    message_id: str
    response: str
    tokens_used: int
    finished: bool


class AgentSessionClient:
    """Speaks with one agent. It holds nothing between messages, so there is nothing to close."""

    def __init__(self, config: AgentSessionConfig) -> None:
        self._key = config.key
        self._dialer = Dialer(config)

    async def stream_message(
        self, *, thread_key: str, text: str
    ) -> AsyncGenerator[MessageChunk, None]:
        """The answer as it comes; raises `PlatformError`. Closing it closes the connection."""
        line = await self._dialer.dial(thread_key, key=self._key)
        letters = Letters(self._dialer.far(self._key))
        try:
            await line.send({"type": "USER_MESSAGE", "text": text})
            while True:
                match await line.next():
                    case Chunk(text=piece):
                        if delta := letters.feed(piece):
                            yield MessageChunk(thread_key, delta, finished=False)
                    case End(tokens_used=used):
                        if delta := letters.finish():
                            yield MessageChunk(thread_key, delta, finished=False)
                        yield MessageChunk(thread_key, "", finished=True, tokens_used=used)
                        return
                    case Working():
                        pass
                    case _:
                        far = self._dialer.far(self._key)
                        raise far.broken("sent a frame that a plain client does not know")
        finally:
            await line.close()

    async def send_message(self, *, thread_key: str, text: str) -> MessageResponse:
        """The whole answer."""
        pieces: list[str] = []
        used = 0
        async with aclosing(self.stream_message(thread_key=thread_key, text=text)) as chunks:
            async for chunk in chunks:
                pieces.append(chunk.delta)
                used = chunk.tokens_used if chunk.finished else used
        return MessageResponse(thread_key, "".join(pieces), used, finished=True)
