"""Several backends as one: which of them answers depends on where somebody speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from parley.agent.tokens import Calibration
from parley.backends.base import Backend, Mailbox, ModelMenu, Prefix, Standing, Turn
from parley.protocol import TurnEvent

__all__ = ["Backends"]


class Backends:
    """`default` answers wherever `by_platform` names no other."""

    def __init__(self, default: Backend, by_platform: Mapping[str, Backend]) -> None:
        self._default = default
        self._by_platform = dict(by_platform)
        self._all = _distinct((default, *self._by_platform.values()))

    @property
    def models(self) -> ModelMenu | None:
        """Those of the first that leaves the choice to people."""
        return next((each.models for each in self._all if each.models is not None), None)

    @property
    def calibration(self) -> Calibration | None:
        """That of the first that counts by itself."""
        return next((each.calibration for each in self._all if each.calibration is not None), None)

    def of(self, platform: str) -> Backend:
        return self._by_platform.get(platform, self._default)

    def about(self) -> str:
        others = (
            f"{each.about()} on {_listed(self._platforms_of(each))}"
            for each in self._all
            if each is not self._default
        )
        return "; ".join((self._default.about(), *others))

    async def health(self) -> str | None:
        """What is wrong with any of them."""
        found = await asyncio.gather(*(each.health() for each in self._all))
        return " ".join(dict.fromkeys(filter(None, found))) or None

    def starting(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part for each in self._all for part in each.starting()))

    def start(self, mailbox: Mailbox) -> None:
        for each in self._all:
            each.start(mailbox)

    def warm(self) -> None:
        for each in self._all:
            each.warm()

    def remembers(self, platform: str) -> bool:
        return self.of(platform).remembers(platform)

    async def prefix(self, standing: Standing) -> Prefix | None:
        return await self.of(_platform_of(standing)).prefix(standing)

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        async with aclosing(self.of(_platform_of(turn)).run(turn)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        """Close each once, also those after one that cannot be."""
        results = await asyncio.gather(
            *(each.close() for each in self._all), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _platforms_of(self, backend: Backend) -> list[str]:
        return sorted(name for name, each in self._by_platform.items() if each is backend)


def _platform_of(turn: Turn | Standing) -> str:
    """Where whoever is answered speaks; a delegated task is theirs for whom it works."""
    behalf = turn.request.behalf if turn.request is not None else None
    if turn.source.platform == "task" and behalf is not None:
        return behalf.platform
    return turn.source.platform


def _distinct(backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
    return tuple({id(each): each for each in backends}.values())


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
