"""What only an owner may allow: asked of owners, refused where there is none."""

from __future__ import annotations

import pytest

from parley.agent.tools import Wanted
from parley.gateway.owners import Owners
from parley.protocol import SessionSource
from parley.surfaces.terminal.surface import TerminalSurface
from parley.surfaces.terminal.wire import Show
from tests.gateway.asking_tool import AskingTool
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.gateway.room import NOTHING, Room, a_call, a_deed, direct, in_thread
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.terminal import Line
from tests.waiting import until

DONE = Reply(text="Done.")
AGENT = {"tools": ["deed"]}
ACCESS = {"owners": ["desk:olga"]}
REFUSED = "Only an owner of this agent may allow this, and nobody here is one."


@pytest.fixture
def deed(monkeypatch: pytest.MonkeyPatch) -> AskingTool:
    """Owner-level."""
    return a_deed(monkeypatch, Wanted("move the house", owner=True))


@pytest.fixture
async def room(house: House, deed: AskingTool) -> Room:
    house.desk_type = Room
    desk = await house.open(agent=AGENT, access=ACCESS)
    assert isinstance(desk, Room)
    return desk


@pytest.mark.parametrize(
    ("source", "owns"),
    [
        (SessionSource("desk", "c", user_id="olga"), True),
        (SessionSource("desk", "olga"), True),
        (SessionSource("desk", "g", chat_type="group", user_id="olga"), True),
        (SessionSource("desk", "olga", user_id="ann"), False),
        (SessionSource("desk", "c", user_id="ann", user_name="olga"), False),
        (SessionSource("desk", "c", user_id="Olga"), False),
        (SessionSource("mail", "c", user_id="olga"), False),
        (SessionSource("mail", "c", user_id="desk:olga"), False),
        (SessionSource("terminal", "c", user_id="anyone"), True),
    ],
)
def test_an_owner_is_who_the_settings_name(source: SessionSource, owns: bool) -> None:
    assert Owners(["desk:olga"]).owns(source) is owns


