"""What is remembered, as an owner reads it in a terminal. Pure.

`width` is how many columns the terminal has; None: it is not one, and no line is broken.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from parley.cli._plain import one_line, plain
from parley.storage.memory import PROFILE, Commit, Fact, Forgotten, Line, Origin

__all__ = [
    "Reasons",
    "as_fact",
    "as_list",
    "as_log",
    "as_reasons",
    "forgotten_words",
    "place_words",
]

_LONGEST = 2_000
_LONGEST_NAME = 60
_NARROWEST_TEXT = 28
_FROM_MESSAGES: frozenset[Origin] = frozenset({"learned", "tool"})
_SPEAKERS = {"assistant": "the agent", "tool": "a tool", "system": "Parley"}
_ORIGINS: Mapping[Origin, str] = {
    "learned": "learned from what was said",
    "tool": "noted by the agent when it was asked to",
    "command": "told by a command in a chat",
    "hand": "written by hand",
    "import": "imported",
}


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why something is remembered: what it came from, and the commits that made it what it is.

    `titles` are those of sessions.
    """

    fact: Fact
    replaced: Sequence[Fact]
    lines: Sequence[Line]
    commits: Sequence[Commit]
    titles: Mapping[str, str]


def as_list(
    facts: Sequence[Fact],
    names: Mapping[str, str],
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
) -> str:
    """By place: the profile's, then people's, then chats'. `names` is what people are called."""
    rows = [("id", "kind", "said", "sure")]
    rows += [
        (str(fact.id), one_line(fact.kind, longest=20), _day(fact.said_at, zone), _sure(fact))
        for fact in facts
    ]
    metas = _aligned(rows, right=(0, 3))
    pieces = [f"  {metas[0]}  what\n"]
    meta_of = dict(zip((fact.id for fact in facts), metas[1:], strict=True))
    for number, place in enumerate(_in_order({fact.place for fact in facts})):
        pieces.append(("\n" if number else "") + f"{place_words(place, names)}\n")
        for fact in facts:
            if fact.place == place:
                pieces.append(_row(f"  {meta_of[fact.id]}", _words(fact), width))
    return "".join(pieces)


def as_fact(
    fact: Fact,
    replaced: Sequence[Fact],
    names: Mapping[str, str],
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
) -> str:
    """All of it, a line each."""
    rows = [
        ("id", str(fact.id)),
        ("what", fact.text),
        ("where", place_words(fact.place, names)),
        ("kind", fact.kind),
        ("sure", _sure(fact)),
        ("said", _minute(fact.said_at, zone)),
        ("said by", _called(fact.person, names) if fact.person else "an owner"),
        ("changed", _minute(fact.at, zone)),
        ("origin", _ORIGINS[fact.origin]),
        ("messages", _how_many(fact)),
    ]
    if fact.outside:
        rows.append(("read in", fact.outside))
    if fact.session is not None:
        rows.append(("session", fact.session))
    if fact.state != "current":
        rows.append(("state", _state(fact)))
    rows += [
        ("replaced", f"{_words(old, state=False)} ({old.id}, {_day(old.said_at, zone)})")
        for old in replaced
    ]
    return "".join(
        _row(f"{name:<8}", one_line(text, longest=_LONGEST), width) for name, text in rows
    )


def as_reasons(
    reasons: Reasons,
    names: Mapping[str, str],
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
) -> Iterator[str]:
    """The words it came from, then how it became what it is, piece by piece."""
    fact = reasons.fact
    yield _row(str(fact.id), _words(fact), width)
    yield f"\n{_told_of(reasons)}\n"
    if fact.outside:
        told = f"The agent had read {one_line(fact.outside, longest=_LONGEST)} before it."
        yield _row("", told, width)
    for line in reasons.lines:
        yield f"\n{_second(line.at, zone)}  {_speaker(line, names)}\n"
        words = plain(line.message.text).strip("\n") or "(no words)"
        for part in words.splitlines():
            yield _row(" ", part.rstrip(), width) if part.strip() else "\n"
    if reasons.replaced:
        yield "\nIt took the place of:\n"
        for old in reasons.replaced:
            yield _row(f"  {old.id}  {_day(old.said_at, zone)}", _words(old, state=False), width)
    if reasons.commits:
        yield "\nMade by:\n"
        yield as_log(reasons.commits, names, width=width, zone=zone)


def as_log(
    commits: Sequence[Commit],
    names: Mapping[str, str],
    *,
    width: int | None = None,
    zone: tzinfo | None = None,
) -> str:
    """One line a commit: its id, when, what it was, how much, and where by whom."""
    rows = [("id", "when", "what", "change")]
    rows += [(str(each.id), _minute(each.at, zone), each.kind, _how_much(each)) for each in commits]
    texts = ["where", *(_commit_words(each, names) for each in commits)]
    metas = _aligned(rows, right=(0,))
    return "".join(_row(f"  {meta}", text, width) for meta, text in zip(metas, texts, strict=True))


