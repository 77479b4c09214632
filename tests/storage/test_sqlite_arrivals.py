"""What comes in together comes in as it would one after the other."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from parley.storage.contract import InboxKind, RateLimit
from parley.storage.people import Arrival
from parley.storage.sqlite import SqliteStore
from tests.builders import a_draft, a_message
from tests.storage.conformance.base import converse

_LIMIT = RateLimit(capacity=3, per_second=0)


def _arrival(lane: str, text: str, kind: InboxKind, user: str | None, late: bool) -> Arrival:
    return Arrival(
        *(lane, f"{lane} {text}", a_message(text, chat=lane), kind, user),
        fresh_before=time.time() + 60 if late else None,
        notice=lambda fresh: a_draft("notice", chat=fresh.lane),
    )


_ARRIVALS = st.lists(
    st.builds(
        _arrival,
        st.sampled_from(["c1", "c2"]),
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from(["message", "message", "command"]),
        st.sampled_from(["alice", "bob", None]),
        st.booleans(),
    ),
    max_size=10,
)


def _kept(file: Path) -> list[list[tuple[object, ...]]]:
    queries = (
        "SELECT id, lane, dedupe, kind, payload, state FROM inbox ORDER BY id",
        "SELECT key, state, ready_seq FROM lane ORDER BY key",
        "SELECT lane, count(*) FROM session GROUP BY lane ORDER BY lane",
        "SELECT lane, text FROM outbox ORDER BY id",
        "SELECT user, tokens FROM bucket ORDER BY user",
    )
    with closing(sqlite3.connect(file)) as db:
        return [db.execute(query).fetchall() for query in queries]


@settings(max_examples=30, deadline=None)
@given(arrivals=_ARRIVALS)
def test_together_is_as_one_after_the_other(arrivals: list[Arrival]) -> None:
    async def come(file: Path, *, together: bool) -> list[tuple[object, ...]]:
        store = SqliteStore.open(file, rate_limit=_LIMIT)
        await converse(store, "hello", "hi")
        if together:
            receipts = await store.submit_all(arrivals, {"since": "s1"})
        else:
            receipts = [
                await store.submit(
                    *(one.lane, one.dedupe, one.message),
                    kind=one.kind,
                    user=one.user,
                    fresh_before=one.fresh_before,
                    notice=one.notice,
                )
                for one in arrivals
            ]
        await store.close()
        return [(found.state, found.inbox_id, found.fresh) for found in receipts]

    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder) / "one.db", Path(folder) / "other.db"
        together = asyncio.run(come(one, together=True))
        assert together == asyncio.run(come(other, together=False))
        assert _kept(one) == _kept(other)
