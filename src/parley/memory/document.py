"""What is remembered as a document that can be kept elsewhere and read again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.memory.wording import kind_named, worded
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE, Fact, NewFact

__all__ = ["Told", "as_document", "read_document"]

_MARK: Final = "parley_memory"
_PLACE = re.compile(r"(?:person|chat):[^\s:][^\s]*")
_MOST_FAULTS: Final = 5


@dataclass(frozen=True, slots=True)
class Told:
    """A fact of a document, and the place it says it belongs to."""

    place: str
    fact: NewFact


class _FactRecord(BaseModel):
    model_config = ConfigDict(extra="ignore")

    place: Annotated[str, Field(max_length=1000)]
    text: str
    kind: str = "note"
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    said_at: Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)] | None = None
    person: Annotated[str, Field(max_length=1000)] = ""
    outside: Annotated[str, Field(max_length=1000)] = ""


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")

    parley_memory: Literal[1]
    facts: list[_FactRecord]


def as_document(facts: Iterable[Fact]) -> dict[str, object]:
    """The facts without where they came from: that is known only where they were said."""
    return {
        _MARK: 1,
        "facts": [
            {
                "place": fact.place,
                "kind": fact.kind,
                "text": fact.text,
                "confidence": fact.confidence,
                "said_at": fact.said_at,
                "person": fact.person,
                "outside": fact.outside,
            }
            for fact in facts
        ],
    }


def read_document(document: object) -> tuple[list[Told], list[str]]:
    """Its facts, and what was left out and why. What is not such a document is an error."""
    if not isinstance(document, dict) or _MARK not in document:
        raise ParleyError(f"This is no exported memory, for it has no `{_MARK}`.")
    if document[_MARK] != 1:
        raise ParleyError("This memory was exported by a newer Parley; update this one first.")
    try:
        found = _Document.model_validate(document)
    except ValidationError as error:
        faults = [_sentence(fault["loc"], fault["msg"]) for fault in error.errors()]
        raise ParleyError(_few(faults)) from None
    told: list[Told] = []
    faults, problems = [], []
    for number, record in enumerate(found.facts, 1):
        if record.place != PROFILE and not _PLACE.fullmatch(record.place):
            faults.append(f"Fact {number}: `{record.place[:60]}` is no place.")
            continue
        try:
            fact = NewFact(
                worded(record.text),
                kind=kind_named(record.kind),
                confidence=record.confidence,
                said_at=record.said_at,
                person=record.person,
                outside=record.outside,
            )
        except ParleyError as error:
            problems.append(f"Fact {number} was left out: {error}")
        else:
            told.append(Told(record.place, fact))
    if faults:
        raise ParleyError(_few(faults))
    return told, problems


def _sentence(where: tuple[int | str, ...], what: str) -> str:
    match where:
        case ("facts", int(number), *rest):
            name = ".".join(map(str, rest))
            return f"Fact {number + 1}{f', `{name}`' if name else ''}: {_small(what)}."
        case _:
            return f"`{'.'.join(map(str, where))}`: {_small(what)}."


def _small(what: str) -> str:
    return what[:1].lower() + what[1:]


def _few(faults: list[str]) -> str:
    more = len(faults) - _MOST_FAULTS
    return "\n".join([*faults[:_MOST_FAULTS], *([f"And {more} more faults."] if more > 0 else [])])