def forgotten_words(gone: Forgotten) -> str:
    """How much went."""
    if not gone.facts and not gone.messages:
        return "There was nothing to forget."
    kinds = ", ".join(
        f"{count} {one_line(kind, longest=20)}" for kind, count in sorted(gone.kinds.items())
    )
    current = sum(gone.kinds.values())
    earlier = len(gone.facts) - current
    said = f"Forgotten for good: {_count(current, 'fact')}"
    said += f" ({kinds})" if kinds else ""
    said += f" and {_count(earlier, 'earlier one')}" if earlier > 0 else ""
    if gone.messages:
        said += f", with the words of {_count(gone.messages, 'message')}"
    return f"{said}. This cannot be undone."


def place_words(place: str, names: Mapping[str, str]) -> str:
    """A place as it is named on the command line."""
    if place == PROFILE:
        return "this profile"
    if not place:
        return "several places"
    kind, _, rest = place.partition(":")
    return f"person {_called(rest, names)}" if kind == "person" else f"{kind} {_name(rest)}"


def _how_much(commit: Commit) -> str:
    """`~`: facts were changed, and none came or went."""
    return f"+{commit.added} −{commit.removed}" if commit.added or commit.removed else "~"


def _commit_words(commit: Commit, names: Mapping[str, str]) -> str:
    parts = [place_words(commit.place, names)]
    parts += [one_line(commit.note, longest=_LONGEST)] if commit.note.strip() else []
    parts += [f"by {_name(commit.by)}"] if commit.by else []
    parts += [f"undone by {commit.undone_by}"] if commit.undone_by is not None else []
    return " · ".join(parts)


def _told_of(reasons: Reasons) -> str:
    """Where the messages below were said, and how many are missing from them."""
    fact, there = reasons.fact, len(reasons.lines)
    if not fact.sources and fact.origin not in _FROM_MESSAGES:
        return f"No message lies behind it: it was {_ORIGINS[fact.origin]}."
    if not there:
        return "The messages it came from are gone: their conversation or their words were deleted."
    where = ""
    if fact.session is not None:
        title = one_line(reasons.titles.get(fact.session, ""), longest=_LONGEST_NAME)
        where = f" in session {fact.session}" + (f" ({title})" if title else "")
    gone = len(set(fact.sources)) - there
    missing = f" {_count(gone, 'other message')} of it {_are(gone)} gone." if gone > 0 else ""
    return f"It came from what was said{where}.{missing}"


def _speaker(line: Line, names: Mapping[str, str]) -> str:
    if line.message.role in _SPEAKERS:
        return _SPEAKERS[line.message.role]
    return _called(line.person, names)


def _how_many(fact: Fact) -> str:
    if not fact.sources:
        return "none"
    return f"{len(set(fact.sources))}; `parley memory why {fact.id}` shows them"


def _words(fact: Fact, *, state: bool = True) -> str:
    said = one_line(fact.text, longest=_LONGEST)
    return f"{said} ({_state(fact)})" if state and fact.state != "current" else said


def _state(fact: Fact) -> str:
    if fact.state == "replaced" and fact.replaced_by is not None:
        return f"replaced by {fact.replaced_by}"
    return "no longer so" if fact.state == "removed" else fact.state


def _called(person: str, names: Mapping[str, str]) -> str:
    called = one_line(names.get(person, ""), longest=30)
    return f"{_name(person)} ({called})" if called else _name(person)


def _name(text: str) -> str:
    return one_line(text, longest=200)


def _in_order(places: set[str]) -> list[str]:
    kinds = {"profile": 0, "person": 1, "chat": 2}
    return sorted(places, key=lambda place: (kinds.get(place.partition(":")[0], 3), place))


def _sure(fact: Fact) -> str:
    return f"{fact.confidence:.0%}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


# ── lines ─────────────────────────────────────────────────────────────────────────────────────


def _aligned(rows: Sequence[tuple[str, ...]], *, right: Sequence[int]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            f"{cell:>{width}}" if column in right else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _row(meta: str, text: str, width: int | None) -> str:
    """The text behind its columns, or below them where too little room is left."""
    if width is None or len(meta) + 2 + len(text) <= width:
        return f"{meta}  {text}".rstrip() + "\n"
    beside = width - len(meta) - 2 >= _NARROWEST_TEXT
    indent = " " * (len(meta) + 2 if beside else 4)
    lines = textwrap.wrap(
        text,
        max(width, len(indent) + 10),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    if beside and lines:
        lines[0] = f"{meta}  {lines[0].lstrip()}"
    else:
        lines.insert(0, meta.rstrip())
    return "\n".join(lines) + "\n"


def _day(at: float, zone: tzinfo | None) -> str:
    return f"{_moment(at, zone):%Y-%m-%d}"


def _minute(at: float, zone: tzinfo | None) -> str:
    return f"{_moment(at, zone):%Y-%m-%d %H:%M}"


def _second(at: float, zone: tzinfo | None) -> str:
    return f"{_moment(at, zone):%Y-%m-%d %H:%M:%S}"


def _moment(at: float, zone: tzinfo | None) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone(zone)
