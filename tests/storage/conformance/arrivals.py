"""What a surface brings at once comes in with the marks that say so, or not at all."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from parley.storage.contract import Draft, RateLimit, Receipt, SessionRecord, Store
from parley.storage.people import Arrival
from tests.builders import a_draft, a_message, event_name, say
from tests.storage.conformance.base import (
    OpenStore,
    claim_one,
    converse,
    current,
    waiting_replies,
    words,
)


def _arrival(text: str, *, chat: str = "c1") -> Arrival:
    return Arrival(chat, event_name(text, chat=chat), a_message(text, chat=chat))


def _told(fresh: SessionRecord) -> Draft:
    return a_draft(f"notice of {fresh.lane}", chat=fresh.lane)


def _broken(fresh: SessionRecord) -> Draft:
    raise ValueError(f"nothing to say of {fresh.lane}")


class ArrivalPromises:
    # ── marks ──

    async def test_a_mark_is_kept_until_it_is_moved_or_removed(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.mark("matrix:@a:b:since") is None
        await store.put_marks({"matrix:@a:b:since": "s1", "matrix:@a:b:space": "!x", "empty": ""})
        await store.put_marks({"matrix:@a:b:since": "s\ud83d2", "other": None})
        await store.close()
        again = await open_store()
        assert await again.mark("matrix:@a:b:since") == "s�2"
        assert await again.mark("empty") == ""
        await again.put_marks({"matrix:@a:b:since": None})
        assert await again.mark("matrix:@a:b:since") is None
        assert await again.marks("") == {"matrix:@a:b:space": "!x", "empty": ""}

    async def test_marks_are_found_by_how_their_names_begin(self, store: Store) -> None:
        names = ("a", "a:", "a:b", "a:😀", "a%", "a_b", "b:a", "A:b", "a\ud83d")
        await store.put_marks({name: name.encode("utf-8", "replace").decode() for name in names})
        assert set(await store.marks("a:")) == {"a:", "a:b", "a:😀"}
        assert set(await store.marks("a%")) == {"a%"}
        assert set(await store.marks("a_")) == {"a_b"}
        assert set(await store.marks("a\ud83d")) == {"a�"}
        assert len(await store.marks("")) == len(names)
        assert await store.mark("a\ud83d") == "a?"

    # ── together ──

    async def test_messages_and_marks_come_in_together(self, open_store: OpenStore) -> None:
        store = await open_store()
        await say(store, "one")
        arrivals = [
            _arrival("one"),
            _arrival("two"),
            _arrival("three", chat="c2"),
            replace(_arrival("/help"), kind="command"),
            _arrival("two"),
            _arrival("four"),
        ]
        receipts = await store.submit_all(arrivals, {"since": "s1", "gone": None})
        states = ["duplicate", "queued", "queued", "queued", "duplicate", "queued"]
        assert [receipt.state for receipt in receipts] == states
        assert receipts[4].inbox_id == receipts[1].inbox_id
        await store.close()
        again = await open_store()
        assert await again.mark("since") == "s1"
        assert [message.message.text for _, message in await again.pending_commands()] == ["/help"]
        first = await claim_one(again)
        await again.absorb(first)
        assert await words(again) == ["one", "two", "four"]
        assert (await claim_one(again)).messages[0].message.text == "three"

    async def test_nothing_may_come_in_while_the_marks_move(self, store: Store) -> None:
        assert await store.submit_all([], {"since": "s1"}) == []
        assert await store.mark("since") == "s1"
        assert [r.state for r in await store.submit_all([_arrival("one")], {})] == ["queued"]

    async def test_when_one_cannot_come_in_nothing_does_and_no_mark_moves(
        self, open_store: OpenStore
    ) -> None:
        store = await open_store()
        await converse(store, "hello", "hi")
        before = await current(store)
        await store.put_marks({"since": "s1"})
        anew = replace(_arrival("one"), fresh_before=time.time() + 60)
        arrivals = [
            replace(anew, notice=_told),
            _arrival("two", chat="c2"),
            replace(_arrival("/help"), kind="command"),
        ]
        await converse(store, "hello", "hi", chat="c3")
        bad = replace(_arrival("bad", chat="c3"), fresh_before=time.time() + 60, notice=_broken)
        call = store.submit_all([*arrivals, bad, _arrival("three")], {"since": "s2", "new": "x"})
        results = await asyncio.gather(
            say(store, "beside", chat="c4"), call, return_exceptions=True
        )
        assert isinstance(results[0], Receipt) and isinstance(results[1], ValueError)
        for _ in range(2):
            assert await store.marks("") == {"since": "s1"}
            assert await current(store) == before
            assert await store.session_of("c2") is None
            assert await store.pending_commands() == []
            assert (await store.health()).queued == 1
            assert await waiting_replies(store) == []
            await store.close()
            store = await open_store()
        receipts = await store.submit_all(arrivals, {"since": "s2"})
        assert [receipt.state for receipt in receipts] == ["queued"] * 3

    async def test_each_counts_against_the_limit_of_its_sender(self, open_store: OpenStore) -> None:
        store = await open_store(rate_limit=RateLimit(capacity=2, per_second=0.5))
        arrivals = [
            replace(_arrival(text), user=user)
            for text, user in (
                *(("1", "alice"), ("1", "alice"), ("2", "alice"), ("3", "alice")),
                *(("4", "bob"), ("5", None), ("6", "alice")),
            )
        ]
        receipts = await store.submit_all(arrivals, {"since": "s1"})
        assert [receipt.state for receipt in receipts] == [
            *("queued", "duplicate", "queued", "rate_limited"),
            *("queued", "queued", "rate_limited"),
        ]
        assert receipts[3].retry_after == pytest.approx(2.0)
        assert await store.mark("since") == "s1"

    async def test_the_first_of_a_quiet_lane_begins_a_new_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        old = await current(store)
        late = time.time() + 60
        arrivals = [
            replace(_arrival(text), fresh_before=late, notice=_told) for text in ("one", "two")
        ]
        receipts = await store.submit_all(arrivals, {})
        assert [receipt.fresh for receipt in receipts] == [True, False]
        assert (await current(store)).id != old.id
        assert await waiting_replies(store) == ["notice of c1"]
