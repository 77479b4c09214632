"""What is kept with a session goes with it; what a person has set is theirs."""

from __future__ import annotations

import pytest

from parley.storage.contract import Store, StoreError
from tests.storage.conformance.base import OpenStore, converse, current


class NotePromises:
    async def test_a_note_is_kept_with_its_session(self, open_store: OpenStore) -> None:
        store = await open_store()
        for chat in ("c1", "c2"):
            await converse(store, "hello", f"hi {chat}", chat=chat)
        one, two = [(await current(store, chat)).id for chat in ("c1", "c2")]
        for value in ("first", "buy \ud83d milk"):
            await store.put_note(one, "todo", value)
        await store.close()
        again = await open_store()
        assert await again.note(one, "todo") == "buy � milk"
        assert await again.note(one, "other") is None
        assert await again.note(two, "todo") is None
        await again.put_note(two, "todo", "")
        assert await again.note(two, "todo") == ""
        await again.put_note(one, "todo", None)
        assert await again.note(one, "todo") is None

    async def test_a_note_goes_with_its_session(self, store: Store) -> None:
        await converse(store, "hello", "hi")
        session = (await current(store)).id
        await store.put_note(session, "todo", "milk")
        assert await store.delete_session(session)
        assert await store.note(session, "todo") is None
        with pytest.raises(StoreError):
            await store.put_note(session, "todo", "milk")

    async def test_what_a_person_has_set_is_theirs_alone(self, open_store: OpenStore) -> None:
        store = await open_store()
        for value in ("file-delete", "email-send"):
            await store.put_person_setting("test:alice", "triggers", value)
        await store.close()
        again = await open_store()
        assert await again.person_setting("test:alice", "triggers") == "email-send"
        assert await again.person_setting("test:bob", "triggers") is None
        assert await again.person_setting("test:alice", "other") is None
        await again.put_person_setting("test:alice", "triggers", None)
        assert await again.person_setting("test:alice", "triggers") is None
