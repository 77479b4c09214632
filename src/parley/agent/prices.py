"""What models cost. Pure.

As of November 2026, from what the providers publish; prices change, so whoever sets a budget in
money checks them, and corrects them under `prices` in the settings. They are those of an ordinary
call: more for a very long prompt and less for a batch are not in them. Where filling a provider's
cache costs extra, as with Anthropic, that is the price of the prompt here: our calls fill it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from parley.config.hands import PriceSettings
    from parley.protocol import Usage

__all__ = ["FREE", "Price", "cost_micros", "price_of"]

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """For a million tokens, in millionths of a dollar."""

    input: int
    cached: int
    output: int


FREE: Final = Price(0, 0, 0)

# In dollars for a million tokens: of the prompt, of its cached part, of the answer.
_TABLE: Final[Mapping[str, tuple[str, str, str]]] = {
    "gpt-5.6-sol": ("6.25", "0.50", "30"),
    "gpt-5.6-terra": ("2.50", "0.20", "12"),
    "gpt-5.6-luna": ("0.25", "0.02", "1.20"),
    "gpt-5.5": ("5", "0.50", "30"),
    "gpt-5.5-pro": ("30", "30", "180"),
    "gpt-5.4": ("2.50", "0.25", "15"),
    "gpt-5.4-mini": ("0.75", "0.075", "4.50"),
    "gpt-5.4-nano": ("0.20", "0.02", "1.25"),
    "gpt-5.4-pro": ("30", "30", "180"),
    "gpt-5.3-codex": ("1.75", "0.175", "14"),
    "gpt-5.2": ("1.75", "0.175", "14"),
    "gpt-5.1": ("1.25", "0.125", "10"),
    "gpt-5": ("1.25", "0.125", "10"),
    "gpt-5-mini": ("0.25", "0.025", "2"),
    "gpt-5-nano": ("0.05", "0.005", "0.40"),
    "gpt-5-pro": ("15", "15", "120"),
    "gpt-4.1": ("2", "0.50", "8"),
    "gpt-4.1-mini": ("0.40", "0.10", "1.60"),
    "gpt-4.1-nano": ("0.10", "0.025", "0.40"),
    "gpt-4o": ("2.50", "1.25", "10"),
    "gpt-4o-mini": ("0.15", "0.075", "0.60"),
    "o3": ("2", "0.50", "8"),
    "o3-mini": ("1.10", "0.55", "4.40"),
    "o4-mini": ("1.10", "0.275", "4.40"),
    "claude-fable-5-1": ("12.50", "0.25", "50"),
    "claude-fable-5": ("12.50", "1", "50"),
    "claude-opus-5-5": ("5", "0.20", "20"),
    "claude-opus-5": ("6.25", "0.50", "25"),
    "claude-opus-4-8": ("6.25", "0.50", "25"),
    "claude-opus-4-7": ("6.25", "0.50", "25"),
    "claude-opus-4-6": ("6.25", "0.50", "25"),
    "claude-opus-4-5": ("6.25", "0.50", "25"),
    "claude-opus-4-1": ("18.75", "1.50", "75"),
    "claude-opus-4": ("18.75", "1.50", "75"),
    "claude-sonnet-5-5": ("2.50", "0.20", "10"),
    "claude-sonnet-5": ("2.50", "0.20", "10"),
    "claude-sonnet-4-6": ("3.75", "0.30", "15"),
    "claude-sonnet-4-5": ("3.75", "0.30", "15"),
    "claude-sonnet-4": ("3.75", "0.30", "15"),
    "claude-haiku-4-5": ("1.25", "0.10", "5"),
    "gemini-3.7-flash": ("1.50", "0.15", "7.50"),
    "gemini-3.6-flash": ("1.50", "0.15", "7.50"),
    "gemini-3.5-flash": ("1.50", "0.15", "9"),
    "gemini-3.1-pro": ("2", "0.20", "12"),
    "gemini-3-flash": ("0.50", "0.05", "3"),
    "gemini-2.5-pro": ("1.25", "0.125", "10"),
    "gemini-2.5-flash": ("0.30", "0.03", "2.50"),
    "gemini-2.5-flash-lite": ("0.10", "0.01", "0.40"),
}
# What may follow a known name without making another model of it: a date or a running number.
# Anything else, such as `-pro`, is a model of its own, at a price of its own.
_VARIANT = re.compile(
    r"(-latest|-preview)?([-@](20\d{6}|20\d\d-\d\d-\d\d|\d\d-20\d\d|\d\d-\d\d|00\d))?"
)


def price_of(provider: str, model: str, overrides: Mapping[str, PriceSettings]) -> Price | None:
    """What a model costs; None when nobody has said. The one on this machine costs nothing."""
    if provider == "local":
        return FREE
    own = _override(model, overrides) if overrides else None
    if own is not None:
        cached = own.input if own.cached is None else own.cached
        return _price(str(own.input), str(cached), str(own.output))
    return _known(model)


def cost_micros(price: Price, usage: Usage) -> int:
    """What a call cost, in millionths of a dollar, rounded up."""
    prompt, answer = max(0, usage.input_tokens), max(0, usage.output_tokens)
    cached = min(max(0, usage.cached_tokens), prompt)
    total = (prompt - cached) * price.input + cached * price.cached + answer * price.output
    return -(-total // _MILLION)


def _override(model: str, overrides: Mapping[str, PriceSettings]) -> PriceSettings | None:
    """The settings' own: of the whole name, else of the longest beginning with a `*` after it."""
    names = (model, _bare(model))
    for name in names:
        if name in overrides:
            return overrides[name]
    fitting = [
        key
        for key in overrides
        if key.endswith("*") and any(name.startswith(key[:-1]) for name in names)
    ]
    return overrides[max(fitting, key=len)] if fitting else None


@lru_cache(maxsize=256)
def _known(model: str) -> Price | None:
    name = _bare(model).lower()
    if name.startswith("claude-"):
        name = name.replace(".", "-")
    for known, prices in _TABLE.items():
        if name.startswith(known) and _VARIANT.fullmatch(name[len(known) :]):
            return _price(*prices)
    return None


def _bare(model: str) -> str:
    """Without the maker's name that some servers put before it."""
    return model.rpartition("/")[2]


def _price(prompt: str, cached: str, answer: str) -> Price:
    return Price(_micros(prompt), _micros(cached), _micros(answer))


def _micros(dollars: str) -> int:
    return int((Decimal(dollars) * _MILLION).to_integral_value(ROUND_CEILING))
