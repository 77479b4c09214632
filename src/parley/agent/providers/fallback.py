"""Another provider answers when the first one cannot."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from parley.agent.providers.base import ModelEvent, ModelRequest, Provider, ProviderError, is_small
from parley.agent.providers.streams import events_of
from parley.agent.providers.wishes import demands_a_tool, unsupported
from parley.protocol import TextReset

__all__ = ["FallbackProvider"]


class FallbackProvider:
    """Asks its providers in order until one answers. Speaks of itself as the first of them.

    A reply's usage names who answered. A request that is at fault itself is not passed on: a
    refusal would come again, what is not supported is told, and what is too long needs a larger
    window.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        if not providers:
            raise ValueError("a FallbackProvider needs at least one provider")
        self._providers = tuple(providers)
        self._first = self._providers[0]

    @property
    def label(self) -> str:
        return self._first.label

    @property
    def model(self) -> str:
        return self._first.model

    @property
    def context_window(self) -> int:
        return self._first.context_window

    @property
    def offers_tools(self) -> bool:
        return self._first.offers_tools

    @property
    def is_small(self) -> bool:
        return is_small(self._first)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream from the first provider that answers; a broken-off text is withdrawn."""
        failures: list[tuple[Provider, ProviderError]] = []
        has_spoken = False
        for provider in self._providers:
            if failures and not _may_help(provider, *failures[-1]):
                continue
            if has_spoken:
                has_spoken = False
                yield TextReset()
            try:
                fitting = _fitting(provider, request)
                async with aclosing(events_of(provider, fitting)) as events:
                    async for event in events:
                        has_spoken = not isinstance(event, TextReset)
                        yield event
            except ProviderError as error:
                failures.append((provider, error))
            else:
                return
        raise _all_failed(failures)

    async def check(self) -> None:
        """Check the first provider; the others can be checked by themselves."""
        await self._first.check()

    async def close(self) -> None:
        for provider in self._providers:
            await provider.close()


def _fitting(provider: Provider, request: ModelRequest) -> ModelRequest:
    if provider.offers_tools or not request.tools:
        return request
    if demands_a_tool(request):
        raise unsupported(f"{provider.label}'s model {provider.model}", "tool_choice")
    return replace(request, tools=())


def _may_help(provider: Provider, failed: Provider, error: ProviderError) -> bool:
    if error.kind == "too_long":
        return provider.context_window > failed.context_window
    if error.kind == "unsupported":
        return False  # who asked chose this model, and is told
    # A model that is gone there may be had elsewhere: the request itself is sound.
    return error.kind != "refused"


def _all_failed(failures: Sequence[tuple[Provider, ProviderError]]) -> ProviderError:
    first = failures[0][1]
    if len(failures) == 1:
        return first
    each = "; ".join(f"({p.label}) {str(error).rstrip('.')}" for p, error in failures)
    waits = [error.retry_after for _, error in failures if error.retry_after is not None]
    return ProviderError(
        f"No provider could answer: {each}.",
        kind=first.kind,
        status=first.status,
        retry_after=min(waits, default=None),
    )
