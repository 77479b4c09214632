"""What providers behind a wire format share: their server, their limits, the small live call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from parley.agent.providers.base import ModelEvent, ModelRequest
from parley.agent.providers.http import ModelServer
from parley.agent.providers.render import CHECK

__all__ = ["RemoteProvider"]


class RemoteProvider(ABC):
    """One model of one server. `key_variable` is named when the key is wrong."""

    def __init__(
        self,
        label: str,
        *,
        base_url: str,
        api_key: str | None,
        model: str,
        context_window: int,
        max_output_tokens: int | None = None,
        temperature: float | None = None,
        timeout_seconds: float = 120.0,
        offers_tools: bool = True,
        key_variable: str | None = None,
    ) -> None:
        self._server = ModelServer(
            label,
            base_url=base_url,
            model=model,
            headers=self._headers(api_key),
            key=api_key,
            key_variable=key_variable,
            timeout_seconds=timeout_seconds,
        )
        self._label = label
        self._model = model
        self._context_window = context_window
        self._offers_tools = offers_tools
        self._max_output_tokens = max_output_tokens
        self._temperature = temperature

    @property
    def label(self) -> str:
        return self._label

    @property
    def model(self) -> str:
        return self._model

    @property
    def context_window(self) -> int:
        return self._context_window

    @property
    def offers_tools(self) -> bool:
        return self._offers_tools

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text as it comes, then the whole reply."""

    async def check(self) -> None:
        async with aclosing(self.stream(CHECK)) as events:
            async for _ in events:
                pass

    async def close(self) -> None:
        await self._server.close()

    @staticmethod
    @abstractmethod
    def _headers(api_key: str | None) -> Mapping[str, str]:
        """What the wire format wants in every request."""
