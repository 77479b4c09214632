"""The files people read and edit: no edit of theirs is lost or made twice, whatever stops us."""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.memory.view_files import slug_of
from parley.memory.views import Views
from parley.storage.memory import PROFILE, Edit, MemoryStore, NewFact
from parley.storage.sqlite.store import SqliteStore
from tests.memory.facts import HERE

ROOM = "chat:matrix:group:!room%3Aexample.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def views(folder: Path, store: SqliteStore) -> Views:
    return Views(folder, store)


async def learn(store: SqliteStore, *texts: str, place: str = HERE) -> list[int]:
    edit = Edit(adds=tuple(NewFact(text) for text in texts))
    commit = await store.remember(place, edit, by="model", origin="learned")
    return [change.fact for change in commit.changes]


async def texts(store: SqliteStore, place: str = HERE) -> list[str]:
    return [fact.text for fact in await store.facts([place])]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


async def commits(store: SqliteStore) -> int:
    return len(await store.commits())


# ── reading and editing ───────────────────────────────────────────────────────────────────────


async def test_each_place_has_its_own_file_for_its_owner_alone(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    for place in (PROFILE, HERE, ROOM):
        await learn(store, f"Said in {place}", place=place)
    assert await views.sync() == []
    assert views.file_of(PROFILE) == folder / "MEMORY.md"
    assert views.file_of(HERE) == folder / "people/telegram-99/USER.md"
    assert views.file_of(ROOM).parent.parent == folder / "chats"
    for place in (PROFILE, HERE, ROOM):
        file = views.file_of(place)
        assert f"Said in {place}" in file.read_text()
        assert file.read_text().count("Said in") == 1
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert await store.places(unwritten=True) == []


async def test_a_hands_edit_is_taken_in_and_the_file_written_anew(
    views: Views, store: SqliteStore
) -> None:
    tea, cat, dog = await learn(store, "Drinks tea", "Has a cat", "Has a dog")
    await views.sync()
    file = views.file_of(HERE)
    edit(file, "Drinks tea", "Drinks coffee")
    edit(file, f"- [{dog}] Has a dog", "- Knits")
    assert await views.sync() == []
    assert await texts(store) == ["Drinks coffee", "Has a cat", "Knits"]
    changed = await store.fact(tea)
    assert changed is not None
    assert (changed.origin, changed.confidence) == ("hand", 1.0)
    (newest, *_) = await store.commits()
    assert (newest.kind, newest.by) == ("edited", "owner")
    written = file.read_text()
    assert f"[{cat}] Has a cat" in written
    assert "] Knits" in written
    before = await commits(store)
    assert await views.sync() == []
    assert await commits(store) == before
    assert file.read_text() == written


async def test_an_edit_and_what_was_learned_meanwhile_are_both_kept(
    views: Views, store: SqliteStore
) -> None:
    (tea,) = await learn(store, "Drinks tea")
    await views.sync()
    edit(views.file_of(HERE), "Drinks tea", "Drinks coffee")
    await learn(store, "Has a cat")
    assert await views.write_place(HERE) == []
    assert await texts(store) == ["Drinks coffee", "Has a cat"]
    assert "Has a cat" in views.file_of(HERE).read_text()
    assert f"[{tea}] Drinks coffee" in views.file_of(HERE).read_text()


async def test_another_process_takes_in_what_was_edited_while_none_ran(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    edit(views.file_of(HERE), "Drinks tea", "Drinks coffee")
    assert await Views(folder, store).sync() == []
    assert await texts(store) == ["Drinks coffee"]


async def test_a_page_of_the_profile_written_by_hand_alone_is_taken_in(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    folder.mkdir()
    (folder / "MEMORY.md").write_text("The office is in Graz.\n")
    assert await views.sync() == []
    assert await texts(store, PROFILE) == ["The office is in Graz."]
    assert "] The office is in Graz." in (folder / "MEMORY.md").read_text()


async def test_a_line_that_says_what_another_says_becomes_one_with_it(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Drinks tea", "Has a cat")
    await views.sync()
    edit(views.file_of(HERE), "Has a cat", "drinks tea.")
    assert await views.sync() == []
    assert await texts(store) == ["Drinks tea"]
    assert await views.sync() == []
    assert views.file_of(HERE).read_text().count("tea") == 1


async def test_a_file_that_others_could_read_is_for_its_owner_alone_again(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    views.file_of(HERE).chmod(0o644)
    await learn(store, "Has a cat")
    await views.sync()
    assert stat.S_IMODE(views.file_of(HERE).stat().st_mode) == 0o600


async def test_a_deleted_file_removes_nothing_and_is_written_again(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    views.file_of(HERE).unlink()
    assert await views.sync() == []
    assert await texts(store) == ["Drinks tea"]
    assert "Drinks tea" in views.file_of(HERE).read_text()


@pytest.mark.parametrize("left", ["", "# What", "milk and bread\n"], ids=["empty", "cut", "other"])
async def test_a_file_that_says_nothing_clear_is_left_alone_and_told_of(
    views: Views, store: SqliteStore, left: str
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    views.file_of(HERE).write_text(left)
    await learn(store, "Has a cat")
    for _ in range(2):
        (problem,) = await views.sync()
        assert "USER.md was left as it is" in problem
        assert views.file_of(HERE).read_text() == left
    assert await texts(store) == ["Drinks tea", "Has a cat"]
    views.file_of(HERE).unlink()
    assert await views.sync() == []
    assert "Has a cat" in views.file_of(HERE).read_text()


async def test_a_secret_that_a_hand_wrote_goes_from_the_file(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    edit(views.file_of(HERE), "<!-- end", "- the password is hunter2\n\n<!-- end")
    (problem,) = await views.sync()
    assert "looks like a key or password" in problem
    assert "hunter2" not in problem
    assert "hunter2" not in views.file_of(HERE).read_text()
    view = await store.view(HERE)
    assert view is not None
    assert "hunter2" not in view.text
    assert await views.sync() == []


# ── what goes ─────────────────────────────────────────────────────────────────────────────────


async def test_what_is_forgotten_goes_from_the_file_and_from_what_is_kept_of_it(
    views: Views, store: SqliteStore
) -> None:
    tea, _ = await learn(store, "Drinks tea", "Has a cat")
    await views.sync()
    await store.forget([tea], by="owner")
    assert await views.write_place(HERE) == []
    view = await store.view(HERE)
    assert view is not None
    assert "tea" not in view.text + views.file_of(HERE).read_text()
    assert await texts(store) == ["Has a cat"]


async def test_what_is_forgotten_goes_even_from_a_file_that_is_unclear(
    views: Views, store: SqliteStore
) -> None:
    tea, _ = await learn(store, "Drinks tea", "Has a cat")
    await views.sync()
    views.file_of(HERE).write_text(f"- [{tea}] Drinks tea\n")
    await store.forget([tea], by="owner")
    await views.write_place(HERE, even_if_unclear=True)
    assert "tea" not in views.file_of(HERE).read_text()
    assert "Has a cat" in views.file_of(HERE).read_text()
    assert await views.sync() == []


async def test_a_place_without_facts_has_no_file(views: Views, store: SqliteStore) -> None:
    (tea,) = await learn(store, "Drinks tea")
    await views.sync()
    file = views.file_of(HERE)
    await store.forget([tea], by="owner")
    assert await views.sync() == []
    assert not file.parent.exists()
    view = await store.view(HERE)
    assert view is not None
    assert view.text == ""
    assert await store.places(unwritten=True) == []
    await learn(store, "Drinks tea")
    await views.sync()
    assert "Drinks tea" in file.read_text()


async def test_text_that_a_hand_left_in_an_emptied_place_is_remembered(
    views: Views, store: SqliteStore
) -> None:
    (tea,) = await learn(store, "Drinks tea")
    await views.sync()
    file = views.file_of(HERE)
    edit(file, "<!-- end", "- Knits\n\n<!-- end")
    await store.forget([tea], by="owner")
    assert await views.sync() == []
    assert await texts(store) == ["Knits"]
    assert "Drinks" not in file.read_text()


# ── files that cannot be used ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["file", "above", "room"])
async def test_links_are_not_followed(
    views: Views, store: SqliteStore, folder: Path, tmp_path: Path, where: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "telegram-99").mkdir(parents=True)
    (outside / "USER.md").write_text("- A stranger's words\n")
    (outside / "telegram-99/USER.md").write_text("- A stranger's words\n")
    file = views.file_of(HERE)
    link, target = {
        "file": (file, outside / "USER.md"),
        "above": (file.parent, outside),
        "room": (file.parent.parent, outside),
    }[where]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    await learn(store, "Drinks tea")
    await learn(store, "Has a cat", place=PROFILE)
    (problem,) = await views.sync()
    assert "is a link" in problem
    assert await texts(store) == ["Drinks tea"]
    assert "Has a cat" in views.file_of(PROFILE).read_text()
    assert (outside / "USER.md").read_text() == "- A stranger's words\n"
    assert (outside / "telegram-99/USER.md").read_text() == "- A stranger's words\n"


async def test_a_file_that_cannot_be_read_is_told_of_and_harms_no_other(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Drinks tea")
    await learn(store, "Has a cat", place=PROFILE)
    views.file_of(HERE).parent.mkdir(parents=True)
    views.file_of(HERE).write_bytes(b"- caf\xe9\n")
    (problem,) = await views.sync()
    assert "not UTF-8" in problem
    assert "Has a cat" in views.file_of(PROFILE).read_text()
    views.file_of(HERE).unlink()
    os.mkfifo(views.file_of(HERE))
    (problem,) = await views.sync()
    assert "not an ordinary file" in problem
    views.file_of(HERE).unlink()
    views.file_of(HERE).mkdir()
    (problem,) = await views.sync()
    assert "not an ordinary file" in problem


async def test_a_folder_that_cannot_be_made_is_told_of(store: SqliteStore, tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("in the way")
    await learn(store, "Drinks tea")
    (problem,) = await Views(tmp_path / "memory", store).sync()
    assert problem.startswith("Cannot ")


# ── being stopped ─────────────────────────────────────────────────────────────────────────────


class Stop(BaseException):
    """The process ends here."""


class Stopping:
    """The store, until a process is stopped before or behind its n-th write."""

    def __init__(self, store: SqliteStore, writes: int, *, behind: bool) -> None:
        self._store = store
        self._left = writes
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        return self._counted(call) if name in ("remember", "put_view") else call

    def _counted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **more: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._behind:
                raise Stop
            result = await call(*args, **more)
            if self._left == 0:
                raise Stop
            return result

        return counted


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("then", ["nothing", "store", "hand", "both"])
async def test_being_stopped_at_any_step_neither_loses_nor_doubles_an_edit(
    views: Views, store: SqliteStore, folder: Path, writes: int, behind: bool, then: str
) -> None:
    _, cat, dog, fox = await learn(store, "Drinks tea", "Has a cat", "Has a dog", "Saw a fox")
    await views.sync()
    file = views.file_of(HERE)
    edit(file, "Drinks tea", "Drinks coffee")
    edit(file, f"- [{dog}] Has a dog", "- Knits")
    change = Edit(changes={cat: NewFact("Has two cats")}, adds=(NewFact("Sails"),))
    await store.remember(HERE, change, by="model", origin="learned")

    stopping = cast("MemoryStore", Stopping(store, writes, behind=behind))
    with pytest.raises(Stop):
        await Views(folder, stopping).sync()

    expected = ["Drinks coffee", "Has two cats", "Saw a fox", "Sails", "Knits"]
    if then in ("store", "both"):
        again = Edit(changes={cat: NewFact("Has three cats")}, removes=(fox,))
        await store.remember(HERE, again, by="model", origin="learned")
        expected = ["Drinks coffee", "Has three cats", "Sails", "Knits"]
    if then in ("hand", "both"):
        edit(file, "<!-- end", "- Sings\n\n<!-- end")
        expected.append("Sings")
    fresh = Views(folder, store)
    assert await fresh.sync() == []
    assert sorted(await texts(store)) == sorted(expected)
    for text in expected:
        assert file.read_text().count(f"] {text} ·") == 1
    view = await store.view(HERE)
    assert view is not None
    assert view.text == file.read_text()
    made = await commits(store)
    assert await fresh.sync() == []
    assert await commits(store) == made
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_being_stopped_with_a_page_that_a_hand_began_removes_nothing(
    views: Views, store: SqliteStore, folder: Path, writes: int, behind: bool
) -> None:
    await learn(store, "Drinks tea")
    file = views.file_of(HERE)
    file.parent.mkdir(parents=True)
    file.write_text("# Mine\n\n- Knits\n")
    with pytest.raises(Stop):
        await Views(folder, cast("MemoryStore", Stopping(store, writes, behind=behind))).sync()
    assert await Views(folder, store).sync() == []
    assert await texts(store) == ["Drinks tea", "Knits"]


async def test_an_edit_that_was_taken_in_and_forgotten_does_not_come_back_after_a_stop(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    file = views.file_of(HERE)
    edit(file, "<!-- end", "- Knits\n\n<!-- end")
    with pytest.raises(Stop):
        await Views(folder, cast("MemoryStore", Stopping(store, 1, behind=True))).sync()
    knits = (await store.facts([HERE]))[-1]
    await store.forget([knits.id], by="owner")
    assert await Views(folder, store).sync() == []
    assert await texts(store) == ["Drinks tea"]
    assert "Knits" not in file.read_text()


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("writes", [1, 2])
async def test_being_stopped_while_a_file_is_removed_brings_nothing_back(
    views: Views, store: SqliteStore, folder: Path, writes: int, behind: bool
) -> None:
    (tea,) = await learn(store, "Drinks tea")
    await views.sync()
    await store.forget([tea], by="owner")
    with pytest.raises(Stop):
        await Views(folder, cast("MemoryStore", Stopping(store, writes, behind=behind))).sync()
    assert await Views(folder, store).sync() == []
    assert await texts(store) == []
    assert not views.file_of(HERE).exists()


async def test_a_file_that_is_saved_while_it_is_about_to_be_replaced_is_merged_first(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    await learn(store, "Drinks tea")
    await views.sync()
    await learn(store, "Has a cat")
    file = views.file_of(HERE)

    class Late(Stopping):
        def __getattr__(self, name: str) -> Any:
            if name == "put_view" and "Knits" not in file.read_text():
                edit(file, "<!-- end", "- Knits\n\n<!-- end")
            return getattr(self._store, name)

    late = Views(folder, cast("MemoryStore", Late(store, 0, behind=False)))
    assert await late.sync() == []
    assert await texts(store) == ["Drinks tea", "Has a cat", "Knits"]
    assert "] Knits" in file.read_text()


async def test_an_editor_that_was_open_does_not_bring_back_what_was_forgotten(
    views: Views, store: SqliteStore
) -> None:
    await learn(store, "Lives at Zanzibarweg", "Drinks tea")
    await views.sync()
    file = views.file_of(HERE)
    opened = file.read_text()
    [home, _] = await store.facts([HERE])
    await store.forget([home.id], by="owner")
    await views.sync()
    file.write_text(opened.replace("Drinks tea", "Drinks green tea"))
    [problem] = await views.sync()
    assert problem.endswith(
        f"Line [{home.id}] was forgotten meanwhile; without its number it is remembered again."
    )
    assert await texts(store) == ["Drinks green tea"]
    assert "Zanzibarweg" not in file.read_text()
    file.write_text(file.read_text().replace("- [", "- Lives at Zanzibarweg\n- ["))
    assert await views.sync() == []
    assert await texts(store) == ["Drinks green tea", "Lives at Zanzibarweg"]


# ── editors that were open for long ───────────────────────────────────────────────────────────


async def test_an_editor_that_was_open_takes_back_nothing_that_was_learned_since(
    views: Views, store: SqliteStore
) -> None:
    tea, cat, home, pet, bus = await learn(
        store, "Drinks tea", "Has a cat", "Lives in Oslo", "Has a hen", "Takes the bus"
    )
    await views.sync()
    file = views.file_of(HERE)
    opened = file.read_text()
    since = Edit(
        adds=(NewFact("Sails"), NewFact("Lives in Graz", replaces=(home,))),
        changes={cat: NewFact("Has two cats")},
        removes=(bus,),
    )
    await store.remember(HERE, since, by="model", origin="learned")
    await views.sync()
    now = ["Drinks tea", "Has two cats", "Has a hen", "Sails", "Lives in Graz"]
    written = file.read_text()
    told = f"Line [{cat}] was changed elsewhere since this page was opened; it was left as it is."

    file.write_text(opened)
    made = await commits(store)
    [problem] = await views.sync()
    assert problem.endswith(f"USER.md: {told}")
    assert await texts(store) == now
    assert await commits(store) == made
    assert file.read_text() == written
    assert await views.sync() == []

    file.write_text(
        opened.replace("Drinks tea", "Drinks cocoa").replace(f"- [{pet}] Has a hen", "- Knits")
    )
    [problem] = await views.sync()
    assert problem.endswith(told)
    assert await texts(store) == ["Drinks cocoa", "Has two cats", "Sails", "Lives in Graz", "Knits"]
    assert f"[{tea}] Drinks cocoa" in file.read_text()
    assert await views.sync() == []


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_being_stopped_with_a_page_that_is_old_takes_back_nothing_either(
    views: Views, store: SqliteStore, folder: Path, writes: int, behind: bool
) -> None:
    tea, cat, _ = await learn(store, "Drinks tea", "Has a cat", "Has a hen")
    await views.sync()
    file = views.file_of(HERE)
    opened = file.read_text()
    since = Edit(adds=(NewFact("Sails"),), changes={cat: NewFact("Has two cats")})
    await store.remember(HERE, since, by="model", origin="learned")
    await views.sync()
    edited = opened.replace("Drinks tea", "Drinks cocoa").replace("Has a hen", "")
    file.write_text(edited)
    with pytest.raises(Stop):
        await Views(folder, cast("MemoryStore", Stopping(store, writes, behind=behind))).sync()
    await learn(store, "Sings")
    await Views(folder, store).sync()
    assert await texts(store) == ["Drinks cocoa", "Has two cats", "Sails", "Sings"]
    assert f"[{tea}] Drinks cocoa" in file.read_text()
    assert await Views(folder, store).sync() == []


# ── names ─────────────────────────────────────────────────────────────────────────────────────


@given(st.text(min_size=1), st.text(min_size=1))
def test_each_name_has_a_folder_of_its_own_that_is_safe_everywhere(one: str, other: str) -> None:
    slug = slug_of(one)
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
    assert 1 <= len(slug) <= 64
    assert slug[0] not in ".-"
    assert slug[-1] not in ".-"
    assert (slug == slug_of(other)) == (one == other)


def test_names_that_look_alike_have_different_folders() -> None:
    names = ["matrix:@alice:example.org", "matrix:@Alice:example.org", "matrix:alice-example.org"]
    names += ["a:b-c", "a-b:c", "a:b.c", "a:b_c", "../../etc", "telegram:99", "telegram:99."]
    slugs = {slug_of(name) for name in names}
    assert len(slugs) == len(names)
    assert all(slug_of(name).startswith("matrix-alice-example.org--") for name in names[:3])
    assert slug_of("telegram:99") == "telegram-99"


async def test_a_page_that_was_left_half_written_does_not_stay(
    views: Views, store: SqliteStore, folder: Path
) -> None:
    await learn(store, "Ann has a cat.")
    file = views.file_of(HERE)
    file.parent.mkdir(parents=True)
    left = file.with_name(f".{file.name}.k3_x9abc")
    left.write_text("Ann has a")
    editors = file.with_name(f".{file.name}.swp")
    editors.touch()
    assert await views.sync() == []
    assert sorted(folder.rglob("*.*")) == sorted((file, editors))
