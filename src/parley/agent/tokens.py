"""How many tokens something is, by estimate: offline, and corrected by what providers tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from parley.agent.providers.base import ModelRequest, ToolSpec
from parley.protocol import size_of_text

__all__ = [
    "Calibration",
    "estimate_tokens",
    "margin_of",
    "prompt_budget",
    "size_of_text",
    "tokens_of_request",
    "tokens_of_text",
    "tokens_of_tool",
]

_LEAST_ESTIMATED: Final = 200
_NONSENSE_BELOW, _NONSENSE_ABOVE = 0.25, 4.0
_LEAST, _MOST = 0.5, 2.5
_SINKS_BY: Final = 0.1
_MOST_MODELS: Final = 64


def estimate_tokens(size: int, *, messages: int = 1) -> int:
    """A little too many rather than too few, without a tokenizer, from the size of messages."""
    return size * 2 // 7 + 8 * messages


def tokens_of_text(text: str) -> int:
    return estimate_tokens(size_of_text(text))


def tokens_of_tool(spec: ToolSpec) -> int:
    """Braces and quotation marks are many short tokens."""
    told = len(spec.name) + size_of_text(spec.description) + size_of_text(str(spec.parameters))
    return told // 3


def tokens_of_request(request: ModelRequest) -> int:
    """Of all that is sent. It measures every message anew."""
    tokens = tokens_of_text(request.system)
    tokens += sum(estimate_tokens(message.size) for message in request.messages)
    return tokens + sum(tokens_of_tool(tool) for tool in request.tools)


def prompt_budget(window: int, *, reply: int | None = None) -> int:
    """How much of a window a prompt may take: all but the reply and a margin."""
    return window - margin_of(window) - min(reply or window // 4, window // 2)


def margin_of(window: int) -> int:
    """What is left free because estimates are none but that."""
    return min(max(256, window // 16), window // 8)


class Calibration:
    """How far the estimates are off, for each model: learned from the numbers providers tell.

    It rises at once, so that no window is exceeded, and sinks slowly.
    """

    def __init__(self) -> None:
        self._factors: dict[tuple[str, str], float] = {}

    def factor(self, label: str, model: str) -> float:
        return self._factors.get((label, model), 1.0)

    def tokens(self, label: str, model: str, estimated: int) -> int:
        return round(estimated * self.factor(label, model))

    def observe(self, label: str, model: str, *, estimated: int, told: int) -> None:
        """A request of so many tokens by estimate was `told` to be so many."""
        if estimated < _LEAST_ESTIMATED:
            return
        ratio = told / estimated
        # A server that tells nothing, or only what it had not cached, teaches nothing.
        if not _NONSENSE_BELOW <= ratio <= _NONSENSE_ABOVE:
            return
        known = self.factor(label, model)
        wanted = min(max(ratio, _LEAST), _MOST)
        made = wanted if wanted > known else known + (wanted - known) * _SINKS_BY
        self._put(label, model, made)

    def to_rows(self) -> dict[str, str]:
        return {
            f"{label}\t{model}": f"{factor:.3f}" for (label, model), factor in self._factors.items()
        }

    def from_rows(self, rows: Mapping[str, str]) -> None:
        """Take in what was kept: not over what was learned since, nor what cannot be read."""
        for name, value in rows.items():
            label, _, model = name.partition("\t")
            try:
                factor = float(value)
            except ValueError:
                continue
            if model and (label, model) not in self._factors and _LEAST <= factor <= _MOST:
                self._put(label, model, factor)

    def _put(self, label: str, model: str, factor: float) -> None:
        """The newest last; the model that was not asked for the longest time is let go."""
        self._factors.pop((label, model), None)
        self._factors[label, model] = factor
        if len(self._factors) > _MOST_MODELS:
            del self._factors[next(iter(self._factors))]
