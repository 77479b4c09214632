"""What is remembered in a place as a page of Markdown, and what a hand changed in it. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from parley.memory.secrets import looks_secret
from parley.memory.wording import LONGEST, flat
from parley.protocol import ParleyError
from parley.storage.memory import PROFILE, Edit, Fact, NewFact
from parley.storage.wording import normal_form

__all__ = [
    "END",
    "Merged",
    "Unclear",
    "ViewLine",
    "ViewLines",
    "is_newer",
    "merge",
    "parse",
    "render",
]

END: Final = "<!-- end -->"
"""The last line of a page: without it the page may have been cut off.

Ours also says how far the page knows: when the newest fact on it was last changed.
"""

_HINT: Final = (
    "<!-- Edit freely: change a line, remove it, or add one below a heading. "
    "`[12]` is its number; leave it. -->"
)
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,2}[.)])(?:\s+(?P<rest>.*))?")
_NUMBER = re.compile(r"\[(?P<id>\d{1,18})\](?:\s+|$)")
_DATE = re.compile(r"(?:^|\s+)· \d{4}-\d\d-\d\d$")
_LAST = re.compile(r"<!-- end(?:, as of (?P<as_of>.*?)(?: UTC)?)? -->")
_RULE = re.compile(r"[\s*_=`~|:-]+")


@dataclass(frozen=True, slots=True)
class ViewLine:
    """A line of a page. `id` is the number it bears, None when it has none."""

    id: int | None
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ViewLines:
    """A page as it was read. `title` and `ended` say whether its first and last line are there.

    What was changed behind `as_of` it does not know; None: it does not say.
    """

    title: bool
    ended: bool
    lines: tuple[ViewLine, ...]
    as_of: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What a hand changed, and what of it was left out and why, in sentences.

    `numbers` are those that the words of some additions bear, though no fact has them any more:
    from another page, or from this one as it was long ago, `as_of` then.
    """

    edit: Edit
    problems: tuple[str, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict, compare=False)
    as_of: datetime.datetime | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        return not (self.edit.adds or self.edit.changes or self.edit.removes)


class Unclear(ParleyError):
    """A page that does not say what its hand meant: nothing is taken from it."""


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def render(place: str, facts: Iterable[Fact]) -> str:
    """The page of a place: by kind, and in a kind by number; a fact is one line."""
    page = [f"# {_title(place)}", "", _HINT]
    kind: str | None = None
    shown = sorted(facts, key=lambda fact: (_heading(fact.kind), fact.id))
    for fact in shown:
        if _heading(fact.kind) != kind:
            kind = _heading(fact.kind)
            page += ["", f"## {kind}", ""]
        page.append(f"- [{fact.id}] {flat(fact.text)} · {_day(fact.said_at)}")
    return "\n".join((*page, "", _last_line(shown), ""))


def _title(place: str) -> str:
    if place == PROFILE:
        return "What Parley remembers for everyone"
    room, _, name = place.partition(":")
    return f"What Parley remembers {'in' if room == 'chat' else 'of'} {flat(name)}"


def _heading(kind: str) -> str:
    return flat(kind) or "note"


def _last_line(facts: Sequence[Fact]) -> str:
    newest = max((at for fact in facts if (at := _moment(fact.at)) is not None), default=None)
    if newest is None:
        return END
    as_of = newest.replace(tzinfo=None).isoformat(" ", "microseconds")
    return f"<!-- end, as of {as_of} UTC -->"


def _day(at: float) -> str:
    moment = _moment(at)
    return "1970-01-01" if moment is None else moment.date().isoformat()


