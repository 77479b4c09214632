"""`/forget`: what a person wants gone is gone, and only that."""

from __future__ import annotations

import re

import pytest

from tests.gateway.house import House
from tests.gateway.remembering import Remembered
from tests.gateway.room import direct, in_thread

NONE = "There is no such thing here."
STILL = "are still in the conversation"


@pytest.fixture
async def kept(house: House, monkeypatch: pytest.MonkeyPatch) -> Remembered:
    return await Remembered(house, monkeypatch).open()


async def entry_of(kept: Remembered, text: str) -> int:
    """Say something; the entry that it became."""
    await kept.hear("ann", text)
    session = await kept.store.session_of("agent:main:desk:dm:ann")
    assert session is not None
    entries = await kept.store.transcript(session.id)
    return next(entry.id for entry in entries if entry.message.text == text)


@pytest.mark.parametrize("said", ["/forget {} {}", "!forget #{},#{}", "/FORGET {}, {} {}"])
async def test_what_is_named_by_number_is_forgotten(kept: Remembered, said: str) -> None:
    ids = await kept.plant("ann", "Likes tea", "Likes rain", "Likes snow")
    told = await kept.hear("ann", said.format(*ids[:2], ids[0]))
    assert told.startswith("Forgotten for good: 2 things (2 × note).")
    assert STILL in told
    assert "tea" not in told
    assert await kept.texts("ann") == ["Likes snow"]
    assert "Likes tea" not in await kept.hear("ann", "/memory log")


async def test_one_wrong_number_and_nothing_is_forgotten(kept: Remembered) -> None:
    [id] = await kept.plant("ann", "Likes tea")
    [theirs] = await kept.plant("bob", "Likes rain")
    assert "Forgotten" not in await kept.hear("ann", f"/forget {id} {theirs}")
    assert await kept.texts("ann") == ["Likes tea"]
    assert await kept.texts("bob") == ["Likes rain"]


async def test_the_messages_are_blanked_where_that_is_wanted(kept: Remembered) -> None:
    entry = await entry_of(kept, "my doctor is called Weber")
    other = await entry_of(kept, "it rains")
    [id] = await kept.plant("ann", "Has a doctor called Weber", sources=(entry,))
    await kept.hear(
        "ann", f"/forget {(await kept.plant('ann', 'Minds rain', sources=(other,)))[0]}"
    )
    assert "it rains" in str(await kept.house.said("ann"))
    told = await kept.hear("ann", f"/forget words {id}")
    assert re.search(r"\d messages? blanked in what I keep", told)
    assert "Weber" not in told
    said = await kept.house.said("ann")
    assert "Weber" not in str([text for role, text in said if role == "user"])
    assert "it rains" in str(said)


async def test_everything_is_also_what_is_no_longer_so(kept: Remembered) -> None:
    await kept.hear("ann", "/memory add I live at Zanzibarweg")
    await kept.hear("ann", "/memory undo 1")
    assert await kept.texts("ann") == []
    assert "what is no longer so" in await kept.hear("ann", "/forget everything")
    told = await kept.hear("ann", "/forget everything yes")
    assert told.startswith("Forgotten for good: 1 thing (no longer so).")
    assert "Zanzibarweg" not in await kept.hear("ann", "/memory show 1")
    place = "person:desk:ann"
    assert await kept.store.facts([place], states=("current", "replaced", "removed")) == []


async def test_everything_is_forgotten_when_it_is_said_twice(kept: Remembered) -> None:
    nothing = "Nothing is remembered of you here."
    assert await kept.hear("ann", "/forget everything") == nothing
    await kept.plant("ann", "Likes tea", "Likes rain", kind="preference")
    await kept.plant("ann", "Sings")
    await kept.plant("bob", "Likes snow")
    await kept.plant("ann", "Plans the trip", at=in_thread)
    asked = await kept.hear("ann", "/forget Everything")
    assert "all 3 things" in asked
    assert "`/forget everything yes`" in asked
    assert len(await kept.texts("ann")) == 3
    told = await kept.hear("ann", "/forget everything yes")
    assert told.startswith("Forgotten for good: 3 things (note, 2 × preference).")
    assert await kept.texts("ann") == []
    assert await kept.texts("bob") == ["Likes snow"]
    assert await kept.texts("ann", at=in_thread) == ["Plans the trip"]
    assert await kept.hear("ann", "/forget everything yes") == NONE
    assert "`/forget words everything yes`" in await kept.hear(
        "ann", "/forget words everything", at=in_thread
    )


async def test_in_a_group_everything_is_what_they_said_there(kept: Remembered) -> None:
    await kept.plant("ann", "Plans the trip", at=in_thread)
    await kept.plant("bob", "Drives the bus", at=in_thread)
    await kept.plant("ann", "Likes tea")
    told = await kept.hear("ann", "/forget everything yes", at=in_thread)
    assert told.startswith("Forgotten for good: 1 thing (note).")
    assert await kept.texts("bob", at=in_thread) == ["Drives the bus"]
    assert await kept.texts("ann") == ["Likes tea"]


async def test_by_words_the_one_that_holds_them_is_forgotten(kept: Remembered) -> None:
    await kept.plant("ann", "Has a cat named Tom", "Has a dog named Tim")
    await kept.plant("bob", "Has a cat named Max")
    told = await kept.hear("ann", "/forget the cats")
    assert "Forgotten" not in told, "not a word of it is certain"
    told = await kept.hear("ann", "/forget CAT named")
    assert told.startswith("Forgotten for good: 1 thing (note).")
    assert await kept.texts("ann") == ["Has a dog named Tim"]
    assert await kept.texts("bob") == ["Has a cat named Max"]


async def test_where_words_may_mean_several_or_another_it_asks(kept: Remembered) -> None:
    cat, dog = await kept.plant("ann", "Has a cat named Tom", "Has a dog named Tim")
    for said in ("/forget named", "/forget has cat and dog"):
        asked = await kept.hear("ann", said)
        assert {int(id) for id in re.findall(r"^- (\d+):", asked, re.MULTILINE)} == {cat, dog}
        assert "\n\nWhich one? `/forget ID` removes it" in asked
    [found] = re.findall(r"^- (\d+):", await kept.hear("ann", "/forget my cat"), re.MULTILINE)
    assert int(found) == cat
    assert await kept.hear("ann", "/forget zebra") == NONE
    assert await kept.hear("ann", "/forget ?!") == NONE
    assert len(await kept.texts("ann")) == 2


@pytest.mark.parametrize("at", [direct, in_thread], ids=["alone", "in_a_thread"])
@pytest.mark.parametrize("said", ["1", "words 1", "cat", "everything yes"])
async def test_forgetting_whose_answer_was_lost_in_a_crash_is_told_as_it_was(
    kept: Remembered, said: str, at: object
) -> None:
    place = in_thread if at is in_thread else direct
    assert await kept.plant("ann", "Has a cat", at=place) == [1]
    await kept.hear("ann", "hello", at=place)
    before = await kept.half_done("ann", f"/forget {said}", "c1", at=place)
    assert str(before.text).startswith("Forgotten for good: 1 thing (note).")
    commits = len(await kept.store.commits())
    await kept.house.crash()
    await kept.open()
    assert await kept.room.reply_to("c1") == before.text
    assert await kept.texts("ann", at=place) == []
    assert len(await kept.store.commits()) == commits
    [id] = await kept.plant("ann", "Has a horse", at=place)
    assert "Forgotten" in await kept.hear("ann", f"/forget {id}", at=place)
