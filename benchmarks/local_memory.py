"""What the model on this machine learns from six short conversations, and keeps of a long one.

`python -m benchmarks.local_memory` says fifteen facts to Qwen, among other things, and looks at
what is remembered once the conversations rest; then it asks for one in a new conversation, corrects
one and has one forgotten. At the end it prints the summary of a longer conversation to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.in_process import gateway_here
from benchmarks.local import Person
from benchmarks.report import Row, print_table
from parley.agent.providers.local.pool import ModelPool
from parley.backends.agent import AgentBackend
from parley.config import load_settings
from parley.profiles import DEFAULT_PROFILE, Profile, profile_scope
from parley.storage.memory import person_place
from parley.storage.sqlite import SqliteStore

__all__: list[str] = []

_LEARNED_WITHIN = 180.0

_TALKS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "a",
        (
            "Hi, I'm Robin and I live in Bergen.",
            "What is the tallest mountain on Earth?",
            "By the way, I'm allergic to peanuts.",
        ),
        ("robin", "bergen", "peanut"),
    ),
    (
        "b",
        (
            "I work as a nurse at the children's hospital.",
            "Can you give me a synonym for happy?",
            "My brother Jonas is getting married in June.",
        ),
        ("nurse", "jonas.*(marr|june)|marr.*jonas"),
    ),
    (
        "c",
        (
            "We have a dog called Biscuit, he is a beagle.",
            "How many ounces are in a pound?",
            "I'm learning Spanish because I want to move to Valencia next year.",
        ),
        ("biscuit", "spanish", "valencia"),
    ),
    (
        "d",
        ("I don't eat meat.", "My favourite band is Radiohead.", "What is 17 times 3?"),
        ("meat|vegetarian", "radiohead"),
    ),
    (
        "e",
        (
            "I drive an old Volvo and it broke down again yesterday.",
            "Which gas do plants take in?",
            "My daughter Ida starts school in August.",
        ),
        ("volvo", "ida.*(school|august)|school.*ida"),
    ),
    (
        "f",
        (
            "I play the cello in an amateur orchestra.",
            "My birthday is on 12 October.",
            "I prefer short answers.",
        ),
        ("cello", "october", "short"),
    ),
)
_LONG = (
    "I am planning a week in Lisbon with my friend Carla in May. Any advice on when to book?",
    "We have a budget of 1500 euros for the two of us.",
    "Carla does not like flying, so we think of taking the train. Is that sensible?",
    "Let us say we take the night train to Madrid and then a bus.",
    "Name three sights in Lisbon in one line.",
    "We want to see the tower in Belem and skip the museums.",
    "Where could we eat fish?",
    "I still have to ask my boss for the week off. Remind me of that later.",
)


async def _until_learned(
    store: SqliteStore, chat: str, *, kinds: Sequence[str] = ("learned", "archived", "folded")
) -> None:
    """Until something was made of the conversation in this chat."""
    ends = time.monotonic() + _LEARNED_WITHIN
    while time.monotonic() < ends:
        for commit in await store.commits(limit=1000):
            session = None if commit.session is None else await store.tended(commit.session)
            if session is None or commit.kind not in kinds:
                continue
            if session.key.endswith(f":{chat}"):
                return
        await asyncio.sleep(0.2)


async def _run(weights: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(DEFAULT_PROFILE, Path(folder))
        config = {
            "local": {"weights": weights},
            "memory": {"idle_check_interval": 0.5},
            "plan": {"tokens": None},
        }
        profile.config_file.write_text(json.dumps(config))
        with profile_scope(profile):
            settings, pool = load_settings(profile), ModelPool()
            backend = AgentBackend(profile, settings, secret=lambda _: None, local_models=pool)
            person = Person()
            async with gateway_here(profile, settings, backend, person) as here:
                return await _measure(here.store, person)


async def _measure(store: SqliteStore, person: Person) -> list[Row]:
    place = person_place(f"{Person.platform}:robin")
    facts: list[str] = []
    found, false = 0, list[str]()
    for chat, says, wanted in _TALKS:
        known = set(facts)
        for number, text in enumerate(says):
            await person.say(chat, text, f"{chat}-{number}", user="robin")
        started = time.perf_counter()
        await _until_learned(store, chat)
        facts = [fact.text for fact in await store.facts([place])]
        new = [fact for fact in facts if fact not in known]
        right = [each for each in wanted if any(re.search(each, fact, re.I) for fact in new)]
        found += len(right)
        false += [f for f in new if not any(re.search(each, f, re.I) for each in wanted)]
        seconds = time.perf_counter() - started
        print(f"{chat}: {len(right)} of {len(wanted)} in {seconds:.1f} s", flush=True)
        for fact in new:
            print(f"    {fact}", flush=True)
        missing = set(wanted) - set(right)
        if missing:
            print(f"    missing: {', '.join(sorted(missing))}", flush=True)
    for commit in await store.commits(limit=1000):
        if commit.kind == "archived":
            print("    log:", commit.note, flush=True)
    recalled = await person.say("g", "What am I allergic to?", "g-0", user="robin")
    await person.say("h", "I moved: I live in Oslo now, not in Bergen.", "h-0", user="robin")
    await _until_learned(store, "h")
    moved = [fact.text for fact in await store.facts([place])]
    await person.say("i", "Please forget that my favourite band is Radiohead.", "i-0", user="robin")
    await _until_learned(store, "i")
    left = [fact.text for fact in await store.facts([place])]
    print("recalled:", recalled, "\nafter the correction:", *moved, sep="\n    ", flush=True)
    print("after forgetting:", *left, sep="\n    ", flush=True)
    wanted_count = sum(len(wanted) for _, _, wanted in _TALKS)
    patterns = [each for _, _, wanted in _TALKS for each in wanted]
    kept = sum(any(re.search(each, fact, re.I) for fact in left) for each in patterns)
    corrected = any("Oslo" in fact for fact in moved) and not any("in Bergen" in f for f in moved)
    for number, text in enumerate(_LONG):
        await person.say("long", text, f"long-{number}", user="robin")
    answer = await person.say("long", "/compact", "long-compact", user="robin")
    print("compact:", answer, flush=True)
    await _until_learned(store, "long", kinds=("folded",))
    for commit in await store.commits(limit=1000):
        if commit.kind == "folded" and commit.session is not None:
            session = await store.tended(commit.session)
            if session is not None:
                print("summary:", session.summary, sep="\n", flush=True)
    return [
        Row("planted facts learned", f"{found} of {wanted_count}", "≥ 12 of 15", found >= 12),
        Row("still known at the end", f"{kept} of {wanted_count - 1}", "", kept >= 11),
        Row("false ones", f"{len(false)}", "≤ 2", len(false) <= 2),
        Row("recalled in a new conversation", recalled[:60], "", "peanut" in recalled.lower()),
        Row("corrected", str(corrected), "", corrected),
        Row("forgotten", str(not _has(left, "radiohead")), "", not _has(left, "radiohead")),
    ]


def _has(facts: Sequence[str], word: str) -> bool:
    return any(word in fact.lower() for fact in facts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="qwen", help="an installed model, or a .gguf file")
    rows = asyncio.run(_run(parser.parse_args().weights))
    print_table("Memory with the local model", rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