def _moment(at: float) -> datetime.datetime | None:
    """As a page can write it: to the microsecond."""
    try:
        return datetime.datetime.fromtimestamp(at, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> ViewLines:
    """The lines of a page, however a person wrote them: any bullet, wrapped, or none at all."""
    found: list[tuple[str, str]] = []
    title = ended = False
    as_of: datetime.datetime | None = None
    kind = "note"
    joins = comment = False  # whether the next line goes on with what this one says
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.strip()
        if comment or line.startswith("<!--"):
            if last := _LAST.fullmatch(line):
                ended, as_of = True, _read_moment(last["as_of"])
            comment = "-->" not in line
            joins = False
        elif line.startswith("# ") and not found:
            title, joins = True, False
        elif line.startswith("## "):
            kind, joins = _heading(line[3:]), False
        elif not line or line.startswith("#") or _RULE.fullmatch(line):
            joins = False
        elif item := _ITEM.fullmatch(raw):
            found.append((kind, item["rest"] or ""))
            joins = True
        elif joins:
            found[-1] = (kind, f"{found[-1][1]} {line}")
        else:
            found.append((kind, line))
            joins = True
    return ViewLines(title, ended, tuple(_line(kind, rest) for kind, rest in found), as_of)


def _line(kind: str, rest: str) -> ViewLine:
    rest = flat(rest)
    number = _NUMBER.match(rest)
    text = _DATE.sub("", rest[number.end() :] if number else rest)
    return ViewLine(int(number["id"]) if number else None, kind, text)


def _read_moment(written: str | None) -> datetime.datetime | None:
    try:
        read = datetime.datetime.fromisoformat(written or "")
    except ValueError:
        return None
    return read.replace(tzinfo=datetime.UTC) if read.tzinfo is None else None


# ── merging ───────────────────────────────────────────────────────────────────────────────────


def merge(bases: str | Sequence[str], edited: str, facts: Sequence[Fact]) -> Merged:
    """What a hand changed since the page was written, to be done to the `facts` of its place.

    `bases` is the page as it was written; or the few that it may have been, when nobody knows
    which: then a line was changed only if it is so in none of them, and removed only if it was in
    all. What changed in the store meanwhile and was not touched by the hand stays. Where both
    changed a line the hand's words hold; what only the hand removed and the store changed stays.

    A page that was open since before `bases` were written knows less than they do: facts that are
    newer than it are left as they are, whatever it says or does not say of them.
    """
    pages = [parse(base) for base in ([bases] if isinstance(bases, str) else bases)]
    before = [{line.id: line for line in page.lines if line.id is not None} for page in pages]
    page = parse(edited)
    _check_whole(page, pages)
    known = {fact.id: fact for fact in facts}
    unknown = _unknown_to(page, pages, facts)
    problems = _told_of(unknown, page)
    lines = [line for line in page.lines if line.id not in unknown]
    kept, new = _sorted_out(lines, before, known)

    changes: dict[int, NewFact] = {}
    removes: list[int] = []
    for id, line in kept.items():
        fact = known.get(id)
        if any(line == base.get(id) for base in before):
            continue
        if not line.text:
            removes += [id] if fact is not None else []
        elif fact is None:
            new.append(line)
        elif (line.kind, line.text) != (_heading(fact.kind), flat(fact.text)) and _is_fit(
            line, problems
        ):
            changes[id] = NewFact(line.text, kind=_new_kind(line.kind, facts), person=fact.person)
    for id, fact in known.items():
        if id in kept or id in unknown or not before:
            continue
        if all(_is_same(fact, base.get(id)) for base in before):
            removes.append(id)

    said = {normal_form(fact.text): fact.id for fact in facts}
    adds: list[NewFact] = []
    numbers: dict[str, int] = {}
    for line in new:
        form = normal_form(line.text)
        if form in said:  # a line whose number was lost is still that fact's
            removes = [id for id in removes if id != said[form]]
        elif line.text and _is_fit(line, problems):
            said[form] = 0
            adds.append(NewFact(line.text, kind=_new_kind(line.kind, facts)))
            if line.id is not None and line.id not in known:
                numbers[line.text] = line.id
    edit = Edit(tuple(adds), changes or None, tuple(sorted(removes)))
    return Merged(edit, tuple(problems), numbers, page.as_of)


def is_newer(fact: Fact, as_of: datetime.datetime | None) -> bool:
    """Whether it was changed since a page was written; one that does not say when knows all."""
    at = _moment(fact.at)
    return as_of is not None and at is not None and at > as_of


def _unknown_to(
    page: ViewLines, pages: Sequence[ViewLines], facts: Sequence[Fact]
) -> dict[int, Fact]:
    """The facts that an old page cannot speak of. One as of a base is an edit of that base."""
    if any(was.as_of == page.as_of for was in pages):
        return {}
    return {fact.id: fact for fact in facts if is_newer(fact, page.as_of)}


def _told_of(unknown: Mapping[int, Fact], page: ViewLines) -> list[str]:
    differing = dict.fromkeys(
        line.id
        for line in page.lines
        if line.id is not None and line.id in unknown and line.text != flat(unknown[line.id].text)
    )
    return [
        f"Line [{id}] was changed elsewhere since this page was opened; it was left as it is."
        for id in differing
    ]


def _check_whole(page: ViewLines, pages: Sequence[ViewLines]) -> None:
    """A page that was emptied or cut off by accident must not look like one with lines removed."""
    ids = {line.id for line in page.lines}
    lasts = [was.lines[-1] for was in pages if was.lines]
    if not pages or len(lasts) < len(pages):
        return
    if not page.title and not any(line.id in ids for was in pages for line in was.lines):
        raise Unclear("it holds nothing of what was written there")
    if page.ended or not any(was.ended for was in pages):
        return
    tail = page.lines[-1] if page.lines else None
    for last in lasts:
        if last.id not in ids or (
            tail is not None
            and tail.id == last.id
            and tail.text != last.text
            and last.text.startswith(tail.text)
        ):
            raise Unclear(f"it seems to be cut off, for its last line `{END}` is missing")


def _sorted_out(
    lines: Sequence[ViewLine], before: Sequence[dict[int, ViewLine]], known: dict[int, Fact]
) -> tuple[dict[int, ViewLine], list[ViewLine]]:
    """Each numbered line of ours once, and what is new: lines without a number that is ours.

    Of lines with the same number, one that was not changed is the fact's; the others are copies.
    """
    kept: dict[int, ViewLine] = {}
    new: list[ViewLine] = []
    for line in lines:
        if line.id is None or not any(line.id in base for base in before):
            fact = known.get(line.id) if line.id is not None else None
            if fact is None or flat(fact.text) != line.text:
                new.append(line)
        elif line.id not in kept:
            kept[line.id] = line
        elif any(line == base.get(line.id) for base in before):
            new.append(kept[line.id])
            kept[line.id] = line
        else:
            new.append(line)
    return kept, new


def _is_same(fact: Fact, line: ViewLine | None) -> bool:
    return line is not None and flat(fact.text) == line.text


def _new_kind(heading: str, facts: Sequence[Fact]) -> str:
    """The kind that a heading names, as it is written in the store."""
    kinds = {_heading(fact.kind): fact.kind for fact in facts}
    return kinds.get(heading) or heading.lower()[:32].strip()


def _is_fit(line: ViewLine, problems: list[str]) -> bool:
    # What is longer is refused anyhow, and may take long to look through.
    if looks_secret(line.text[: 2 * LONGEST]) or looks_secret(line.kind[:LONGEST]):
        where = f"Line [{line.id}]" if line.id is not None else "A new line"
        problems.append(f"{where} looks like a key or password; such things are not remembered.")
        return False
    if len(line.text) > LONGEST:
        raise Unclear(
            f"the line that begins with `{line.text[:30]}…` is longer than {LONGEST} characters"
        )
    return True
