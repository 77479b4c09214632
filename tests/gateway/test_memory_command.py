"""`/memory` and `/compact`: what a person sees and changes of what is remembered of them."""

from __future__ import annotations

import re

import pytest

from parley.storage.memory import Edit, NewFact
from tests.gateway.chat_rooms import RoomServer, in_room, open_roomy
from tests.gateway.house import House
from tests.gateway.remembering import Remembered
from tests.gateway.room import direct, in_thread
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until


@pytest.fixture
async def kept(house: House, monkeypatch: pytest.MonkeyPatch) -> Remembered:
    return await Remembered(house, monkeypatch).open()


def listed(text: str) -> list[int]:
    """The numbers of what is listed, in its order."""
    return [int(id) for id in re.findall(r"^- (\d+): ", text, re.MULTILINE)]


# ── what is remembered ──


async def test_what_is_remembered_is_listed_by_kind_and_number(kept: Remembered) -> None:
    assert (await kept.hear("ann", "/memory")).startswith("Nothing is remembered of you here.")
    likes = await kept.plant("ann", "Likes green tea", "Likes rain", kind="preference")
    lives = await kept.plant("ann", "Lives in\nLisbon", kind="identity")
    told = await kept.hear("ann", "!memory")
    assert listed(told) == [*lives, *reversed(likes)]
    assert re.findall(r"^\*\*(\w+)\*\*$", told, re.MULTILINE) == ["Identity", "Preference"]
    assert f"- {lives[0]}: Lives in Lisbon (2026-09-21)" in told
    assert "`/memory why ID`" in told
    assert "`/forget ID`" in told
    assert "stays in it" not in told


async def test_a_long_list_is_cut_and_says_how_to_find_the_rest(kept: Remembered) -> None:
    await kept.plant("ann", *(f"Owns book number {number} of many" for number in range(42)))
    told = await kept.hear("ann", "/memory")
    assert len(listed(told)) == 30
    assert "And 12 more: `/memory search WORDS` finds them." in told
    assert listed(await kept.hear("ann", "/memory search book 7")) != []
    assert "Nothing like that" in await kept.hear("ann", "/memory search zebra")


async def test_nobody_sees_or_changes_what_is_remembered_of_another(kept: Remembered) -> None:
    [theirs] = await kept.plant("bob", "Is allergic to peanuts")
    [group] = await kept.plant("bob", "Brings the peanuts", at=in_thread)
    await kept.hear("ann", "/memory add Sings in a choir")
    commits = [each.id for each in await kept.store.commits(places=["person:desk:bob"])]
    for place in (direct, in_thread):
        assert "eanuts" not in await kept.hear("ann", "/memory", at=place)
        assert "eanuts" not in await kept.hear("ann", "/memory search peanuts", at=place)
        assert "eanuts" not in await kept.hear("ann", "/memory log", at=place)
        for id in (theirs, group):
            for said in (f"/memory why {id}", f"/memory edit {id} Is fine", f"/forget {id}"):
                absent = said.replace(str(id), "987654")
                answer = await kept.hear("ann", said, at=place)
                expected = await kept.hear("ann", absent, at=place)
                assert answer == expected.replace("987654", str(id))
                assert "eanuts" not in answer
        for said in ("show", "undo"):
            answer = await kept.hear("ann", f"/memory {said} {commits[0]}", at=place)
            expected = await kept.hear("ann", f"/memory {said} 987654", at=place)
            assert answer == expected.replace("987654", str(commits[0]))
    assert await kept.texts("bob") == ["Is allergic to peanuts"]
    assert await kept.texts("bob", at=in_thread) == ["Brings the peanuts"]


async def test_what_is_said_in_a_group_stays_there_and_is_seen_by_whoever_said_it(
    kept: Remembered,
) -> None:
    await kept.plant("ann", "Plans the trip", at=in_thread)
    await kept.plant("bob", "Drives the bus", at=in_thread)
    await kept.plant("ann", "Has a secret")
    told = await kept.hear("ann", "/memory", at=in_thread)
    assert "Plans the trip" in told
    assert "Drives" not in told
    assert "secret" not in told
    assert "What is said in this chat stays in it." in told
    assert "trip" not in await kept.hear("ann", "/memory")
    assert "for this chat only" in await kept.hear("ann", "/memory add Packs tents", at=in_thread)
    assert "Packs tents" in await kept.hear("ann", "/memory", at=in_thread)
    assert "Packs tents" not in await kept.hear("bob", "/memory", at=in_thread)


