"""Who people are and what they set, kept over restarts and held to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from parley.agent.person import Plan
from parley.config import Settings
from parley.gateway.owners import Owners
from parley.gateway.people import People
from parley.storage.sqlite import SqliteStore
from tests.gateway.house import House
from tests.gateway.room import Room, direct, in_thread
from tests.servers.scripted_model import Reply, Usage
from tests.servers.stage import Stage


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "parley.db")
    yield store
    await store.close()


def people_of(store: SqliteStore, **settings: Any) -> People:
    typed = Settings.model_validate(settings)
    return People(store, typed, Owners(typed.access.owners))


async def open_room(house: House, **sections: Any) -> Room:
    house.desk_type = Room
    desk = await house.open(**sections)
    assert isinstance(desk, Room)
    return desk


def offered(house: House, number: int = -1) -> set[str]:
    """The tools that the model was told of."""
    return {each["function"]["name"] for each in house.model.requests[number].json.get("tools", [])}


def system(house: House, number: int = -1) -> str:
    return str(house.model.requests[number].json["messages"][0]["content"])


def using(tokens: int, text: str = "done") -> Reply:
    return Reply(text=text, usage=Usage(tokens - 10, 10))


# ── who they are ──


async def test_someone_is_new_once_and_their_name_is_kept(store: SqliteStore) -> None:
    people = people_of(store)
    first = await people.get_or_create_user("@ann:example.org", "matrix", "Ann")
    again = await people.get_or_create_user("@ann:example.org", "matrix")
    assert (first.is_new, again.is_new) == (True, False)
    assert first.person == again.person == "matrix:@ann:example.org"
    assert again.display_name == "Ann"
    renamed = await people.get_or_create_user("@ann:example.org", "matrix", "Anna")
    assert (renamed.is_new, renamed.display_name) == (False, "Anna")
    assert (await people.get_or_create_user("@ann:example.org", "telegram")).is_new
    others = people_of(store)
    assert (await others.get_or_create_user("@ann:example.org", "matrix")).display_name == "Anna"
    assert not (await others.get_or_create_user("@ann:example.org", "matrix", "Anna")).is_new


async def test_whoever_is_known_is_not_looked_up_again(store: SqliteStore) -> None:
    people = people_of(store)
    known = await people.get_or_create_user("ann", "desk", "Ann")
    await people.settings_of("desk:ann")
    await store.close()
    assert (await people.get_or_create_user("ann", "desk", "Ann")).created_at == known.created_at
    assert (await people.settings_of(direct("ann"))).skills["files"]


async def test_a_change_is_seen_at_once_and_is_of_one_person(store: SqliteStore) -> None:
    people = people_of(store, agent={"safety": {"file-delete": False}})
    before = await people.settings_of("desk:ann")
    assert dict(before.skills) == {
        "web-search": True,
        "fetch-url": True,
        "files": True,
        "email": False,
        "browser": False,
        "image-gen": False,
    }
    assert dict(before.safety) == {"email-send": True, "file-delete": False, "social-post": True}
    await people.put("desk:ann", "skills.email", "on")
    await people.put("desk:ann", "safety.file-delete", "on")
    after = await people.settings_of("desk:ann")
    assert (after.skills["email"], after.safety["file-delete"]) == (True, True)
    assert not before.skills["email"]
    assert not (await people.settings_of("desk:bob")).skills["email"]
    await people.put("desk:ann", "skills.email", None)
    assert not (await people.settings_of("desk:ann")).skills["email"]


async def test_nobody_has_a_plan_unless_the_owner_sets_one(store: SqliteStore) -> None:
    people = people_of(store, plan={"name": "Free"})
    assert await people.plan_of("desk:ann") is None
    assert (await people.settings_of("desk:ann")).plan is None
    await people.put("desk:ann", "plan.tokens", "5000")
    assert await people.plan_of("desk:ann") == Plan("Free", 5000)
    assert await people.plan_of("desk:bob") is None


async def test_a_plan_is_for_guests_and_not_for_owners_or_programs(store: SqliteStore) -> None:
    people = people_of(store, plan={"tokens": 1000}, access={"owners": ["matrix:@me:home"]})
    assert await people.plan_of(direct("ann")) == Plan("Beta", 1000)
    for free in ("matrix:@me:home", "terminal:desk", "api:key", "direct:x", "task:y"):
        assert await people.plan_of(free) is None
    await people.put("desk:ann", "plan.tokens", "5000")
    await people.put("desk:ann", "plan.name", "Gold")
    assert await people.plan_of("desk:ann") == Plan("Gold", 5000)
    await people.put("desk:ann", "plan.tokens", "none")
    assert await people.plan_of("desk:ann") is None
    assert await people.plan_of("desk:bob") == Plan("Beta", 1000)


# ── skills and connectors ──


async def test_a_skill_that_is_off_is_not_offered(house: House) -> None:
    search = {"provider": "searxng", "url": "http://127.0.0.1:9/"}
    desk = await open_room(house, web={"search": search})
    await desk.hear("ann", "hello")
    assert {"web_fetch", "web_search", "read_file", "write_file"} <= offered(house)
    assert await desk.hear("ann", "!skills off files") == "`files` is off."
    assert await desk.hear("ann", "/skills off fetch-url") == "`fetch-url` is off."
    await desk.hear("ann", "hello")
    files = {"read_file", "write_file", "edit_file", "search_files"}
    assert not offered(house) & {*files, "web_fetch"}
    assert "web_search" in offered(house)
    await desk.hear("bob", "hello")
    assert files <= offered(house)
    await house.close()
    desk = await open_room(house)
    listed = await desk.hear("ann", "!skills")
    assert "- files: off" in listed
    assert "- email: off (nothing here offers it)" in listed
    await desk.hear("ann", "hello")
    assert not offered(house) & files
    await desk.hear("ann", "!skills on files")
    await desk.hear("ann", "hello")
    assert files <= offered(house)


async def test_files_that_are_off_are_not_sent_either(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "sends_files", True)
    (house.profile.workspace / "notes.txt").write_text("mine")
    desk = await open_room(house)
    await desk.hear("ann", "hello")
    assert "send_file" in offered(house)
    await desk.hear("ann", "!skills off files")
    stage.then(Reply(tool_calls=(("send_file", {"path": "notes.txt"}),)), Reply("sent"))
    await desk.hear("ann", "send me my notes")
    assert "send_file" not in offered(house)
    assert not any(delivery.attachments for delivery in desk.sent)


async def test_a_skill_that_nothing_offers_is_told_of_honestly(house: House) -> None:
    desk = await open_room(house)
    assert "Nothing here offers it yet" in await desk.hear("ann", "!skills on image-gen")
    assert "Nothing here offers it yet" in await desk.hear("ann", "!skills on web-search")
    unknown = await desk.hear("ann", "!skills off juggling")
    assert "names: `web-search`" in unknown
    assert "`/skills on files`" in await desk.hear("ann", "!skills files")
    assert await desk.hear("ann", "!connectors") == "There are no connectors here."


async def test_installed_instructions_that_are_off_are_neither_listed_nor_read(
    house: House, stage: Stage
) -> None:
    for name in ("standup", "haiku"):
        folder = house.profile.home / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\ndescription: About {name}.\n---\nDo {name}.\n")
    desk = await open_room(house)
    await desk.hear("ann", "hello")
    assert "About haiku." in system(house)
    await desk.hear("ann", "!skills off haiku")
    stage.then(Reply(tool_calls=(("read_skill", {"name": "haiku"}),)))
    await desk.hear("ann", "write one")
    assert "haiku" not in system(house)
    assert "About standup." in system(house)
    assert "There is no skill `haiku`; there are: standup." in house.words()[-1]
    await desk.hear("ann", "!skills off standup")
    await desk.hear("ann", "hello")
    assert "read_skill" not in offered(house)
    await desk.hear("bob", "hello")
    assert "About haiku." in system(house)


async def test_a_delegated_task_has_the_skills_of_whoever_it_is_for(
    house: House, stage: Stage
) -> None:
    desk = await open_room(house)
    await desk.hear("ann", "!skills off files")
    stage.then(Reply(tool_calls=(("delegate_task", {"goal": "look"}),)), Reply("looked"))
    await desk.hear("ann", "delegate it")
    assert house.words(1) == ["look"]
    assert "read_file" not in offered(house, 1)
    assert "web_fetch" in offered(house, 1)


# ── the soul ──


async def test_the_soul_is_in_the_prompt_of_this_person_alone(house: House) -> None:
    desk = await open_room(house)
    await desk.hear("bob", "hello")
    plain = system(house)
    assert await desk.hear("ann", "!soul name  Deep\tThought ") == "You can call me Deep Thought."
    assert "keep to that" in await desk.hear("ann", "!soul instructions Answer in verse.\nAlways.")
    await desk.hear("ann", "hello")
    with_soul = system(house)
    assert with_soul.startswith(plain.replace("Bob", "Ann"))
    assert "This person calls you Deep Thought." in with_soul
    assert with_soul.endswith("Answer in verse.\nAlways.")
    await desk.hear("bob", "hello")
    assert system(house) == plain
    await desk.hear("ann", "hello all", at=in_thread)
    assert "Deep Thought" not in system(house)
    assert "You call me Deep Thought. Answer in verse." in await desk.hear("ann", "!soul")
    assert "at most 2,000" in await desk.hear("ann", f"!soul instructions {'x' * 2001}")
    assert "at most 60" in await desk.hear("ann", f"!soul name {'x' * 61}")
    await desk.hear("ann", "!soul clear")
    await desk.hear("ann", "hello")
    assert system(house) == plain.replace("Bob", "Ann")


# ── the plan ──


async def test_without_a_plan_a_guest_may_ask_as_often_as_they_like(
    house: House, stage: Stage
) -> None:
    desk = await open_room(house, access={"owners": ["desk:me"]})
    stage.then(using(600_000), using(600_000))
    for _ in range(2):
        assert await desk.hear("ann", "a question of seven words, like this") == "done"
    assert "- Your plan: none (unlimited)" in await desk.hear("ann", "!status")


async def test_a_plan_that_is_used_up_ends_there_and_status_tells_the_real_usage(
    house: House, stage: Stage
) -> None:
    desk = await open_room(house, plan={"tokens": 1000}, access={"owners": ["desk:me"]})
    stage.then(using(600), using(424))
    assert "- Your plan: Beta, 0 of 1,000 tokens used this month" in await desk.hear(
        "ann", "!status"
    )
    assert await desk.hear("ann", "one") == "done"
    assert "- Your plan: Beta, 600 of 1,000 tokens" in await desk.hear("ann", "!status")
    assert await desk.hear("ann", "two") == "done"
    asked = house.model.total
    said = await desk.hear("ann", "three")
    assert said.startswith("Your plan Beta is used up: 1,024 of 1,000 tokens this month; it begins")
    assert said.endswith("and an owner can give you more.")
    assert house.model.total == asked
    assert "**Plan**: Beta, 1,024 of 1,000 tokens" in await desk.hear("ann", "!settings")
    assert "Your plan Beta: 1,024 of 1,000 tokens" in await desk.hear("ann", "/usage")
    stage.then(using(2000), using(2000))
    for _ in range(2):
        assert await desk.hear("me", "mine") == "done"
    assert "- Your plan: none" in await desk.hear("me", "!status")
    assert await desk.hear("bob", "hello") == "echo: hello"
    await house.close()
    desk = await open_room(house, plan={"tokens": 1000})
    assert "is used up: 1,024" in await desk.hear("ann", "four")
    assert house.store is not None
    await house.store.put_person_setting("desk:ann", "plan.tokens", "1025")
    await house.close()
    desk = await open_room(house, plan={"tokens": 1000})
    assert (await desk.hear("ann", "five")).startswith("echo:")


async def test_nobody_gets_round_their_plan_by_delegating(house: House, stage: Stage) -> None:
    desk = await open_room(house, plan={"tokens": 1000})
    task = Reply(tool_calls=(("delegate_task", {"goal": "look"}),), usage=Usage(200, 10))
    stage.then(task, using(900), using(5))
    said = await desk.hear("ann", "delegate it")
    assert said.startswith("Your plan Beta is used up: 1,110 of 1,000 tokens")
    assert house.store is not None
    assert house.model.total == 2


async def test_settings_lists_all_of_it(house: House) -> None:
    desk = await open_room(house)
    await desk.hear("ann", "!safety off file-delete")
    await desk.hear("ann", "!soul name Max")
    said = await desk.hear("ann", "!settings")
    lines = said.splitlines()
    assert (
        "web-search on, fetch-url on, files on, email off, browser off, image-gen off" in lines[0]
    )
    assert lines[1].endswith(": none")
    assert "You call me Max." in lines[2]
    assert "email-send on, file-delete off, social-post on" in lines[3]
    assert lines[4] == "- **Plan**: none (unlimited)"


async def test_whoever_changes_the_settings_they_were_given_changes_nobody_elses(
    store: SqliteStore,
) -> None:
    people = people_of(store)
    await people.put("desk:ann", "connectors.tickets", "on")
    for _ in range(2):  # read from the store, then known
        given = await people.settings_of("desk:ann")
        for part in (given.skills, given.connectors, given.safety):
            assert isinstance(part, dict)
            part.clear()
    kept = await people.settings_of("desk:ann")
    assert kept.skills["files"]
    assert kept.connectors == {"tickets": True}
    assert kept.safety["email-send"]
    assert (await people.settings_of("desk:bob")).skills["files"]
