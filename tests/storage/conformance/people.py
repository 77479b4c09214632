"""People are known for good by platform and id; what they set is theirs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from parley.storage.contract import Store
from tests.storage.conformance.base import OpenStore


class PeoplePromises:
    async def test_someone_is_new_once_and_known_for_good(self, open_store: OpenStore) -> None:
        store = await open_store()
        first = await store.get_or_create_user("@alice:example.org", "matrix", "Alice")
        assert first.is_new
        assert (first.platform, first.external_id) == ("matrix", "@alice:example.org")
        assert first.person == "matrix:@alice:example.org"
        assert first.display_name == "Alice"
        await store.close()
        again = await open_store()
        known = await again.get_or_create_user("@alice:example.org", "matrix")
        assert known == replace(first, is_new=False)
        assert await again.users() == [known]

    async def test_someone_who_comes_many_times_at_once_is_new_once(
        self, open_store: OpenStore
    ) -> None:
        stores = [await open_store(), await open_store()]
        found = await asyncio.gather(
            *(
                store.get_or_create_user("alice", "test", name)
                for store in stores
                for name in ("Alice", None, "Alice", None, "Alice")
            )
        )
        assert [user.is_new for user in found].count(True) == 1
        assert len({replace(user, is_new=False, display_name=None) for user in found}) == 1
        assert len(await stores[0].users()) == 1

    async def test_a_name_that_changes_is_followed(self, open_store: OpenStore) -> None:
        store = await open_store()
        names = (None, "Alice", None, "Alicia 😀", "Ali\ud83dce", None)
        found = [await store.get_or_create_user("alice", "test", name) for name in names]
        assert [user.display_name for user in found] == [
            *(None, "Alice", "Alice", "Alicia 😀", "Ali�ce", "Ali�ce")
        ]
        assert [user.is_new for user in found] == [True] + [False] * 5
        assert len({user.created_at for user in found}) == 1
        await store.close()
        [kept] = await (await open_store()).users()
        assert kept.display_name == "Ali�ce"

    async def test_the_same_id_elsewhere_is_someone_else(self, store: Store) -> None:
        here = await store.get_or_create_user("1", "test", "Here")
        there = await store.get_or_create_user("1", "other", "There")
        assert there.is_new and there.person != here.person
        assert (await store.get_or_create_user("1", "test")).display_name == "Here"

    async def test_those_who_came_last_are_listed_first(self, store: Store) -> None:
        for number in range(5):
            await store.get_or_create_user(str(number), "test")
        await store.get_or_create_user("0", "test", "Renamed")
        assert [user.external_id for user in await store.users()] == ["4", "3", "2", "1", "0"]
        assert [user.external_id for user in await store.users(limit=2)] == ["4", "3"]
        assert not any(user.is_new for user in await store.users())

    async def test_all_that_a_person_has_set_is_read_at_once(self, open_store: OpenStore) -> None:
        store = await open_store()
        assert await store.person_settings("test:alice") == {}
        await store.put_person_setting("test:alice", "skills.email", "on")
        await store.put_person_setting("test:alice", "soul.name", "Nova")
        await store.put_person_setting("test:alice", "skills.files", "off")
        await store.put_person_setting("test:alice", "skills.files", None)
        await store.put_person_setting("test:bob", "skills.email", "off")
        await store.close()
        settings = await (await open_store()).person_settings("test:alice")
        assert settings == {"skills.email": "on", "soul.name": "Nova"}