async def test_where_groups_are_not_remembered_it_says_so(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await Remembered(house, monkeypatch).open(memory={"groups": False})
    for said in ("/memory", "/memory add Tea", "/forget everything yes"):
        assert await kept.hear("ann", said, at=in_thread) == "Nothing is remembered in this chat."
    assert "remembered" not in await kept.hear("ann", "/status", at=in_thread)
    assert "Remembered as" in await kept.hear("ann", "/memory add Tea")


# ── changes ──


async def test_what_is_added_and_edited_is_remembered_and_can_be_taken_back(
    kept: Remembered,
) -> None:
    told = await kept.hear("ann", "/memory add Has a cat\nnamed Tom")
    [id] = [int(id) for id in re.findall(r"Remembered as (\d+);", told)]
    await kept.hear("ann", f"/memory edit {id} Has a dog named Tim")
    assert await kept.texts("ann") == ["Has a dog named Tim"]
    log = await kept.hear("ann", "/memory log")
    edited, added = listed(log)
    shown = await kept.hear("ann", f"/memory show {edited}")
    assert "cat" in shown
    assert "dog" in shown
    assert shown.count("```") == 2
    for _ in range(2):
        assert (await kept.hear("ann", f"/memory undo {edited}")).startswith(f"Change {edited} is")
    assert "cat" in " ".join(await kept.texts("ann"))
    assert "taken back" in await kept.hear("ann", "/memory log")
    assert added in listed(await kept.hear("ann", "/memory log"))


async def test_a_key_is_not_remembered(kept: Remembered) -> None:
    await kept.hear("ann", "/memory add my key is sk-proj-Ab3dEf6hIj9lMn2pQr5tUv8xYz1Bc4Df7gH")
    assert await kept.texts("ann") == []


async def test_why_shows_the_messages_it_came_from_with_their_dates(kept: Remembered) -> None:
    await kept.hear("ann", "I moved to Lisbon last week")
    session = await kept.store.session_of("agent:main:desk:dm:ann")
    assert session is not None
    entry = (await kept.store.transcript(session.id))[0]
    [id] = await kept.plant("ann", "Lives in Lisbon", sources=(entry.id,))
    told = await kept.hear("ann", f"/memory why #{id}")
    assert "Lives in Lisbon" in told
    assert re.search(r"^- 20\d\d-\d\d-\d\d \d\d:\d\d UTC: “I moved to Lisbon", told, re.MULTILINE)
    assert f"`/forget words {id}`" in told
    added = await kept.hear("ann", "/memory add Likes tea")
    [id] = [int(id) for id in re.findall(r"as (\d+);", added)]
    assert "You had me remember it on 20" in await kept.hear("ann", f"/memory why {id}")


async def test_why_shows_what_it_was_before(kept: Remembered) -> None:
    [old] = await kept.plant("ann", "Lives in Porto")
    newer = NewFact("Lives in Lisbon", replaces=(old,), person="desk:ann")
    await kept.store.remember(
        "person:desk:ann", Edit(adds=(newer,)), by="desk:ann", origin="learned"
    )
    [id] = listed(await kept.hear("ann", "/memory"))
    assert "- before that: Lives in Porto (2026-09-21)" in await kept.hear(
        "ann", f"/memory why {id}"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/memory please", "`/memory edit ID WORDS`"),
        ("/memory search", "`/memory search WORDS`"),
        ("/memory edit 3", "`/memory edit ID WORDS`"),
        ("/memory why tea", "tell the numbers"),
        ("/memory why 99999999999999999999999999", ""),
        ("/memory undo 99999999999999999999999999", ""),
        ("/forget 99999999999999999999999999", ""),
        ("/memory why 0", ""),
        ("/forget", "`/forget words ID`"),
        ("/forget words", "`/forget words ID`"),
        ("/forget words about tea", "`/forget words ID`"),
    ],
)
async def test_what_is_not_understood_is_answered_in_a_line(
    kept: Remembered, said: str, told: str
) -> None:
    answer = await kept.hear("ann", said)
    assert told in answer
    assert "\n" not in answer
    assert "failed" not in answer


