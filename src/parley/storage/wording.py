"""When two sentences say the same, and when a line tells of a fact. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

__all__ = ["Telling", "holds", "is_outdated", "normal_form", "without_lines"]

_ARTICLES = frozenset({"a", "an", "the"})
# These mean something at the edge of a word: `C#`, `-5`, `50%`, `/etc`, `@alice`.
_MEANT = frozenset("#@%&-/\\")
_LEAST_LENGTH = 4
_LEAST_SHARE = 0.6
_LEAST_WORDS = 2
_SHORTEST_STEM = 3
# In every other line of a summary.
_COMMON = frozenset(
    {"about", "also", "been", "does", "from", "have", "into", "name", "person", "some", "than"}
    | {"that", "their", "them", "they", "this", "user", "users", "want", "wants", "were", "when"}
    | {"with", "would"}
)


def normal_form(text: str) -> str:
    """The text as it is compared: without case, articles, and punctuation around words."""
    folded = _folded(text)
    words = [word for word in map(_bare, folded.split()) if word]
    kept = [word for word in words[:-1] if word not in _ARTICLES] + words[-1:]
    return " ".join(kept) or " ".join(folded.split())


def holds(line: str, fact: str) -> bool:
    """Whether a line tells of a fact: most of the words that make it out are in it."""
    wanted = _significant(fact)
    if not wanted:
        form = normal_form(fact)
        return bool(form) and f" {form} " in f" {normal_form(line)} "
    folded = _folded(line)
    words = {_stem(word) for word in _words(folded)}
    found = sum(word in words or (not word.isascii() and word in folded) for word in wanted)
    return found >= min(_LEAST_WORDS, len(wanted)) and found >= _LEAST_SHARE * len(wanted)


def is_outdated(line: str, before: str, since: str) -> bool:
    """Whether a line tells of a fact as it was before it was corrected, and not as it is since."""
    old, new = _significant(before), _significant(since)
    if not holds(line, before) or not old - new:
        return False
    words = {_stem(word) for word in _words(_folded(line))}
    return bool((old - new) & words) and not (new - old) & words


class Telling:
    """Whether a line `holds` one of many facts: each of them is taken apart once, and so is it."""

    def __init__(self, facts: Iterable[str]) -> None:
        self._forms: set[str] = set()
        self._needed: list[tuple[int, float]] = []
        self._with_word: dict[str, list[int]] = {}
        for fact in facts:
            wanted = _significant(fact)
            if not wanted:
                self._forms.add(normal_form(fact))
                continue
            for word in wanted:
                self._with_word.setdefault(word, []).append(len(self._needed))
            self._needed.append((min(_LEAST_WORDS, len(wanted)), _LEAST_SHARE * len(wanted)))
        self._forms.discard("")
        # These are found within others too, for not every script has spaces between words.
        self._foreign = [word for word in self._with_word if not word.isascii()]
        self._known: dict[str, bool] = {}

    def __call__(self, line: str) -> bool:
        if line not in self._known:
            self._known[line] = self._looked_at(line)
        return self._known[line]

    def _looked_at(self, line: str) -> bool:
        folded = _folded(line)
        words = {_stem(word) for word in _words(folded)}
        words.update(word for word in self._foreign if word in folded)
        found = Counter(fact for word in words for fact in self._with_word.get(word, ()))
        for fact, count in found.items():
            least, share = self._needed[fact]
            if count >= least and count >= share:
                return True
        if not self._forms:
            return False
        form = f" {normal_form(line)} "
        return any(f" {each} " in form for each in self._forms)


def without_lines(text: str, tells: Callable[[str], bool]) -> str:
    """The text without the lines that tell of something."""
    return "".join(line for line in text.splitlines(keepends=True) if not tells(line))


def _folded(text: str) -> str:
    form = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", form).replace("’", "'")


def _bare(word: str) -> str:
    """A word without the punctuation around it; empty when it is nothing else."""
    if not any(sign.isalnum() or unicodedata.category(sign)[0] in "SM" for sign in word):
        return ""
    start, end = 0, len(word)
    while start < end and _is_edge(word[start]):
        start += 1
    while end > start and _is_edge(word[end - 1]):
        end -= 1
    return word[start:end]


def _is_edge(sign: str) -> bool:
    return unicodedata.category(sign).startswith("P") and sign not in _MEANT


def _words(text: str) -> list[str]:
    return [word.removesuffix("'s") for word in re.findall(r"\w+(?:[.'@:/-]\w+)*", text)]


def _stem(word: str) -> str:
    """A word without what its use in a sentence adds to it: lives, lived, living."""
    if not (word.isascii() and word.isalpha()):
        return word
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def _significant(fact: str) -> set[str]:
    """Long ones, names and numbers, as they are compared; common ones where there are no others."""
    spaced = unicodedata.normalize("NFKC", fact).replace("’", "'")
    found = {
        folded
        for word in _words(spaced)
        if (folded := _folded(word)) not in _ARTICLES
        and (
            len(word) >= _LEAST_LENGTH
            or word[0].isupper()
            or any(sign.isdigit() for sign in word)
            or not word.isascii()
        )
    }
    return {_stem(word) for word in found - _COMMON or found}
