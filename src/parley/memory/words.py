"""The words by which two sentences are likely about the same. Pure."""

from __future__ import annotations

import re

__all__ = ["shared", "stems", "telling"]

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_STEM = 5
_COMMON = frozenset(
    _WORD.findall(
        "about also been from have having here like named person said that their them then there "
        "they this user want were what when which will with would your"
    )
)


def telling(text: str) -> frozenset[str]:
    """Words that say what a sentence is about: long ones, names and numbers, by their beginning."""
    found = []
    for word in _WORD.findall(text):
        is_name = word[0].isupper() and len(word) >= 3
        has_digit = any(map(str.isdigit, word))
        if is_name or has_digit or len(word) >= 4 or _UNSPACED.search(word):
            found.append(word)
    return frozenset(stem for word in found for stem in _stems(word)) - _COMMON


def shared(telling_words: frozenset[str], text: str) -> int:
    """How many of them the text holds."""
    return len(telling_words & stems(text))


def stems(text: str) -> frozenset[str]:
    """All its words by their beginning."""
    return frozenset(stem for word in _WORD.findall(text) for stem in _stems(word))


def _stems(word: str) -> list[str]:
    folded = word.casefold()
    if _UNSPACED.search(folded):  # no spaces between words: pairs of characters stand for them
        return [folded[at : at + 2] for at in range(max(1, len(folded) - 1))]
    return [folded if folded in _COMMON else folded[:_STEM]]
