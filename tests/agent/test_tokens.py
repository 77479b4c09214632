"""Estimates of tokens: a little too many rather than too few, and corrected by the provider."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.providers.base import ModelRequest
from parley.agent.tokens import (
    Calibration,
    estimate_tokens,
    margin_of,
    prompt_budget,
    size_of_text,
    tokens_of_request,
    tokens_of_text,
    tokens_of_tool,
)
from parley.protocol import ChatMessage, HistoryEntry, ToolSpec

# Counted with the tokenizer of a small model that knows little but English, which splits such
# text the finest: each is a lower bound for an estimate that is never too small.
COUNTED = {
    "english": ("The quick brown fox jumps over the lazy dog and then goes home. " * 10, 140),
    "chinese": ("今天天气很好，我们一起去公园散步吧。" * 10, 349),
    "arabic": ("مرحبا بالعالم، كيف حالك اليوم يا صديقي؟" * 10, 349),
    "russian": ("Сегодня хорошая погода, пойдём гулять в парк. " * 10, 371),
    "emoji": ("😀🎉👋🚀🐈" * 20, 299),
}


@pytest.mark.parametrize("name", COUNTED)
def test_no_script_is_underestimated(name: str) -> None:
    text, counted = COUNTED[name]
    assert counted <= tokens_of_text(text) <= counted * 2
    assert HistoryEntry(1, ChatMessage("user", text)).size == size_of_text(text)


def test_plain_english_is_a_token_for_three_and_a_half_letters() -> None:
    assert tokens_of_text("x" * 3_500) == 1_008
    assert tokens_of_text("") == estimate_tokens(0) == 8


@given(st.text())
def test_a_text_is_at_least_its_bytes_and_as_much_as_its_parts(text: str) -> None:
    size = size_of_text(text)
    assert size >= len(text.encode(errors="replace"))
    half = len(text) // 2
    assert size - 1 <= size_of_text(text[:half]) + size_of_text(text[half:]) <= size


def test_half_a_character_can_be_measured() -> None:
    assert size_of_text("a\ud83d") >= 2


def test_a_request_is_all_that_is_sent() -> None:
    tool = ToolSpec("look", "Look at it. " * 20, {"type": "object", "properties": {}})
    message = ChatMessage("user", "hello" * 100)
    request = ModelRequest("Be kind.", (message,), (tool,))
    parts = tokens_of_text("Be kind."), estimate_tokens(message.size), tokens_of_tool(tool)
    assert tokens_of_request(request) == sum(parts)
    assert tokens_of_tool(tool) > 80


@pytest.mark.parametrize("window", [512, 1024, 2048, 8192, 32_768, 200_000])
def test_a_prompt_leaves_room_for_the_reply_and_a_margin(window: int) -> None:
    assert prompt_budget(window) == window - window // 4 - margin_of(window)
    assert prompt_budget(window, reply=100) == window - 100 - margin_of(window)
    assert prompt_budget(window, reply=10 * window) >= window // 4
    assert window // 16 <= margin_of(window) <= max(256, window // 16)
    assert margin_of(window) <= window // 8


# ── what providers tell ──


def learned(*observed: tuple[int, int]) -> float:
    calibration = Calibration()
    for estimated, told in observed:
        calibration.observe("one", "m", estimated=estimated, told=told)
    return calibration.factor("one", "m")


def test_nothing_is_known_at_first() -> None:
    assert Calibration().factor("one", "m") == 1.0
    assert Calibration().tokens("one", "m", 1234) == 1234


def test_it_rises_at_once_and_sinks_slowly() -> None:
    assert learned((1000, 1500)) == 1.5
    assert learned((1000, 1500), (1000, 1800)) == 1.8
    assert learned((1000, 1500), (1000, 1000)) == pytest.approx(1.45)
    assert learned((1000, 800)) == pytest.approx(0.98)
    assert learned(*[(1000, 800)] * 60) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    "observed",
    [(1000, 0), (1000, 12), (1000, -5), (199, 400), (0, 10), (1000, 9_000)],
    ids=["told nothing", "only what was new", "less than nothing", "small", "empty", "far off"],
)
def test_nonsense_teaches_nothing(observed: tuple[int, int]) -> None:
    assert learned(observed) == 1.0


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-10, 10**7)), max_size=60))
def test_it_stays_within_reason_and_is_kept(observed: list[tuple[int, int]]) -> None:
    calibration = Calibration()
    for estimated, told in observed:
        calibration.observe("one", "m", estimated=estimated, told=told)
    assert 0.5 <= calibration.factor("one", "m") <= 2.5
    again = Calibration()
    again.from_rows(calibration.to_rows())
    assert again.factor("one", "m") == pytest.approx(calibration.factor("one", "m"), abs=0.001)


def test_each_model_of_each_provider_has_its_own() -> None:
    calibration = Calibration()
    calibration.observe("one", "m", estimated=1000, told=1500)
    assert [calibration.factor(*each) for each in (("one", "n"), ("two", "m"))] == [1.0, 1.0]
    assert calibration.tokens("one", "m", 1000) == 1500


def test_what_was_kept_does_not_undo_what_was_learned_since() -> None:
    calibration = Calibration()
    calibration.observe("one", "m", estimated=1000, told=1500)
    calibration.from_rows({"one\tm": "0.700", "two\ta b": "1.250"})
    assert calibration.to_rows() == {"one\tm": "1.500", "two\ta b": "1.250"}


def test_rows_that_cannot_be_read_are_left_out() -> None:
    calibration = Calibration()
    calibration.from_rows({"one": "1.2", "one\tm": "much", "two\tm": "nan", "three\tm": "90"})
    assert calibration.to_rows() == {}


def test_the_models_that_were_not_asked_for_long_are_let_go() -> None:
    calibration = Calibration()
    for number in range(200):
        calibration.observe("one", f"m{number}", estimated=1000, told=1500)
        calibration.observe("one", "always", estimated=1000, told=1500)
    assert len(calibration.to_rows()) == 64
    assert calibration.factor("one", "always") == 1.5
    assert calibration.factor("one", "m199") == 1.5
    assert calibration.factor("one", "m0") == 1.0
