"""People are remembered: learned while they are away, used where they speak, and only there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from parley.profiles import Profile
from parley.protocol import InboundMessage, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.memory import Fact, person_place
from tests.gateway.house import House
from tests.gateway.room import Place, Room, direct, in_thread
from tests.servers.extractor import Extractor
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.waiting import until, until_true

_RESTS = {"memory": {"idle_check_interval": 0.1}}
_CAT = "My cat is called Miso, and she sleeps all day on the warm oven."


@pytest.fixture
def extractor() -> Extractor:
    return Extractor()


@pytest.fixture
async def model(extractor: Extractor) -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(extractor) as server:
        yield server


@pytest.fixture
async def room(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Talk]:
    house = House(Profile("default", tmp_path / "home"), model)
    house.desk_type = Room
    talk = Talk(house)
    yield talk
    await house.close()


class Talk:
    def __init__(self, house: House) -> None:
        self.house = house

    async def open(self, **sections: Mapping[str, Any]) -> Room:
        desk = await self.house.open(**{**_RESTS, **sections})
        assert isinstance(desk, Room)
        return desk

    async def facts(self, *places: str) -> list[Fact]:
        assert self.house.store is not None
        return await self.house.store.facts(places)

    async def learned(self, *places: str) -> list[Fact]:
        """What is remembered there, once there is something."""
        found: list[Fact] = []

        async def some() -> bool:
            found[:] = await self.facts(*places)
            return bool(found)

        await until_true(some)
        return found

    def system(self, number: int = -1) -> str:
        """The system prompt of one of the turns."""
        turns = [r.json for r in self.house.model.requests if not _is_housekeeping(r.json)]
        return str(turns[number]["messages"][0]["content"])


def _is_housekeeping(request: dict[str, object]) -> bool:
    messages = request["messages"]
    assert isinstance(messages, list)
    return "it is housekeeping" in str(messages[-1]["content"])


async def test_what_somebody_said_is_known_in_their_next_conversation(room: Talk) -> None:
    desk = await room.open()
    await desk.hear("ann", _CAT)
    [fact] = await room.learned(person_place("desk:ann"))
    assert "Miso" in fact.text and fact.person == "desk:ann" and fact.sources

    await desk.hear("ann", "/new")
    await desk.hear("ann", "hello again")
    assert "Miso" in room.system()


async def test_it_is_known_nowhere_else(room: Talk) -> None:
    desk = await room.open()
    await desk.hear("ann", _CAT)
    await room.learned(person_place("desk:ann"))
    await desk.hear("bob", "hello there")
    assert "Miso" not in room.system()
    await desk.hear("ann", "hello everyone", at=in_thread)
    assert "Miso" not in room.system()


async def test_what_is_said_in_a_group_stays_in_it(room: Talk) -> None:
    desk = await room.open()
    await desk.hear("ann", _CAT, at=in_thread)
    place = "chat:desk:group:g1:t1"
    [fact] = await room.learned(place)
    assert fact.person == "desk:ann"
    await desk.hear("bob", "hello", at=in_thread)
    assert "Miso" in room.system()
    for who in ("ann", "bob"):
        await desk.hear(who, "hello in private")
        assert "Miso" not in room.system()


async def test_housekeeping_asks_with_the_beginning_that_turns_have(room: Talk) -> None:
    desk = await room.open()
    await desk.hear("ann", _CAT)
    await room.learned(person_place("desk:ann"))
    turn, keeping = (each.json for each in room.house.model.requests)
    assert _is_housekeeping(keeping) and not _is_housekeeping(turn)
    assert keeping["tools"] == turn["tools"]
    begin = turn["messages"]
    assert keeping["messages"][: len(begin)] == begin


async def test_a_message_is_not_kept_waiting_by_housekeeping(
    room: Talk, extractor: Extractor
) -> None:
    extractor._delay = 30.0
    desk = await room.open()
    await desk.hear("ann", _CAT)
    await until(lambda: any(each.what == "housekeeping" for each in extractor.asked))
    async with asyncio.timeout(60):
        await desk.hear("ann", "and she likes the rain")
    extractor._delay = 0.0
    [fact] = await room.learned(person_place("desk:ann"))
    assert "Miso" in fact.text


async def test_what_goes_wrong_shows_in_the_status_and_mends(
    room: Talk, model: ScriptedModel, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await room.open()
    broken = True

    def sulk(request: dict[str, object]) -> Reply:
        if broken and _is_housekeeping(request):
            return Reply(status=400)
        return extractor(request)

    monkeypatch.setattr(model, "_script", sulk)
    await desk.hear("ann", _CAT)
    gateway = room.house.gateway
    assert gateway is not None

    async def noted() -> bool:
        [profile] = (await gateway.status()).profiles
        return any("could not be tended" in note for note in profile.notes)

    await until_true(noted)
    [profile] = (await gateway.status()).profiles
    assert profile.sound
    broken = False
    await room.learned(person_place("desk:ann"))

    async def quiet() -> bool:
        [profile] = (await gateway.status()).profiles
        return not profile.notes

    await until_true(quiet)


async def test_it_is_off_where_the_settings_say_so(room: Talk, extractor: Extractor) -> None:
    desk = await room.open(memory={"enabled": False, "idle_check_interval": 0.05})
    await desk.hear("ann", _CAT)
    assert "nothing" in (await desk.hear("ann", "/memory")).lower()
    tools = {tool["function"]["name"] for tool in room.house.model.requests[-1].json["tools"]}
    assert "memory" not in tools
    assert [each.what for each in extractor.asked] == ["turn"]


async def test_a_long_conversation_is_folded_and_goes_on_from_its_summary(room: Talk) -> None:
    room.house.settings["providers"]["scripted"]["context_window"] = 8_000
    desk = await room.open()
    assert room.house.store is not None
    await desk.hear("ann", _CAT)
    lane = build_session_key(direct("ann"))
    for number in range(20):
        await desk.hear("ann", f"Tell me about number {number}. " + "word " * 100)
    found = await room.house.store.session_of(lane)
    assert found is not None
    store, id = room.house.store, found.id

    async def folded() -> bool:
        tended = await store.tended(id)
        return tended is not None and bool(tended.summary)

    await until_true(folded)
    tended = await store.tended(id)
    assert tended is not None
    await desk.hear("ann", "go on")
    assert tended.summary.splitlines()[0] in room.system()
    whole = await room.house.store.transcript(found.id, whole=True)
    assert whole[0].message.text == _CAT


async def test_compact_folds_now_and_says_so(room: Talk) -> None:
    desk = await room.open()
    for text in (_CAT, "What do you think of that?", "And of the oven?", "Well then."):
        await desk.hear("ann", text)
    await desk.hear("ann", "/compact")
    await until(lambda: any(text.startswith("Folded") for text in desk.texts("ann")))
    assert room.house.store is not None
    session = await room.house.store.session_of(build_session_key(direct("ann")))
    assert session is not None
    tended = await room.house.store.tended(session.id)
    assert tended is not None and tended.summary


async def test_a_program_is_remembered_under_its_key_alone(room: Talk) -> None:
    from parley.protocol import ChatMessage, Request

    await room.open()

    async def ask(number: int, text: str, key: str | None) -> None:
        source = SessionSource("api", chat_id=f"k/s{number}", user_id="k")
        request = Request(f"r{number}", (ChatMessage("user", text),), memory_key=key, lasting=True)
        before = len(room.house.model.requests)
        await serving.admit(InboundMessage(source, text, f"r{number}", request=request))
        await until(lambda: len(room.house.model.requests) > before)

    gateway = room.house.gateway
    assert gateway is not None
    serving = gateway.serving(room.house.profile)
    serving._lanes.attach("api", for_people=False)
    await ask(1, _CAT, "ann")
    await room.learned("person:api:k:ann")
    await ask(2, "who is it?", "ann")
    await until(lambda: "Miso" in room.system())
    await ask(3, "who is it?", "bob")
    assert "Miso" not in room.system()
    await ask(4, "who is it?", None)
    assert "Miso" not in room.system()


async def test_what_a_program_said_under_one_key_is_never_remembered_under_another(
    room: Talk,
) -> None:
    """Nor what it said without any."""
    from parley.protocol import ChatMessage, Request

    await room.open()
    gateway, source = room.house.gateway, SessionSource("api", chat_id="k/s", user_id="k")
    assert gateway is not None
    serving = gateway.serving(room.house.profile)
    serving._lanes.attach("api", for_people=False)
    said = (
        ("ann", "My doctor is called Weber, and she is very kind to me."),
        (None, "My lawyer is called Stone, and nobody is to know of that."),
        ("bob", "My teacher is called Brown, and I like him very well."),
        (None, "My banker is called Green, and nobody is to know of that."),
    )
    for number, (key, text) in enumerate(said):
        request = Request(f"q{number}", (ChatMessage("user", text),), memory_key=key, lasting=True)
        before = len(room.house.model.requests)
        await serving.admit(InboundMessage(source, text, f"q{number}", request=request))
        await until(lambda before=before: len(room.house.model.requests) > before)  # type: ignore[misc]
    store = room.house.store
    assert store is not None

    async def tended() -> bool:
        return await store.untended(time.time()) == []

    await until_true(tended)
    found = await store.facts(["person:api:k:ann", "person:api:k:bob"])
    assert not [fact.text for fact in found if "Stone" in fact.text or "Green" in fact.text]
    assert not [fact for fact in found if "Weber" in fact.text and fact.place.endswith("bob")]


@pytest.mark.parametrize("at", [direct, in_thread], ids=["direct", "thread"])
async def test_the_views_are_written_and_read(room: Talk, at: Place) -> None:
    desk = await room.open()
    await desk.hear("ann", _CAT, at=at)
    folder = room.house.profile.home / "memory"
    await until(lambda: any("Miso" in file.read_text() for file in folder.rglob("*.md")))
    [file] = [each for each in folder.rglob("*.md") if "Miso" in each.read_text()]
    assert file.name == ("USER.md" if at is direct else "MEMORY.md")
    file.write_text(file.read_text().replace("Miso", "Mochi"))

    async def known() -> bool:
        await desk.hear("ann", "what is her name?", at=at)
        return "Mochi" in room.system() and "Miso" not in room.system().split("Earlier in")[0]

    await until_true(known)
