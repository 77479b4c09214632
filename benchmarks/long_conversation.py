"""A conversation of 300 turns, and what is known at its end: what holds, and nothing else.

`python -m benchmarks.long_conversation` talks with a model by rules. With `--provider NAME`, and
`--model NAME`, it talks with that one, as your settings have it: that costs some 320 model calls
of up to `--window` tokens each. What it remembers goes into a temporary directory.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.servers.extractor import Extractor
from tests.servers.gateway_process import write_config
from tests.servers.scripted_model import ScriptedModel

from benchmarks.conversation_script import (
    LEAST_TURNS,
    TURNS,
    Question,
    Said,
    build_questions,
    build_script,
)
from benchmarks.in_process import gateway_here
from benchmarks.report import Row, print_table
from parley.agent.providers import key_variable
from parley.backends.agent import AgentBackend
from parley.backends.base import Turn
from parley.config import Secrets, load_settings
from parley.config.settings import ProviderSettings, Settings
from parley.memory.embeddings import find_embedder
from parley.memory.finding import Finder
from parley.memory.places import places_of
from parley.profiles import DEFAULT_PROFILE, Profile, default_profile, profile_scope
from parley.protocol import Failed, Final, StepTaken, TurnEvent
from parley.storage.sqlite import SqliteStore

__all__ = ["Conversation", "Known", "converse", "run", "small_window"]

_CHAT = "long"
_TOOLS = ["memory", "now"]
_REST_EVERY = 25
_ANSWERED_WITHIN = 600.0
_TENDED_WITHIN = 1800.0
_FAREWELL = "Thank you, that is all for today."


@dataclass(frozen=True, slots=True)
class Known:
    """What came back for one question: in the prompt, and by searching."""

    question: Question
    in_prompt: bool
    in_search: bool
    stale: tuple[str, ...]

    @property
    def ok(self) -> bool:
        recalled = self.in_prompt or self.in_search or self.question.must is None
        return recalled and not self.stale


@dataclass(frozen=True, slots=True)
class Conversation:
    """How it went. `largest` is the most tokens a turn sent, as the model counted them."""

    known: tuple[Known, ...]
    turns: int
    folds: int
    facts: int
    largest: int
    seconds: float
    memory: str
    summary: str

    @property
    def wrong(self) -> list[Known]:
        return [known for known in self.known if not known.ok]


@dataclass(slots=True)
class _Watch:
    last: Turn | None = None
    largest: int = 0


class _WatchedAgent(AgentBackend):
    """The built-in agent; notes what its turns were given and how much they sent."""

    watch: _Watch

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.watch.last = turn
        async with aclosing(super().run(turn)) as events:
            async for event in events:
                if isinstance(event, StepTaken | Final | Failed) and event.usage is not None:
                    self.watch.largest = max(self.watch.largest, event.usage.input_tokens)
                yield event


async def converse(
    profile: Profile,
    settings: Settings,
    script: Sequence[Said],
    questions: Sequence[Question],
    *,
    secret: Callable[[str], str | None] = lambda _: None,
    rest_every: int = _REST_EVERY,
    tell: Callable[[str], None] = lambda _: None,
) -> Conversation:
    """Say all of it, one message after the other, with a rest now and then; then look."""
    started = time.perf_counter()
    backend = _WatchedAgent(profile, settings, secret=secret)
    watch = backend.watch = _Watch()
    async with gateway_here(profile, settings, backend) as here:
        store = here.store
        for number, said in enumerate(script, start=1):
            await here.surface.ask(_CHAT, said.text, within=_ANSWERED_WITHIN)
            if number % rest_every == 0 or number == len(script):
                await _until_tended(store, watch)
                tell(f"{number} turns")
        await here.surface.ask(_CHAT, _FAREWELL, within=_ANSWERED_WITHIN)
        turn = watch.last
        assert turn is not None
        places = places_of(turn.session_key, turn.source)
        finder = Finder(store, lambda: find_embedder(settings.memory.embeddings))
        views = _views(profile)
        known = [await _look(finder, places.read, turn, views, one) for one in questions]
        commits = await store.commits(session=turn.session_id, limit=1000)
        return Conversation(
            known=tuple(known),
            turns=len(script),
            folds=sum(commit.kind == "folded" for commit in commits),
            facts=len(await store.facts(places.read)),
            largest=watch.largest,
            seconds=time.perf_counter() - started,
            memory=turn.memory,
            summary=turn.summary,
        )


async def _until_tended(store: SqliteStore, watch: _Watch) -> None:
    """Nobody talks, until all that was said is learned."""
    assert watch.last is not None
    async with asyncio.timeout(_TENDED_WITHIN):
        while True:
            session = await store.tended(watch.last.session_id)
            if session is not None and session.seen.tend_at is None:
                return
            await asyncio.sleep(0.01)


async def _look(
    finder: Finder, places: Sequence[str], turn: Turn, views: str, question: Question
) -> Known:
    found = "\n".join(fact.text for fact in await finder(question.text, places))
    must = (question.must or "\0").lower()
    everywhere = "\n".join((turn.memory, turn.summary, found, views)).lower()
    stale = tuple(word for word in question.must_not if word.lower() in everywhere)
    return Known(question, must in turn.memory.lower(), must in found.lower(), stale)


def _views(profile: Profile) -> str:
    files = sorted((profile.home / "memory").rglob("*.md"))
    return "\n".join(file.read_text() for file in files)


# ── settings ──────────────────────────────────────────────────────────────────────────────────


def small_window(
    settings: Settings, provider: str, model: str | None, *, window: int, interval: float
) -> Settings:
    """Who answers, with so small a window that a long conversation must be folded."""
    entry = settings.providers.get(provider) or ProviderSettings()
    asked = entry.model_copy(update={"context_window": window, "max_output_tokens": window // 8})
    if model is not None:
        asked = asked.model_copy(update={"model": model})
    return settings.model_copy(
        update={
            "model": settings.model.model_copy(
                update={"provider": provider, "name": model, "fallback": []}
            ),
            "providers": {**settings.providers, provider: asked},
            "local": settings.local.model_copy(update={"context_tokens": window}),
            "plan": settings.plan.model_copy(update={"tokens": None}),
            "agent": settings.agent.model_copy(update={"tools": _TOOLS}),
            "memory": settings.memory.model_copy(
                update={"enabled": True, "learn": True, "idle_check_interval": interval}
            ),
        }
    )


def run(
    *,
    provider: str | None = None,
    model: str | None = None,
    window: int = 6_000,
    turns: int = TURNS,
    seed: int = 1,
) -> list[Row]:
    return uvloop.run(_run(provider, model, window=window, turns=turns, seed=seed))


async def _run(
    provider: str | None, model: str | None, *, window: int, turns: int, seed: int
) -> list[Row]:
    script, questions = build_script(seed, turns=turns), build_questions()
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        profile = Profile(DEFAULT_PROFILE, Path(folder))
        if provider is not None:
            theirs = default_profile()
            settings = small_window(
                load_settings(theirs), provider, model, window=window, interval=1.0
            )
            with profile_scope(theirs):
                key = Secrets(theirs).get(key_variable(settings, provider))
            done = await converse(
                profile, settings, script, questions, secret=lambda _: key, tell=_tell
            )
        else:
            async with ScriptedModel(Extractor()) as server:
                write_config(profile.home, model_url=server.base_url)
                settings = small_window(
                    load_settings(profile), "scripted", None, window=window, interval=0.02
                )
                done = await converse(profile, settings, script, questions, tell=_tell)
    return _rows(done, window)


def _tell(words: str) -> None:
    print(words, flush=True)


def _rows(done: Conversation, window: int) -> list[Row]:
    current = [known for known in done.known if known.question.must is not None]
    recalled = [known for known in current if known.in_prompt or known.in_search]
    stale = [known for known in done.known if known.stale]
    rows = [
        Row(f"{done.turns} turns", f"{done.seconds:.0f} s, {done.folds} folds, {done.facts} facts"),
        Row(
            "what holds is recalled",
            f"{len(recalled)} of {len(current)}"
            f" ({sum(known.in_prompt for known in current)} in the prompt,"
            f" {sum(known.in_search for known in current)} by searching)",
            "all",
            len(recalled) == len(current),
        ),
        Row("what was corrected or forgotten is", f"{len(stale)} recalled", "none", not stale),
        Row(
            "largest request, tokens as the model counts",
            f"{done.largest:,}",
            f"≤ {window:,}",
            done.largest <= window,
        ),
    ]
    for known in done.wrong:
        why = f"still has {', '.join(known.stale)}" if known.stale else "is not recalled"
        rows.append(Row(f"  {known.question.topic}", why))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_conversation")
    parser.add_argument("--provider", help="a name under `providers` of your settings")
    parser.add_argument("--model")
    parser.add_argument("--window", type=int, default=6_000, help="tokens of its context window")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    if wanted.turns < LEAST_TURNS:
        parser.error(f"all that is to be told needs {LEAST_TURNS} turns")
    rows = run(**vars(wanted))
    print_table("a long conversation", rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