async def test_in_a_chat_with_somebody_else_it_is_refused_at_once(
    house: House, room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    assert await room.hear("ann", "please") == "Done."
    assert house.words()[-1] == REFUSED
    assert (room.questions, deed.done) == ([], [])
    assert await room.hear("ann", "!yes") == NOTHING


async def test_an_owner_is_asked_too(room: Room, stage: Stage, deed: AskingTool) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("olga", "please")
    id = await room.question()
    assert room.questions == [
        f"May I move the house?\n\nAn owner answers `!yes {id}` or `!no {id}`; `!yes session {id}` "
        f"or `!yes always {id}` allows this exact call from now on."
    ]
    assert deed.done == []
    assert await room.hear("olga", "!yes") == "Allowed: `deed`."
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == 1


async def test_in_a_group_only_an_owners_word_counts(
    room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    for who in ("ann", "bob"):
        for word in ("!yes", "!no", f"/approve always {id}"):
            said = await room.hear(who, word, at=in_thread)
            assert said == "Only an owner of this agent may answer that."
    assert deed.done == []
    assert await room.hear("olga", "!yes", at=in_thread) == "Allowed: `deed`."
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == 1


def in_group(who: str) -> SessionSource:
    """Where everyone has a conversation of their own."""
    return SessionSource("desk", chat_id="g1", chat_type="group", user_id=who)


def in_another(who: str) -> SessionSource:
    return SessionSource("desk", chat_id="g2", chat_type="group", user_id=who)


@pytest.mark.parametrize("word", ["!yes", "!no"])
async def test_an_owner_answers_by_name_where_everyone_has_their_own_conversation(
    room: Room, stage: Stage, deed: AskingTool, word: str
) -> None:
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please", at=in_group)
    id = await room.question()
    assert await room.hear("bob", f"{word} {id}", at=in_group) == NOTHING
    assert await room.hear("olga", word, at=in_group) == NOTHING
    for elsewhere in (in_another, direct):
        assert await room.hear("olga", f"{word} {id}", at=elsewhere) == NOTHING
    assert deed.done == []
    done = "Allowed: `deed`." if word == "!yes" else "Refused: `deed`."
    assert await room.hear("olga", f"{word} {id}", at=in_group) == done
    assert await room.reply_to(first) == "Done."
    assert len(deed.done) == (word == "!yes")
    assert await room.hear("olga", f"!yes {id}", at=in_group) == NOTHING


async def test_an_owner_may_answer_for_anybody(
    house: House, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = a_deed(monkeypatch)
    house.desk_type = Room
    room = await house.open(agent=AGENT, access=ACCESS)
    assert isinstance(room, Room)
    stage.then(a_call(), DONE)
    first = await room.tell("ann", "please", at=in_thread)
    await room.question()
    assert await room.hear("olga", "!no", at=in_thread) == "Refused: `deed`."
    await room.reply_to(first)
    assert deed.done == []


async def test_who_is_no_owner_any_more_has_no_say(
    house: House, room: Room, stage: Stage, deed: AskingTool
) -> None:
    stage.then(a_call(), DONE)
    await room.tell("ann", "please", at=in_thread)
    id = await room.question()
    await house.crash()
    after = await house.open(agent=AGENT, access={"owners": ["desk:otto"]})
    assert isinstance(after, Room)
    said = await after.hear("olga", f"!yes {id}", at=in_thread)
    assert said == "Only an owner of this agent may answer that."
    assert deed.done == []
    assert await after.hear("otto", f"!yes {id}", at=in_thread) == "Allowed: `deed`."
    await until(lambda: len(deed.done) == 1)


async def test_where_nobody_can_be_asked_an_owner_is_not_either(
    house: House, stage: Stage, deed: AskingTool
) -> None:
    house.desk_type = Desk
    desk = await house.open(agent=AGENT, access={"owners": ["desk:ann"]})
    stage.then(a_call(), DONE)
    assert await desk.ask("please") == "Done."
    assert deed.done == []
    assert "nobody can be asked here" in house.words()[-1]


async def test_whoever_sits_at_the_terminal_is_an_owner(
    house: House, stage: Stage, deed: AskingTool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    socket = tmp_path_factory.mktemp("t") / "s"
    house.more_surfaces = [TerminalSurface(socket)]
    await house.open(agent=AGENT)
    stage.then(a_call(), DONE)
    async with Line(socket) as line:
        await line.hello("mine")
        await line.say("please", "1")
        await until(lambda: [show for show in line.all_of(Show) if show.event == "asks"])
        assert await line.ask("!yes", "2") == "Allowed: `deed`."
        await until(lambda: line.answer_to("1"))
    assert len(deed.done) == 1


async def test_others_do_not_look_further_in_an_owners_turn(
    house: House, room: Room, stage: Stage
) -> None:
    """What an owner finds in all conversations is neither for who joins nor for who reads along."""
    await room.hear("carl", "the word is plumtree")
    await room.hear("olga", "mine is plumtree too")
    search = Reply(tool_calls=(("session_search", {"query": "plumtree"}),))
    await house.close()
    again = await house.open(agent={"tools": ["deed", "session_search"]}, access=ACCESS)
    assert isinstance(again, Room)
    stage.then(search, DONE)
    await again.hear("olga", "what is the word")
    assert "the word is plumtree" in house.words()[-1]
    stage.then(search, DONE)
    await again.hear("olga", "what is the word", at=in_thread)
    assert "mine is plumtree too" in house.words()[-1]
    assert "the word is plumtree" not in house.words()[-1]
    seen = len(house.words())
    stage.then(a_call(), search, DONE)
    await again.tell("olga", "once more", at=in_thread)
    await again.question()
    await again.tell("bob", "yes, what is it", at=in_thread)
    first = await again.tell("olga", "tell us", at=in_thread)
    await again.hear("olga", "!no", at=in_thread)
    await again.reply_to(first)
    assert "the word is plumtree" not in " ".join(house.words()[seen:])
