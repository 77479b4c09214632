"""The page on memory: its examples, with a model by rules that remembers as a good one would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import MEMORY_PAGE, steps
from tests.docs.reader import Reader, home_of
from tests.servers.extractor import Extractor
from tests.servers.scripted_model import ScriptedModel
from tests.servers.scripted_reply import Reply

_ANSWERS = {
    "Good morning! I live in Lyon, right beside the river.": "Good morning! That sounds lovely.",
    "Paris is my home town now: we moved last week.": "I hope the boxes are unpacked soon!",
    "What shall we cook tonight?": "Something with leeks.",
}


@pytest.fixture
def stage() -> Callable[[Mapping[str, Any]], Reply | None]:
    """Talk is answered as the page has it, and tending is left to the rules."""
    extractor = Extractor()

    def answer(asked: Mapping[str, Any]) -> Reply | None:
        words = asked["messages"][-1]["content"]
        if words == "Where do I live?":
            known = " ".join(str(message["content"]) for message in asked["messages"][:-1])
            return Reply("In Lyon." if "Their home town is Lyon." in known else "I do not know.")
        return Reply(_ANSWERS[words]) if words in _ANSWERS else extractor(asked)

    return answer


@pytest.mark.timeout(400)
def test_the_examples_remember_correct_and_forget(tmp_path: Path, far_model: ScriptedModel) -> None:
    home = home_of(tmp_path, "", far_model)
    with Reader(home, tmp_path / "models", folder=tmp_path) as reader:
        for step in steps(MEMORY_PAGE.read_text()):
            reader.follow(step)
