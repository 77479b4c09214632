"""What a person says in a long conversation, and what is to be known of them at its end. Pure.

Forty things they tell of themselves are scattered among questions about the world; ten of them
turn out otherwise later, and five they want forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["LEAST_TURNS", "TURNS", "Question", "Said", "build_questions", "build_script"]

TURNS: Final = 300
LEAST_TURNS: Final = 160
_APART: Final = 30
"""Turns between a thing and what becomes of it, so that it was folded away by then."""
_QUIET_END: Final = 60
"""Talk after the last of it, so that all of it is folded away at the end."""

What: TypeAlias = Literal["talk", "told", "corrected", "forgotten"]


@dataclass(frozen=True, slots=True)
class Said:
    """One message. `topic` is what it tells of the person; empty for talk about the world."""

    text: str
    what: What = "talk"
    topic: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """Asked at the end: what is recalled holds `must`, and none of `must_not`, in any case."""

    topic: str
    text: str
    must: str | None
    must_not: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Thing:
    """`word` is in nothing else that is said, so that finding it means one thing."""

    said: str
    word: str
    question: str


_TOLD: Final[Mapping[str, _Thing]] = {
    "dog": _Thing("By the way, my dog is called Biscuit.", "Biscuit", "What is their dog called?"),
    "home town": _Thing("I live in Porto, if that matters.", "Porto", "What is their home town?"),
    "job": _Thing("I work as a bookbinder, you know.", "bookbinder", "What is their job?"),
    "sister": _Thing(
        "That reminds me: my sister is called Ingrid.", "Ingrid", "Who is their sister?"
    ),
    "birthday": _Thing(
        "My birthday is on the ninth of November.", "November", "When is their birthday?"
    ),
    "allergy": _Thing("Careful, I am allergic to cashews.", "cashews", "Do they have an allergy?"),
    "coffee order": _Thing(
        "My coffee order is a cortado.", "cortado", "What is their coffee order?"
    ),
    "laptop": _Thing("My laptop is a ThinkPad.", "ThinkPad", "Which laptop do they have?"),
    "editor of choice": _Thing(
        "My editor of choice is Helix.", "Helix", "Which editor do they use?"
    ),
    "car": _Thing("I drive a Peugeot, sadly.", "Peugeot", "Which car do they have?"),
    "football team": _Thing(
        "My football team is Benfica.", "Benfica", "Which football team is theirs?"
    ),
    "instrument": _Thing("I play the bassoon, badly.", "bassoon", "Which instrument do they play?"),
    "dentist": _Thing("My dentist is Doctor Okafor.", "Okafor", "Who is their dentist?"),
    "climbing night": _Thing(
        "My climbing night is Thursday.", "Thursday", "When is climbing night?"
    ),
    "daughter": _Thing(
        "My daughter is called Wilhelmina.", "Wilhelmina", "What is their daughter called?"
    ),
    "daughter's school": _Thing(
        "My daughter's school is Larkfield.", "Larkfield", "Which school is it?"
    ),
    "landlord": _Thing("My landlord is Mister Pereira.", "Pereira", "Who is their landlord?"),
    "favourite colour": _Thing(
        "My favourite colour is turquoise.", "turquoise", "Their favourite colour?"
    ),
    "favourite author": _Thing(
        "My favourite author is Calvino.", "Calvino", "Their favourite author?"
    ),
    "favourite film": _Thing(
        "My favourite film is Solaris.", "Solaris", "What is their favourite film?"
    ),
    "home server": _Thing(
        "My home server is called heron.", "heron", "What is the home server called?"
    ),
    "backup disk": _Thing(
        "My backup disk is a Seagate.", "Seagate", "Which backup disk do they have?"
    ),
    "database": _Thing(
        "The database of the shop is MariaDB.", "MariaDB", "Which database is there?"
    ),
    "shop": _Thing("My shop is called Paperwren.", "Paperwren", "What is their shop called?"),
    "paper supplier": _Thing(
        "My paper supplier is Kozomill.", "Kozomill", "Who is the paper supplier?"
    ),
    "accountant": _Thing(
        "My accountant is called Benedikt.", "Benedikt", "Who is their accountant?"
    ),
    "atlas deadline": _Thing(
        "My atlas deadline is in February.", "February", "When is the atlas deadline?"
    ),
    "next trip": _Thing(
        "My next trip is to Reykjavik.", "Reykjavik", "Where does their next trip go?"
    ),
    "preferred seat": _Thing(
        "My preferred seat is by the aisle.", "aisle", "What is their preferred seat?"
    ),
    "shoe size": _Thing("My shoe size is forty-three.", "forty-three", "What is their shoe size?"),
    "new language": _Thing(
        "I am learning Hungarian, slowly.", "Hungarian", "Which new language is it?"
    ),
    "diet": _Thing("My diet is pescatarian.", "pescatarian", "What is their diet?"),
    "partner": _Thing("My partner is called Tomasz.", "Tomasz", "Who is their partner?"),
    "anniversary": _Thing("My anniversary is in October.", "October", "When is their anniversary?"),
    "bicycle": _Thing("My bicycle is a Brompton.", "Brompton", "Which bicycle do they ride?"),
    "phone": _Thing("My phone is a Fairphone.", "Fairphone", "Which phone do they have?"),
    "temperatures": _Thing(
        "I prefer Celsius for temperatures.", "Celsius", "How to give temperatures?"
    ),
    "cat next door": _Thing(
        "The cat next door is called Marzipan.", "Marzipan", "Who is the cat next door?"
    ),
    "alarm tune": _Thing("My alarm tune is a foghorn.", "foghorn", "What is their alarm tune?"),
    "blood group": _Thing(
        "My blood group is AB-negative.", "AB-negative", "What is their blood group?"
    ),
}
_CORRECTED: Final[Mapping[str, tuple[str, str]]] = {
    "home town": ("We have moved, so Coimbra is my home town now.", "Coimbra"),
    "job": ("I changed careers: I am now employed as a cartographer.", "cartographer"),
    "coffee order": ("I gave up milk, so make that an espresso for my coffee order.", "espresso"),
    "laptop": ("It died on me; the laptop I use these days is a Tuxedo.", "Tuxedo"),
    "editor of choice": ("I switched again: Neovim is my editor of choice now.", "Neovim"),
    "climbing night": ("They gave us another slot: Monday is my climbing night now.", "Monday"),
    "next trip": ("Change of plan: Ljubljana is my next trip now.", "Ljubljana"),
    "phone": ("I dropped it, so the phone I use these days is a Nokia.", "Nokia"),
    "atlas deadline": ("The client wrote: the atlas deadline was moved to April.", "April"),
    "diet": ("No fish for me any more, so vegan is my diet now.", "vegan"),
}
_FORGOTTEN: Final[Mapping[str, str]] = {
    "landlord": "Please forget my landlord, that was private.",
    "accountant": "Please forget my accountant; I should not have named anybody.",
    "shoe size": "Please forget my shoe size, it is of no use to you.",
    "anniversary": "Please forget my anniversary, I would rather you did not know.",
    "blood group": "Please forget my blood group, that is nobody's business.",
}

_ASKS: Final = (
    "Could you explain", "I was wondering about", "Tell me something about", "Help me understand",
    "What is interesting about", "Someone on the radio spoke of", "Give me a short tour of",
)  # fmt: skip
_SUBJECTS: Final = (
    "how tides work", "the history of lighthouses", "why bread rises", "how glaciers move",
    "the rules of cricket", "how bees find their way", "the invention of the zip",
    "how bridges carry weight", "why leaves change colour", "how clocks were kept at sea",
    "the making of glass", "how canals climb hills", "why some metals rust",
    "how maps flatten the globe", "the first printed newspapers", "how whales sleep",
)  # fmt: skip
_TURNS_OF_TALK: Final = (
    "I read half an article on it and lost the thread where the numbers began",
    "an old documentary made it sound simple, and then a book made it sound impossible",
    "it came up at lunch and nobody at the table could say it in plain words",
    "there was a drawing of it in a museum once, with arrows pointing in every direction",
    "people seem to repeat the same three sentences about it without checking any",
    "every answer that can be found online begins with the weather and ends with the moon",
)
_ENDS: Final = (
    "Keep it short, and leave out the mathematics.", "One example would be enough.",
    "Start from the beginning, as for a child.", "What do most people get wrong there?",
    "Which part of it is still disputed?", "How would one try that out in a kitchen?",
)  # fmt: skip


def build_script(seed: int = 1, *, turns: int = TURNS) -> list[Said]:
    """The same for the same seed. What becomes of a thing is said well after the thing."""
    chance = random.Random(seed)
    changes = [*_CORRECTED, *_FORGOTTEN]
    others = [topic for topic in _TOLD if topic not in changes]
    middle, end = turns // 2, turns - _QUIET_END
    early = sorted(chance.sample(range(middle - _APART), len(changes)))
    late = sorted(chance.sample(range(middle, end), len(changes)))
    free = sorted(set(range(end)) - set(early) - set(late))
    chance.shuffle(changes)
    script = [_talk(chance) for _ in range(turns)]
    for topic, first, second in zip(changes, early, late, strict=True):
        script[first] = Said(_TOLD[topic].said, "told", topic)
        script[second] = _change(topic)
    for topic, turn in zip(others, chance.sample(free, len(others)), strict=True):
        script[turn] = Said(_TOLD[topic].said, "told", topic)
    return script


def build_questions() -> list[Question]:
    """One for each thing that was told."""
    found: list[Question] = []
    for topic, thing in _TOLD.items():
        if topic in _FORGOTTEN:
            found.append(Question(topic, thing.question, None, (thing.word,)))
        elif topic in _CORRECTED:
            found.append(Question(topic, thing.question, _CORRECTED[topic][1], (thing.word,)))
        else:
            found.append(Question(topic, thing.question, thing.word))
    return found


def _change(topic: str) -> Said:
    if topic in _FORGOTTEN:
        return Said(_FORGOTTEN[topic], "forgotten", topic)
    return Said(_CORRECTED[topic][0], "corrected", topic)


def _talk(chance: random.Random) -> Said:
    def one(of: Sequence[str]) -> str:
        return chance.choice(of)

    return Said(f"{one(_ASKS)} {one(_SUBJECTS)}? I mean, {one(_TURNS_OF_TALK)}. {one(_ENDS)}")
