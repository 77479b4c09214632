"""Three hundred turns: at the end what holds is known, and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.conversation_script import TURNS, build_questions, build_script
from benchmarks.long_conversation import Conversation, converse, small_window

from parley.config import load_settings
from tests.servers.extractor import Extractor, things_in
from tests.servers.gateway_process import write_config
from tests.servers.scripted_model import ScriptedModel

_WINDOW = 6_000
_VIEW = Path("memory/people/bystander-owner/USER.md")
_PROMPT_TOKENS = 300  # too few for all of it


def test_the_script_is_the_same_every_time_and_tells_what_it_is_to_tell() -> None:
    script = build_script(7)
    assert script == build_script(7)
    assert script != build_script(8)
    assert len(script) == TURNS
    whats = [said.what for said in script]
    assert [whats.count(what) for what in ("told", "corrected", "forgotten")] == [40, 10, 5]
    for what in ("corrected", "forgotten"):
        for said in (each for each in script if each.what == what):
            told = next(e for e in script if e.topic == said.topic and e.what == "told")
            assert script.index(told) + 30 <= script.index(said)


@pytest.mark.parametrize("seed", [1, 2])
def test_each_word_that_is_looked_for_is_said_once(seed: int) -> None:
    texts = [said.text.lower() for said in build_script(seed)]
    for question in build_questions():
        for word in (question.must, *question.must_not):
            if word is not None:
                assert sum(word.lower() in text for text in texts) == 1, word


def test_the_model_by_rules_understands_the_script() -> None:
    words = {question.topic: question for question in build_questions()}
    for said in build_script():
        told = list(things_in(said.text))
        if said.what in ("talk", "forgotten"):
            assert told == [], said
            continue
        [(topic, value, is_news)] = told
        question = words[said.topic]
        wanted = (
            question.must_not[0] if said.what == "told" and question.must_not else question.must
        )
        assert (topic, is_news) == (said.topic, said.what == "corrected")
        assert wanted is not None
        assert wanted in value


async def test_after_300_turns_what_holds_is_known_and_nothing_else(tmp_path: Path) -> None:
    model = Extractor()
    async with ScriptedModel(model) as server:
        profile = write_config(tmp_path, model_url=server.base_url)
        settings = small_window(
            load_settings(profile, {}), "scripted", None, window=_WINDOW, interval=0.02
        )
        memory = settings.memory.model_copy(update={"prompt_tokens": _PROMPT_TOKENS})
        settings = settings.model_copy(update={"memory": memory})
        done = await converse(profile, settings, build_script(), build_questions(), rest_every=30)
    assert [_told(known.question.topic, done) for known in done.wrong] == []
    assert done.facts == 35
    assert done.folds >= 3
    assert max(asked.tokens for asked in model.asked) <= _WINDOW * 7 // 8  # room for the reply
    assert 5 <= sum(known.in_prompt for known in done.known) < 35
    assert sum(known.in_search for known in done.known) == 35
    assert "Coimbra" in (profile.home / _VIEW).read_text()
    kept = _remembered(profile.database_file)
    assert "coimbra" in kept
    for question in build_questions():
        if question.must is None:
            assert question.must_not[0].lower() not in kept, question.topic


def _remembered(file: Path) -> str:
    """All that is stored of memory; what was said is in other tables."""
    with closing(sqlite3.connect(file)) as db:
        tables = ("fact", "fact_words", "memory_commit", "memory_change", "memory_place")
        rows = [row for table in tables for row in db.execute(f"SELECT * FROM {table}")]
        rows += db.execute("SELECT summary FROM session")
    return "\n".join(str(row) for row in rows).lower()


def _told(topic: str, done: Conversation) -> str:
    known = next(each for each in done.known if each.question.topic == topic)
    return f"{topic}: in prompt {known.in_prompt}, found {known.in_search}, stale {known.stale}"
