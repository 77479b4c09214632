"""Chats that are rooms: opened, named, put away; whatever breaks off in between."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import pytest

from parley.backends.base import Backend, Mailbox, Standing, Turn
from parley.config import Settings
from parley.gateway.commands import running
from parley.protocol import Final, InboundMessage, TurnEvent
from parley.storage.contract import StoreClosed
from tests.gateway.chat_rooms import RoomServer, in_room, open_roomy
from tests.gateway.house import House
from tests.gateway.room import direct, in_thread
from tests.waiting import until


@pytest.fixture
def server() -> RoomServer:
    return RoomServer()


async def test_start_opens_a_first_chat_and_greets_once(house: House, server: RoomServer) -> None:
    desk = await open_roomy(house, server)
    said = await desk.hear("ann", "!start")
    assert "Hello, Ann! I am Parley" in said
    assert "`!help`" in said
    assert said.endswith("Your chat is **C1**: the room room !1")
    await until(lambda: desk.texts("!1"))
    again = await desk.hear("ann", "!start")
    assert again == said
    assert server.made == {("desk:ann", 1): "!1"}
    assert "**C1**" in await desk.hear("ann", "!start", at=in_room("!1"))
    greetings = [text for text in desk.texts("!1") if "your own chat with me" in text]
    assert len(greetings) == 1


async def test_an_invitation_is_a_start_once(house: House, server: RoomServer) -> None:
    desk = await open_roomy(house, server)
    assert desk.door is not None
    for _ in range(3):
        await desk.door.welcome(direct("ann"), "$invite")
    assert "Hello, Ann!" in await desk.reply_to("$invite")
    await desk.hear("ann", "!help")
    assert len([text for text in desk.texts("ann") if "Hello" in text]) == 1
    assert list(server.made) == [("desk:ann", 1)]


async def test_a_new_chat_is_a_room_of_its_own_with_its_own_memory(
    house: House, server: RoomServer
) -> None:
    desk = await open_roomy(house, server)
    await desk.hear("ann", "I am in the direct chat")
    said = await desk.hear("ann", "!new Tea and cake")
    assert said == "A new chat: **C1** Tea and cake: the room room !1"
    assert server.names == {"!1": "Tea and cake"}
    await until(lambda: desk.texts("!1"))
    assert "This is **C1** Tea and cake" in desk.texts("!1")[0]
    await desk.hear("ann", "who am I?", at=in_room("!1"))
    assert house.words() == ["who am I?"]
    await desk.hear("ann", "and here?")
    assert house.words() == [
        "I am in the direct chat",
        "echo: I am in the direct chat",
        "and here?",
    ]


async def test_numbers_and_lists_are_each_persons_own(house: House, server: RoomServer) -> None:
    desk = await open_roomy(house, server)
    for who, name in (("ann", "Apples"), ("bob", "Beer"), ("ann", "Almonds")):
        await desk.new(who, name)
    assert server.made == {("desk:ann", 1): "!1", ("desk:bob", 1): "!2", ("desk:ann", 2): "!3"}
    ann, bob = await desk.hear("ann", "!chats"), await desk.hear("bob", "!chats", at=in_room("!2"))
    assert [line for line in ann.splitlines() if line.startswith("- ")] == [
        "- **C1** · Apples · the room room !1",
        "- **C2** · Almonds · the room room !3",
    ]
    assert "- **C1** · Beer · the room room !2 ← here" in bob
    assert "Apples" not in bob
    # Nobody reaches another's by number, nor from within the room.
    assert "You have no room of that number" in await desk.hear("bob", "!archive C2")
    for said in ("!archive", "!rename Mine", "!unarchive"):
        answer = await desk.hear("bob", said, at=in_room("!1"))
        assert "This is no chat of yours" in answer
    assert server.names["!1"] == "Apples"
    assert server.archived == set()


async def test_rename_changes_the_display_only(house: House, server: RoomServer) -> None:
    desk = await open_roomy(house, server, access={"owners": ["desk:ann"]})
    await desk.new("ann")
    await desk.hear("ann", "remember me", at=in_room("!1"))
    assert await desk.hear("ann", "!rename  Green \n tea", at=in_room("!1")) == (
        "C1 is now **Green tea**."
    )
    assert server.names["!1"] == "Green tea"
    assert await desk.hear("ann", "!rename c1 2 cups") == "C1 is now **2 cups**."
    server.fail("name")
    told = await desk.hear("ann", "!rename C1 Black")
    assert told == "C1 is now **Black**. The room does not show it: The server is away."
    assert "Black" in await desk.hear("ann", "!chats")
    assert "at most 120" in await desk.hear("ann", f"!rename C1 {'x' * 121}")
    assert "You have no room of that number" in await desk.hear("ann", "!rename C7 Seven")
    await desk.hear("ann", "do you?", at=in_room("!1"))
    assert house.words() == ["remember me", "echo: remember me", "do you?"]


async def test_an_archived_chat_says_so_and_nothing_else_until_it_is_opened(
    house: House, server: RoomServer
) -> None:
    desk = await open_roomy(house, server)
    await desk.new("ann", "Tea")
    here = in_room("!1")
    await desk.hear("ann", "the pot is blue", at=here)
    assert await desk.hear("ann", "!archive", at=here) == (
        "**C1** Tea is archived; `!unarchive` opens it again."
    )
    assert server.archived == {"!1"}
    asked = house.model.total
    closed = "This chat (C1) is archived; `!unarchive` opens it again."
    for said in ("hello?", "!retry", "/reset", "!!!", "!resume 1", "/nonsense"):
        assert await desk.hear("ann", said, at=here) == closed
    assert "archived" in await desk.hear("ann", "!chats", at=here)
    await house.close()
    desk = await open_roomy(house, server)
    assert await desk.hear("ann", "still?", at=here) == closed
    assert house.model.total == asked
    assert await desk.hear("ann", "!unarchive", at=here) == "**C1** Tea is open again."
    assert server.archived == set()
    await desk.hear("ann", "which colour?", at=here)
    assert house.words() == ["the pot is blue", "echo: the pot is blue", "which colour?"]


async def test_archiving_ends_what_runs_in_the_room(house: House, server: RoomServer) -> None:
    desk = await open_roomy(house, server)
    await desk.new("ann")
    await desk.tell("ann", "go on [[delay 30]]", at=in_room("!1"))
    await until(lambda: house.model.open_streams or house.model.total)
    assert "is archived; `!unarchive C1`" in await desk.hear("ann", "!archive C1")
    await until(lambda: house.model.open_streams == 0)
    assert house.store is not None
    assert (await house.store.health()).running == 0


async def test_a_platform_that_cannot_make_the_room_now_is_asked_again(
    house: House, server: RoomServer
) -> None:
    desk = await open_roomy(house, server)
    server.fail("open")
    number = await desk.tell("ann", "!new Tea")
    await until(lambda: len(server.asked) >= 3)
    assert desk.answer_to(number) is None
    assert "its room is being made" in await desk.hear("ann", "!chats")
    server.before = None
    assert "**C1** Tea" in await desk.reply_to(number)
    assert list(server.made) == [("desk:ann", 1)]


async def test_whoever_waits_long_for_a_room_is_told_why_once(
    house: House, server: RoomServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_TOLD_AFTER", 0.0)
    desk = await open_roomy(house, server, access={"owners": ["desk:ann"]})
    server.fail("open", sentence="Rooms are not to be had today.")
    number = await desk.tell("ann", "!new Tea")
    await until(lambda: len(server.asked) >= 4)
    server.before = None
    await desk.reply_to(number)
    assert [text for text in desk.texts("ann") if not text.startswith("A new chat")] == [
        "That cannot be done just now, and is tried again by itself. Rooms are not to be had today."
    ]


async def test_a_gateway_that_stops_meanwhile_leaves_it_to_the_next(
    house: House, server: RoomServer
) -> None:
    desk = await open_roomy(house, server)
    await desk.hear("ann", "!start")
    server.fail("open", "name")
    number = await desk.tell("ann", "!new Tea")
    await until(lambda: server.asked.count("open") >= 2)
    await house.close()
    desk = await open_roomy(house, server)
    assert await desk.hear("ann", "hello") == "echo: hello"
    server.before = None
    assert "**C2** Tea" in await desk.reply_to(number)
    assert list(server.made) == [("desk:ann", 1), ("desk:ann", 2)]


@pytest.mark.parametrize("step", ["open_chat", "put_marks", "place_chat", "post", "answer"])
async def test_a_crash_between_any_two_steps_makes_one_chat_and_one_answer(
    house: House, server: RoomServer, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is gone as soon as this step was done; the answer comes from the next gateway."""
    desk = await open_roomy(house, server)
    if step != "put_marks":
        await desk.hear("bob", "!start")
    store = house.store
    assert store is not None
    done = getattr(store, step)

    async def then_gone(*args: object, **kwargs: object) -> object:
        await done(*args, **kwargs)
        await store.close()
        raise StoreClosed("gone")

    monkeypatch.setattr(store, step, then_gone)
    with pytest.raises(StoreClosed):
        await desk.admit(InboundMessage(direct("ann"), "!new Tea", "wanted"))
    await house.crash()
    monkeypatch.undo()
    desk = await open_roomy(house, server)
    said = await desk.reply_to("wanted")
    assert said.startswith("A new chat: **C1** Tea")
    mine = [key for key in server.made if key[0] == "desk:ann"]
    assert mine == [("desk:ann", 1)]
    room = server.made[mine[0]]
    await until(lambda: desk.texts(room))
    await desk.hear("ann", "hello", at=in_room(room))
    await desk.hear("ann", "!chats")
    assert len([text for text in desk.texts(room) if "This is **C1**" in text]) == 1
    assert len([text for text in desk.texts("ann") if text.startswith("A new chat")]) == 1


