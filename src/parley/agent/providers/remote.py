"""What providers behind a wire format share: their server, their limits, the small live call."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from parley.agent.providers.attachments import (
    FileText,
    Loaded,
    Takes,
    has_files,
    last_question,
    load_attachments,
    shown_places,
)
from parley.agent.providers.base import ModelEvent, ModelRequest, ProviderError
from parley.agent.providers.http import ModelServer
from parley.agent.providers.pdf_text import pdf_texts
from parley.agent.providers.refusals import about_files, cannot_see
from parley.agent.providers.render import CHECK

__all__ = ["RemoteProvider"]


class RemoteProvider(ABC):
    """One model of one server. `key_variable` is named when the key is wrong."""

    # It has shown that it cannot see: pictures of earlier messages are only named from then on.
    _is_blind = False

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

    @property
    def _takes(self) -> Takes:
        return Takes(pictures=True)

    @abstractmethod
    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply's text as it comes, then the whole reply."""

    async def check(self) -> None:
        async with aclosing(self.stream(CHECK)) as events:
            async for _ in events:
                pass

    async def close(self) -> None:
        await self._server.close()

    @abstractmethod
    def _payload(self, request: ModelRequest, files: Loaded | None = None) -> bytes:
        """The request as it is sent, with `files` as they were read."""

    async def _encoded(self, request: ModelRequest, *, last_only: bool) -> bytes:
        """The payload, with the files of all messages, or of the last question `last_only`."""
        if not has_files(request.messages):
            return self._payload(request)
        since = last_question(request.messages) if last_only else 0
        takes = self._takes.within(self._context_window)
        texts = await pdf_texts(request, takes)
        # Large pictures take their time to be read and encoded.
        return await asyncio.to_thread(self._read_and_encode, request, since, texts)

    def _read_and_encode(
        self, request: ModelRequest, since: int, texts: Mapping[str, FileText] | None = None
    ) -> bytes:
        takes = self._takes.within(self._context_window)
        loaded = load_attachments(request.messages, takes, since=since, texts=texts)
        return self._payload(request, loaded)

    def _may_do_with_last(self, request: ModelRequest, error: ProviderError) -> bool:
        """Whether the files of earlier messages may be what was refused.

        One picture that a server does not take must not end the whole conversation.
        """
        shown = shown_places(request.messages, self._takes)
        fault = about_files(error, names=(self._label, self._model)) if shown else None
        if fault == "unseen":
            self._is_blind = True
        return fault is not None and shown[0] < last_question(request.messages)

    def _explained(self, request: ModelRequest, error: ProviderError) -> ProviderError:
        """What a refusal means when it is about the files of the question."""
        if about_files(error, names=(self._label, self._model)) != "unseen":
            return error
        since = last_question(request.messages)
        if not shown_places(request.messages, self._takes, since=since):
            return error
        return cannot_see(self._label, self._model, request.messages[since], error)

    @staticmethod
    @abstractmethod
    def _headers(api_key: str | None) -> Mapping[str, str]:
        """What the wire format wants in every request."""
