"""Replies wait until their surface confirms them, in order per lane."""

from __future__ import annotations

import time
from dataclasses import replace

from parley.protocol import Attachment
from parley.storage.contract import Claim, Delivery, Store, TurnEnd
from tests.builders import PLATFORM, a_draft, a_source, say
from tests.storage.conformance.base import OWNER, OpenStore, claim_one, waiting_replies


async def _reply(
    store: Store, *texts: str, chat: str = "c1", platform: str = PLATFORM, handover: bool = False
) -> tuple[Claim, list[Delivery]]:
    """A turn that ends with these replies."""
    await say(store, f"asks for {texts}", chat=chat, platform=platform)
    [claim] = await store.claim(OWNER, 1, [platform])
    drafts = tuple(a_draft(text, chat=chat, platform=platform, handover=handover) for text in texts)
    return claim, list((await store.commit(claim, TurnEnd("done", (), drafts))).handed)


async def _lease(store: Store, platform: str = PLATFORM, owner: str = OWNER) -> list[str]:
    return [reply.text for reply in await store.lease_deliveries(platform, owner, 10)]


async def _lease_one(store: Store) -> Delivery:
    [delivery] = await store.lease_deliveries(PLATFORM, OWNER, 10)
    return delivery


class OutboxPromises:
    async def test_a_reply_goes_to_where_its_turn_came_from(self, store: Store) -> None:
        claim, handed = await _reply(store, "hi")
        assert handed == []
        delivery = await _lease_one(store)
        assert (delivery.lane, delivery.turn, delivery.source) == ("c1", claim.turn, claim.source)
        assert (delivery.text, delivery.dedupe) == ("hi", "reply:c1:hi")
        assert delivery.kind == "reply"

    async def test_files_go_with_a_reply(self, open_store: OpenStore) -> None:
        store = await open_store()
        files = (
            Attachment("cat.png", "image/png", "/tmp/cat.png", 3),
            Attachment('Bär "1".txt', "text/plain", "/tmp/b", 0),
        )
        await say(store, "asks")
        [claim] = await store.claim(OWNER, 1, [PLATFORM])
        with_files = replace(a_draft("here"), attachments=files)
        drafts = (replace(with_files, handover=True), a_draft("and"), with_files)
        names = [replace(draft, dedupe=str(n)) for n, draft in enumerate(drafts)]
        [handed] = (await store.commit(claim, TurnEnd("done", (), tuple(names)))).handed
        assert handed.attachments == files
        await store.retry_delivery(handed.id, 0.0, "busy")
        await store.close()
        again = await open_store()
        found = []
        while leased := await again.lease_deliveries(PLATFORM, OWNER, 1):
            found += leased
            await again.delivered(leased[0].id)
        assert [reply.attachments for reply in found] == [files, (), files]
        [posted] = await again.post("c1", replace(with_files, handover=True), owner=OWNER)
        assert posted.attachments == files
        await again.abandon_delivery(posted.id, "dead", "gone")
        assert (await again.health()).dead[0].attachments == files

    async def test_a_leased_reply_is_not_leased_again(self, store: Store) -> None:
        await _reply(store, "hi")
        assert await _lease(store) == ["hi"]
        assert await _lease(store) == []
        assert await _lease(store, owner="owner-2") == []

    async def test_replies_of_a_lane_go_one_after_the_other(self, store: Store) -> None:
        await _reply(store, "one", "two")
        await _reply(store, "three")
        assert await waiting_replies(store) == ["one", "two", "three"]
        await _reply(store, "four", "five")
        head = await _lease_one(store)
        assert head.text == "four"
        assert await _lease(store) == []
        await store.delivered(head.id, "$platform-id")
        assert await _lease(store) == ["five"]

    async def test_a_reply_to_one_account_does_not_wait_for_another(self, store: Store) -> None:
        await say(store, "asks")
        [claim] = await store.claim(OWNER, 1, [PLATFORM])
        drafts = [
            replace(a_draft(text), source=replace(a_source(), account=account))
            for text, account in (("1", None), ("2", "work"), ("3", None), ("4", "work"))
        ]
        await store.commit(claim, TurnEnd("done", (), tuple(drafts)))
        first, second = await store.lease_deliveries(PLATFORM, OWNER, 10)
        assert (first.text, second.text) == ("1", "2")
        await store.retry_delivery(first.id, None, "nobody is there")
        assert await store.delivered(second.id) is True
        assert await _lease(store) == ["4"]
        assert await store.unpark("c1") == 1
        assert await _lease(store) == ["1"]

    async def test_lanes_do_not_wait_for_each_other(self, store: Store) -> None:
        for chat in ("a", "b", "c"):
            await _reply(store, f"1{chat}", f"2{chat}", chat=chat)
        assert await _lease(store) == ["1a", "1b", "1c"]

    async def test_platforms_do_not_wait_for_each_other(self, store: Store) -> None:
        await _reply(store, "here")
        await _reply(store, "there", chat="c2", platform="other")
        assert await _lease(store) == ["here"]
        assert await _lease(store, "other") == ["there"]

    async def test_a_reply_may_be_handed_over_by_the_commit(self, store: Store) -> None:
        claim, handed = await _reply(store, "one", "two", handover=True)
        assert [(reply.text, reply.state) for reply in handed] == [("one", "sending")]
        assert handed[0].turn == claim.turn
        assert await _lease(store) == []
        await store.delivered(handed[0].id)
        second = await _lease_one(store)
        assert second.text == "two"

    async def test_nothing_is_handed_over_ahead_of_an_earlier_reply(self, store: Store) -> None:
        await _reply(store, "one")
        assert (await _reply(store, "two", handover=True))[1] == []
        assert await waiting_replies(store) == ["one", "two"]

    async def test_a_reply_is_named_for_ever(self, store: Store) -> None:
        await _reply(store, "hi")
        assert await waiting_replies(store) == ["hi"]
        await say(store, "once more")
        claim = await claim_one(store)
        again = a_draft("hi", handover=True)
        assert (await store.commit(claim, TurnEnd("done", (), (again,)))).handed == ()
        assert await waiting_replies(store) == []

    async def test_a_retry_waits_as_long_as_asked(self, store: Store) -> None:
        await _reply(store, "one", "two")
        head = await _lease_one(store)
        assert head.attempts == 1
        await store.retry_delivery(head.id, 60, "busy")
        assert await _lease(store) == [], "the second went ahead of the first"
        next_at = await store.next_delivery_at(PLATFORM)
        assert next_at is not None
        await store.retry_delivery(head.id, 0, "busy")
        again = await _lease_one(store)
        assert (again.id, again.attempts) == (head.id, 2)

    async def test_the_store_says_when_the_next_reply_may_go(self, store: Store) -> None:
        assert await store.next_delivery_at(PLATFORM) is None
        await _reply(store, "one", "two")
        head = await _lease_one(store)
        before = time.time()
        await store.retry_delivery(head.id, 60, "busy")
        next_at = await store.next_delivery_at(PLATFORM)
        assert next_at is not None and before + 59 < next_at < time.time() + 61
        assert await store.next_delivery_at("other") is None

    async def test_what_waits_behind_a_parked_reply_has_no_time(self, store: Store) -> None:
        await _reply(store, "one", "two")
        await store.retry_delivery((await _lease_one(store)).id, None, "away")
        assert await store.next_delivery_at(PLATFORM) is None

    async def test_a_parked_reply_waits_until_its_chat_is_back(self, store: Store) -> None:
        await _reply(store, "one", "two")
        await _reply(store, "elsewhere", chat="c2")
        for delivery in await store.lease_deliveries(PLATFORM, OWNER, 10):
            await store.retry_delivery(delivery.id, None, "away")
        assert await _lease(store) == []
        assert (await store.health()).undelivered == 3
        assert await store.unpark("nobody") == 0
        assert await store.unpark("c1") == 1
        assert await waiting_replies(store) == ["one", "two"]

    async def test_unpark_does_not_hurry_a_retry(self, store: Store) -> None:
        await _reply(store, "one")
        await store.retry_delivery((await _lease_one(store)).id, 60, "busy")
        assert await store.unpark("c1") == 0
        assert await _lease(store) == []

    async def test_an_abandoned_reply_lets_the_next_go(self, store: Store) -> None:
        await _reply(store, "one", "two", "three")
        await store.abandon_delivery((await _lease_one(store)).id, "dead", "too long")
        await store.abandon_delivery((await _lease_one(store)).id, "unsure", "broke off")
        assert await waiting_replies(store) == ["three"]
        health = await store.health()
        assert [reply.text for reply in health.dead] == ["one"]
        assert [reply.text for reply in health.unsure] == ["two"]
        assert health.undelivered == 0

    async def test_a_confirmed_reply_never_goes_again(self, store: Store) -> None:
        """A late word of an owner that was given up does not undo what another confirmed."""
        await _reply(store, "one")
        delivery = await _lease_one(store)
        await store.delivered(delivery.id)
        await store.retry_delivery(delivery.id, 0, "late")
        await store.abandon_delivery(delivery.id, "dead", "late")
        assert await _lease(store) == []
        health = await store.health()
        assert (health.undelivered, health.dead) == (0, ())

    async def test_recovery_sends_again_only_where_a_repeat_is_known(self, store: Store) -> None:
        await _reply(store, "here")
        await _reply(store, "there", chat="c2", platform="other")
        await _lease(store)
        await _lease(store, "other")
        await store.resume_sends("other", "owner-2", repeats=True)
        assert (await store.health()).undelivered == 2
        await store.resume_sends(PLATFORM, "owner-2", repeats=False)
        assert await _lease(store) == []
        [again] = await store.lease_deliveries("other", "owner-2", 10)
        assert (again.text, again.attempts) == ("there", 2)
        health = await store.health()
        assert [reply.text for reply in health.unsure] == ["here"]
        assert health.undelivered == 1

    async def test_recovery_leaves_what_waits_and_what_is_its_own(self, store: Store) -> None:
        await _reply(store, "mine", "next")
        await _lease(store)
        await store.recover(OWNER)
        await store.resume_sends(PLATFORM, OWNER, repeats=False)
        health = await store.health()
        assert (health.undelivered, health.unsure) == (2, ())
        assert await _lease(store) == []