@pytest.mark.parametrize("said", ["/memory add Likes tea", "/memory edit 1 Likes rain"])
async def test_a_change_whose_answer_was_lost_in_a_crash_is_made_once(
    kept: Remembered, said: str
) -> None:
    assert await kept.plant("ann", "Likes snow") == [1]
    await kept.hear("ann", "hello")
    before = await kept.half_done("ann", said, "c1")
    remembered = await kept.texts("ann")
    commits = len(await kept.store.commits())
    await kept.house.crash()
    await kept.open()
    assert await kept.room.reply_to("c1") == before.text
    assert await kept.texts("ann") == remembered
    assert len(await kept.store.commits()) == commits


# ── in the house ──


async def test_status_counts_what_is_remembered(kept: Remembered) -> None:
    assert "remembered" not in await kept.hear("ann", "/status")
    await kept.plant("ann", "Likes tea", "Likes rain")
    assert "- 2 things remembered of you here: `/memory`" in await kept.hear("ann", "/status")
    assert "remembered" not in await kept.hear("ann", "/status", at=in_thread)


async def test_help_has_a_group_for_memory(kept: Remembered) -> None:
    group = (await kept.hear("ann", "/help")).partition("**Memory**")[2].partition("**")[0]
    assert re.findall(r"^- `/(\w+)", group, re.MULTILINE) == ["memory", "forget", "compact"]


async def test_in_an_archived_chat_memory_is_seen_and_nothing_is_folded(house: House) -> None:
    desk = await open_roomy(house, RoomServer())
    await desk.new("ann", "Tea")
    here = in_room("!1")
    await desk.hear("ann", "the pot is blue", at=here)
    await desk.hear("ann", "!archive", at=here)
    assert "Remembered as" in await desk.hear("ann", "!memory add Likes tea", at=here)
    assert "Likes tea" in await desk.hear("ann", "!memory", at=here)
    assert "Forgotten" in await desk.hear("ann", "!forget tea", at=here)
    assert "is archived" in await desk.hear("ann", "!compact", at=here)


async def test_where_memory_is_off_every_command_says_so(house: House) -> None:
    desk = await house.open(memory={"enabled": False})
    for said in ("/memory", "/memory add Tea", "/forget 1", "/forget everything yes", "/compact"):
        assert await desk.ask(said) == (
            "Nothing is remembered here by Parley: memory is off, or whoever answers has their own."
        )
    assert "remembered" not in await desk.ask("/status")


# ── folding ──


@pytest.fixture
async def noting(house: House, monkeypatch: pytest.MonkeyPatch) -> Remembered:
    return await Remembered(house, monkeypatch).open(folds=False)


async def test_a_conversation_is_folded_in_the_background(noting: Remembered) -> None:
    assert noting.folds is not None
    nothing = "There is nothing to fold in this conversation."
    assert await noting.hear("ann", "/compact") == nothing
    await noting.hear("ann", "hello")
    assert await noting.hear("ann", "!compact") == (
        "I am folding this conversation into a summary, and say here when it is done."
    )
    assert await noting.hear("ann", "/compact") == "This conversation is being folded already."
    [(session, name)] = noting.folds.folding.items()
    found = await noting.store.session_of("agent:main:desk:dm:ann")
    assert found is not None
    assert session == found.id
    assert re.fullmatch(r"command:\d+:compact", name)


async def test_while_an_answer_runs_folding_waits_for_it(noting: Remembered, stage: Stage) -> None:
    await noting.hear("ann", "hello")
    stage.then(Reply(text="one two three four", chunks=4, chunk_delay=30))
    await noting.room.tell("ann", "and now?")
    await until(lambda: noting.room.streamed("ann"))
    assert (await noting.hear("ann", "/compact")).startswith("As soon as this answer is done")


async def test_anyone_may_fold_a_conversation_that_is_shared(noting: Remembered) -> None:
    await noting.hear("ann", "hello", at=in_thread)
    assert (await noting.hear("bob", "/compact", at=in_thread)).startswith("I am folding")
    assert "already" in await noting.hear("ann", "/compact", at=in_thread)
