"""What models cost: found by name, counted exactly, and never guessed."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.prices import FREE, Price, cost_micros, price_of
from parley.config.hands import PriceSettings
from parley.protocol import Usage

COUNTS = st.integers(min_value=0, max_value=10_000_000)
RATES = st.integers(min_value=0, max_value=10**12)


def the_price(model: str, **overrides: PriceSettings) -> Price | None:
    return price_of("openai", model, overrides)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),
        ("gemini-2.5-flash-preview-09-2025", "gemini-2.5-flash"),
        ("gemini-2.5-pro-latest", "gemini-2.5-pro"),
        ("GPT-5-Mini", "gpt-5-mini"),
    ],
)
def test_a_dated_variant_costs_what_its_model_does(model: str, known: str) -> None:
    assert the_price(known) is not None
    assert the_price(model) == the_price(known)


@pytest.mark.parametrize("model", ["gpt-5-mini", "claude-sonnet-4-5"])
def test_the_models_that_are_asked_by_default_have_a_price(model: str) -> None:
    assert the_price(model) is not None


def test_a_model_whose_name_begins_like_anothers_has_its_own_price() -> None:
    assert the_price("gpt-5-mini") != the_price("gpt-5")
    assert the_price("gpt-5-pro") == Price(15_000_000, 15_000_000, 120_000_000)
    assert the_price("gpt-5-mini") == Price(250_000, 25_000, 2_000_000)
    assert the_price("gpt-5-nano") == Price(50_000, 5_000, 400_000)


@pytest.mark.parametrize(
    "model",
    [
        "gpt-5-ultra",
        "gpt-5.9",
        "gpt-50",
        "gpt-5-mini-audio",
        "gpt-5-mini:free",
        "claude-opus-4-99",
        "gemini-2.5-flash-preview-tts",
        "llama-3",
        "o3-deep-research",
        "",
        "gpt-5-mini/",
    ],
)
def test_a_model_that_only_resembles_a_known_one_has_no_price(model: str) -> None:
    assert the_price(model) is None


def test_the_model_on_this_machine_costs_nothing() -> None:
    dear = {"*": PriceSettings(input=5, output=5)}
    assert price_of("local", "whatever", dear) == FREE


def test_the_settings_have_the_last_word() -> None:
    own = {"gpt-5-mini": PriceSettings(input=1, output=2, cached=0.5)}
    assert the_price("gpt-5-mini", **own) == Price(1_000_000, 500_000, 2_000_000)
    assert the_price("openai/gpt-5-mini", **own) == Price(1_000_000, 500_000, 2_000_000)
    assert the_price("gpt-5-mini-2025-08-07", **own) == the_price("gpt-5-mini-2025-08-07")


def test_a_beginning_with_a_star_counts_for_all_that_begin_so_and_the_longest_most() -> None:
    own = {
        "*": PriceSettings(input=9, output=9),
        "my*": PriceSettings(input=1, output=1),
        "my-large*": PriceSettings(input=2, output=2),
        "my-large-1": PriceSettings(input=3, output=3),
    }
    models = ("other", "my-small", "my-large-2", "my-large-1", "maker/my-large-2")
    prices = [the_price(model, **own) for model in models]
    assert [price.input // 1_000_000 for price in prices if price] == [9, 1, 2, 3, 2]


def test_a_cached_part_without_a_price_of_its_own_costs_as_the_rest() -> None:
    assert the_price("mine", mine=PriceSettings(input=3, output=1)) == Price(
        3_000_000, 3_000_000, 1_000_000
    )


def test_a_price_is_taken_exactly_as_it_is_written() -> None:
    assert the_price("mine", mine=PriceSettings(input=0.1, output=0.0000001)) == Price(
        100_000, 100_000, 1
    )


def test_a_call_costs_its_fresh_its_cached_and_its_written_part() -> None:
    price = Price(3_000_000, 300_000, 15_000_000)
    usage = Usage("p", "m", input_tokens=1_000, output_tokens=100, cached_tokens=400)
    assert cost_micros(price, usage) == 600 * 3 + 120 + 100 * 15


def test_a_part_of_a_millionth_counts_as_a_whole_one() -> None:
    assert cost_micros(Price(1, 1, 1), Usage("p", "m", input_tokens=1)) == 1
    assert cost_micros(FREE, Usage("p", "m", 10**9, 10**9)) == 0


@given(RATES, RATES, RATES, COUNTS, COUNTS, COUNTS)
def test_the_cost_is_exact_and_rounded_up(
    fresh: int, cached: int, answer: int, tokens: int, part: int, output: int
) -> None:
    part = min(part, tokens)
    exact = Fraction((tokens - part) * fresh + part * cached + output * answer, 10**6)
    cost = cost_micros(Price(fresh, cached, answer), Usage("p", "m", tokens, output, part))
    assert exact <= cost < exact + 1


@given(st.integers(), st.integers(), st.integers())
def test_no_count_that_a_server_reports_makes_a_call_earn_money(
    tokens: int, output: int, part: int
) -> None:
    assert cost_micros(Price(7, 3, 11), Usage("p", "m", tokens, output, part)) >= 0


@given(st.text(max_size=60))
def test_any_name_has_a_price_or_none(model: str) -> None:
    assert the_price(model) is None or model
