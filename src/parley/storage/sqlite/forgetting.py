"""Forgetting for good, in SQL: facts and all they replaced leave every table they are in."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from parley.protocol import ChatMessage, InboundMessage, person_of
from parley.storage.memory import Fact, Forgotten
from parley.storage.sqlite import commits, fact_search, gone, memory_rows, rows, search
from parley.storage.sqlite.commits import Writing
from parley.storage.sqlite.queries import SQL
from parley.storage.wording import Telling, without_lines

__all__ = ["BLANK", "forget", "retire_session"]

BLANK: Final = "[forgotten]"
_DELETED = ("fact_vectors_delete", "memory_changes_delete", "fact_sources_delete", "facts_delete")


def forget(
    db: sqlite3.Connection,
    ids: Sequence[int],
    *,
    by: str,
    words: bool,
    dedupe: str | None,
    now: float,
    place: str | None = None,
    person: str | None = None,
) -> Forgotten:
    """With `place`, only what is remembered there; with `person`, only from their words."""
    made = commits.made_under(db, dedupe)
    if made is not None:
        return _forgotten(made)
    found = db.execute(SQL["facts_replaced_by"], {"facts": json.dumps(list(ids))}).fetchall()
    facts = [memory_rows.fact(row) for row in found]
    if place is not None:
        facts = [fact for fact in facts if fact.place == place]
    if person is not None:
        facts = [fact for fact in facts if fact.person == person]
    kinds = dict(Counter(fact.kind for fact in facts if fact.state == "current"))
    places = sorted({fact.place for fact in facts})
    messages = _remove(db, facts, words=words, person=person, now=now) if facts else 0
    numbers = [fact.id for fact in facts]
    writing = Writing(
        *("forgot", places[0] if len(places) == 1 else "", now, by),
        forgotten={"facts": numbers, "kinds": kinds, "messages": messages},
        dedupe=dedupe,
    )
    if not facts and dedupe is None:
        return Forgotten(writing.as_commit(), (), {})
    for changed in places:
        db.execute(SQL["place_change"], {"place": changed})
    commit = commits.write(db, writing)
    return _forgotten(db.execute(SQL["memory_commit_get"], {"commit": commit.id}).fetchone())


def _forgotten(row: sqlite3.Row) -> Forgotten:
    what: dict[str, Any] = json.loads(row["forgotten"] or "{}")
    return Forgotten(
        memory_rows.commit(row),
        tuple(what.get("facts", ())),
        what.get("kinds", {}),
        what.get("messages", 0),
    )


def _remove(
    db: sqlite3.Connection, facts: Sequence[Fact], *, words: bool, person: str | None, now: float
) -> int:
    """How many messages were blanked."""
    numbers = {"facts": json.dumps([fact.id for fact in facts])}
    wordings = _wordings(db, facts)
    for place, texts in wordings.items():
        for text in texts:
            gone.let_go(db, place, text, now=now)
    texts = {text for found in wordings.values() for text in found}
    tells = Telling(texts)
    _strip_summaries(db, facts, tells)
    _blank_commands(db, facts, tells)
    blanked = _blank(db, {**numbers, "person": person}, tells) if words else 0
    db.execute(SQL["gone_sources_put"], numbers)
    for fact in facts:
        fact_search.drop(db, fact.id)
    for name in _DELETED:
        db.execute(SQL[name], numbers)
    return blanked


def _wordings(db: sqlite3.Connection, facts: Sequence[Fact]) -> dict[str, set[str]]:
    """All words these facts have and ever had, by place."""
    places = {fact.id: fact.place for fact in facts}
    found: dict[str, set[str]] = {}
    for fact in facts:
        found.setdefault(fact.place, set()).add(fact.text)
    numbers = {"facts": json.dumps(list(places))}
    for row in db.execute(SQL["fact_wordings"], numbers):
        told = {text for text in (row["before"], row["after"]) if text is not None}
        found[places[row["fact"]]] |= told
    return found


def _strip_summaries(db: sqlite3.Connection, facts: Sequence[Fact], tells: Telling) -> None:
    values = {
        "facts": json.dumps([fact.id for fact in facts]),
        "places": json.dumps(sorted({fact.place for fact in facts})),
    }
    sessions = {row["session"] for row in db.execute(SQL["sessions_of_facts"], values)}
    sessions |= {row["session"] for row in db.execute(SQL["sessions_of_places"], values)}
    for session in sorted(sessions):
        found = db.execute(SQL["session_summary"], {"session": session}).fetchone()
        if (
            found is not None
            and (left := without_lines(found["summary"], tells)) != found["summary"]
        ):
            db.execute(SQL["session_sum_up"], {"session": session, "summary": left})
        else:  # what is being made of it just now may tell what is forgotten
            db.execute(SQL["session_revise_quietly"], {"session": session})
        for row in db.execute(SQL["memory_summaries"], {"session": session}).fetchall():
            kept = (row["summary_before"], row["summary_since"])
            before, since = (without_lines(text, tells) for text in kept)
            if (before, since) != kept:
                told = {"commit": row["id"], "before": before, "since": since}
                db.execute(SQL["memory_summaries_put"], told)


def _blank(db: sqlite3.Connection, whose: dict[str, str | None], tells: Telling) -> int:
    """Blank what people said that these facts came from, and what told of it in the same turns."""
    found = db.execute(SQL["entries_of_facts"], whose).fetchall()
    sources = {row["id"] for row in found}
    turns = sorted({(row["session"], row["turn"]) for row in found})
    blanked = 0
    for session, turn in turns:
        place = {"session": session, "turn": turn}
        said = {
            row["id"]: ChatMessage.from_dict(json.loads(row["body"]))
            for row in db.execute(SQL["entries_of_turn"], place).fetchall()
        }
        says_so = Telling(said[id].text for id in said if id in sources)
        for id, message in said.items():
            if id in sources or (message.role != "user" and _tells(message, tells, says_so)):
                _blank_entry(db, id, turn, message)
                blanked += 1
        for row in db.execute(SQL["outbox_of_turn"], place).fetchall():
            if tells(row["text"]) or says_so(row["text"]):
                db.execute(SQL["outbox_blank"], {"id": row["id"], "blank": BLANK})
    for session in sorted({session for session, _ in turns}):
        db.execute(SQL["session_revise_quietly"], {"session": session})
    return blanked


def _blank_commands(db: sqlite3.Connection, facts: Sequence[Fact], tells: Telling) -> None:
    """What the people these facts are of told us to remember, and were shown of it."""
    people = {fact.person for fact in facts}
    people |= {fact.place.removeprefix("person:") for fact in facts}
    for row in db.execute(SQL["memory_commands"]).fetchall():
        message = InboundMessage.from_dict(json.loads(row["payload"]))
        if person_of(message.source) not in people:
            continue
        if tells(message.text):
            blank = rows.dump(replace(message, text=BLANK).to_dict())
            db.execute(SQL["memory_command_blank"], {"id": row["id"], "payload": blank})
        told = db.execute(SQL["memory_command_reply"], {"name": f"command:{row['id']}"}).fetchone()
        if told is not None and any(map(tells, told["text"].splitlines())):
            db.execute(SQL["outbox_blank"], {"id": told["id"], "blank": BLANK})


def _tells(message: ChatMessage, *telling: Telling) -> bool:
    calls = (str(value) for call in message.tool_calls for value in call.arguments.values())
    words = "\n".join((message.text, *calls))
    return any(tells(words) for tells in telling)


def _blank_entry(db: sqlite3.Connection, id: int, turn: int, message: ChatMessage) -> None:
    """Its words go, here and where they came in; calls and their results stay together."""
    calls = tuple(replace(call, arguments={}) for call in message.tool_calls)
    blank = replace(message, text=BLANK, attachments=(), tool_calls=calls)
    db.execute(SQL["entry_blank"], {"entry": id, "body": rows.dump(blank.to_dict())})
    if message.role == "user":
        db.execute(SQL["inbox_blank"], {"turn": turn, "text": message.text, "blank": BLANK})
    if search.is_made(db):
        db.execute(SQL["entry_unindex"], {"entry": id})


def retire_session(db: sqlite3.Connection, session: str) -> None:
    """A session is about to be deleted: no commit names its entries any more."""
    values = {"session": session}
    gone_entries = {row["id"] for row in db.execute(SQL["entries_ids"], values)}
    for row in db.execute(SQL["memory_changes_from"], values).fetchall():
        left = {side: _without(row[side], gone_entries) for side in ("before", "after")}
        db.execute(SQL["memory_change_put"], left | {"change": row["id"]})


def _without(body: str | None, entries: set[int]) -> str | None:
    if body is None:
        return None
    record = json.loads(body)
    record["sources"] = [entry for entry in record["sources"] if entry not in entries]
    return rows.dump(record)