async def test_a_rename_that_was_broken_off_is_shown_once_the_platform_is_there(
    house: House, server: RoomServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = await open_roomy(house, server)
    await desk.new("ann", "Tea")
    store = house.store
    assert store is not None

    async def gone(*args: object) -> None:
        await store.close()
        raise StoreClosed("gone")

    monkeypatch.setattr(store, "name_chat", gone)
    with pytest.raises(StoreClosed):
        await desk.tell("ann", "!rename C1 Cake")
    await house.crash()
    monkeypatch.undo()
    await open_roomy(house, server)
    await until(lambda: server.names["!1"] == "Cake")
    await until(lambda: "C1 is now **Cake**." in house.desk.texts("ann"))


async def test_two_who_ask_at_once_are_given_the_same_first_chat(
    house: House, server: RoomServer
) -> None:
    desk = await open_roomy(house, server)
    assert desk.door is not None
    await desk.door.welcome(direct("ann"), "$1")
    await desk.door.welcome(direct("ann"), "$2")
    first, second = await desk.reply_to("$1"), await desk.reply_to("$2")
    assert first == second
    assert list(server.made) == [("desk:ann", 1)]
    assert server.created == ["!1"]


class _Teller:
    """A backend that answers with the name it was given for the conversation."""

    models = None
    calibration = None

    def about(self) -> str:
        return "a teller"

    async def health(self) -> str | None:
        return None

    def starting(self) -> tuple[str, ...]:
        return ()

    def start(self, mailbox: Mailbox) -> None: ...

    def warm(self) -> None: ...

    def remembers(self, platform: str) -> bool:
        return False

    async def prefix(self, standing: Standing) -> None: ...

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        assert turn.thread is not None
        thread = await turn.thread()
        yield Final(f"{thread.platform} {thread.user_id} {thread.chat_id}")

    async def close(self) -> None: ...


class _ToldHouse(House):
    def backend_for(self, settings: Settings) -> Backend:
        return _Teller()


async def test_the_thread_for_another_agent_follows_the_chat_and_not_its_name(
    house: House, server: RoomServer
) -> None:
    told = _ToldHouse(house.profile, house.model)
    desk = await open_roomy(told, server)
    try:
        assert await desk.hear("ann", "hello") == "desk ann C1"
        await desk.new("ann", "Tea")
        here = in_room("!1")
        assert await desk.hear("ann", "hello", at=here) == "desk ann C2"
        await desk.hear("ann", "!rename Cake", at=here)
        await told.close()
        desk = await open_roomy(told, server)
        assert await desk.hear("ann", "hello", at=here) == "desk ann C2"
        await desk.hear("ann", "!reset", at=here)
        fresh = await desk.hear("ann", "hello", at=here)
        assert re.fullmatch(r"desk ann C2\.\w+", fresh)
        await desk.hear("ann", "!reset", at=here)
        assert await desk.hear("ann", "hello", at=here) != fresh
        await desk.hear("ann", "!reset")
        assert await desk.hear("ann", "hello") == "desk ann C3"
        assert await desk.hear("bob", "hello") == "desk bob C1"
        shared = await desk.hear("bob", "hello", at=in_thread)
        assert re.fullmatch(r"desk \* g1/t1#\w+", shared)
        assert await desk.hear("ann", "hello", at=in_thread) == shared
    finally:
        await told.close()
