"""Accepted means durable, and accepted once."""

from __future__ import annotations

import asyncio
import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parley.protocol import Attachment, ChatMessage, InboundMessage, SessionSource, ToolCall
from parley.storage.contract import Draft, RateLimit, Store, StoreClosed, TurnEnd
from tests.builders import PLATFORM, a_message, a_source, say
from tests.storage.conformance.base import OWNER, OpenStore, claim_one, current


async def _accepted_before_a_kill(address: str, submit: str) -> list[list[str]]:
    """A process submits until it is killed; what it was told is kept, as it wrote it down."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.storage.child", address, submit),
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    accepted = [(await child.stdout.readline()).decode().split() for _ in range(300)]
    child.kill()
    rest = (await child.stdout.read()).decode()
    await child.wait()
    return accepted + [line.split() for line in rest.splitlines(keepends=True) if line[-1] == "\n"]


class DurabilityPromises:
    async def test_what_submit_returned_for_survives_a_kill(
        self, open_store: OpenStore, address: str
    ) -> None:
        accepted = await _accepted_before_a_kill(address, "alone")
        store = await open_store()
        for chat, number in accepted:
            assert (await say(store, number, chat=chat)).state == "duplicate"
        assert (await say(store, "never sent", chat="chat-0")).state == "queued"

    async def test_after_a_kill_the_marks_are_where_the_messages_are(
        self, open_store: OpenStore, address: str
    ) -> None:
        """Nothing comes twice and nothing is left out when a surface goes on from its mark."""
        accepted = await _accepted_before_a_kill(address, "together")
        store = await open_store()
        last = {stream: int(number) for stream, number in accepted}
        assert last
        for stream, number in last.items():
            mark = int(await store.mark(stream) or -1)
            assert mark >= number
            for chat in (f"{stream}-a", f"{stream}-b"):
                for known in range(mark + 1):
                    assert (await say(store, str(known), chat=chat)).state == "duplicate"
                assert (await say(store, str(mark + 1), chat=chat)).state == "queued"

    async def test_many_submits_at_once_are_all_kept(self, open_store: OpenStore) -> None:
        store = await open_store()
        texts = [str(number) for number in range(300)]
        receipts = await asyncio.gather(*(say(store, text, chat=f"c{text}") for text in texts))
        assert {receipt.state for receipt in receipts} == {"queued"}
        assert len({receipt.inbox_id for receipt in receipts}) == 300
        await store.close()
        again = await open_store()
        assert (await again.health()).queued == 300

    async def test_the_same_event_is_accepted_once(self, store: Store) -> None:
        first = await say(store, "hello")
        second = await say(store, "hello")
        assert (first.state, second.state) == ("queued", "duplicate")
        assert second.inbox_id == first.inbox_id
        assert (await store.health()).queued == 1

    async def test_the_same_event_is_known_after_it_was_answered(self, store: Store) -> None:
        await say(store, "hello")
        await store.commit(await claim_one(store), TurnEnd("done"))
        assert (await say(store, "hello")).state == "duplicate"
        assert await store.claim(OWNER, 1, [PLATFORM]) == []

    async def test_the_same_event_submitted_at_once_by_many_is_accepted_once(
        self, store: Store
    ) -> None:
        receipts = await asyncio.gather(*(say(store, "hello") for _ in range(50)))
        assert sorted(receipt.state for receipt in receipts).count("queued") == 1

    async def test_a_duplicate_is_not_charged(self, open_store: OpenStore) -> None:
        store = await open_store(rate_limit=RateLimit(capacity=2, per_second=0.001))

        async def submit(dedupe: str) -> str:
            receipt = await store.submit("c1", dedupe, a_message(dedupe), user="alice")
            assert (receipt.state == "rate_limited") == (receipt.retry_after > 0)
            return receipt.state

        assert [await submit(name) for name in ("a", "a", "a", "b", "c", "b")] == [
            "queued",
            "duplicate",
            "duplicate",
            "queued",
            "rate_limited",
            "duplicate",
        ]
        assert (await store.health()).queued == 2

    async def test_a_limit_is_for_one_person_only(self, open_store: OpenStore) -> None:
        store = await open_store(rate_limit=RateLimit(capacity=1, per_second=0.5))
        assert await store.allow("alice") is None
        wait = await store.allow("alice")
        assert wait is not None and 0 < wait <= 2
        assert await store.allow("bob") is None

    async def test_without_a_limit_everyone_is_allowed(self, store: Store) -> None:
        assert [await store.allow("alice", 1000) for _ in range(3)] == [None, None, None]

    async def test_whatever_was_said_comes_back_as_it_was(self, store: Store) -> None:
        source = SessionSource(
            PLATFORM, "!room:example.org", "group", "@a:b", "alt", "Zoë", "Süd", "t", "acc", "g"
        )
        picture = Attachment("🖼.png", "image/png", "/tmp/x", 3)
        message = InboundMessage(source, "“hi”\n\0 𝄞", "$event", (picture,), internal=True)
        await store.submit("lane", "one", message)
        claim = await claim_one(store)
        assert claim.source == source
        assert claim.messages[0].message == message
        call = ToolCall("1", "read_file", {"path": "a'b", "deep": {"n": [1, None]}})
        asked = ChatMessage("assistant", "", (call,))
        result = ChatMessage("tool", "ok", (), "1", "read_file", note="unknown-outcome")
        await store.step(claim, [asked, result])
        entries = await store.transcript(claim.session)
        said = ChatMessage("user", message.text, attachments=(picture,), note="internal")
        assert [entry.message for entry in entries] == [said, asked, result]

    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(text=st.text(st.characters(exclude_categories=(), exclude_characters="\0")))
    @example(text="\ud83d\ude00 and half \ud83d")
    def test_no_text_is_refused(self, open_store: OpenStore, text: str) -> None:
        """Half of a surrogate pair has no bytes in any database; the rest of the text has."""

        async def round_trip() -> tuple[str, str, str]:
            store = await open_store()
            name = f"{text.encode('utf-8', 'backslashreplace')!r}"
            await store.submit(name, name, a_message(text, chat="x"))
            claim = await claim_one(store)
            [entry] = await store.transcript(claim.session)
            reply = Draft(f"to {name}", a_source("x"), text)
            end = TurnEnd("done", (ChatMessage("assistant", text),), (reply,))
            await store.commit(claim, end)
            [delivery] = await store.lease_deliveries(PLATFORM, OWNER, 1)
            await store.delivered(delivery.id)
            seen = (claim.messages[0].message.text, entry.message.text, delivery.text)
            await store.close()
            return seen

        for seen in asyncio.run(round_trip()):
            assert seen == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    async def test_a_closed_store_says_so(self, store: Store) -> None:
        await say(store, "hello")
        await store.close()
        with pytest.raises(StoreClosed):
            await say(store, "more")
        with pytest.raises(StoreClosed):
            await current(store)
