"""`send_message` says something besides the answer, and to nobody it does not know."""

from __future__ import annotations

import pytest

from parley.agent.tools.messages import send_message
from parley.protocol import SessionSource
from parley.storage.hands import Conversation
from tests.agent.tools.lent import SmallHands, use


def a_conversation(
    session: str,
    *,
    title: str | None = None,
    chat_name: str | None = None,
    lane: str | None = None,
    person: str = "desk:anna",
) -> Conversation:
    """By default one of the person who asks."""
    platform, _, user = person.partition(":")
    source = SessionSource(platform, session, chat_name=chat_name, user_id=user)
    return Conversation(lane or f"lane-{session}", session, title, source, 0.0)


PLACES = [
    a_conversation("s1", title="Cake for Anna"),
    a_conversation("s2", title="Taxes", chat_name="Family"),
    a_conversation("s3", title="Taxes"),
    a_conversation("s4", title="Plumber", person="desk:eve"),
]


async def test_it_is_said_here() -> None:
    hands = SmallHands()
    said = await use(send_message, hands, text="half done")
    assert said.text == "Sent to this conversation."
    assert hands.sent == {"turn 1 call 1": ("half done", None)}


async def test_where_only_the_answer_arrives_it_is_to_be_put_there() -> None:
    hands = SmallHands()
    said = await use(send_message, hands, delivers=False, text="half done")
    assert not said.ok
    assert "put the text into your answer" in said.text
    assert not hands.sent


@pytest.mark.parametrize(
    ("to", "lane"),
    [
        ("s3", "lane-s3"),
        ("lane-s4", "lane-s4"),
        ("Cake for Anna", "lane-s1"),
        (" cake FOR anna ", "lane-s1"),
        ("family", "lane-s2"),
    ],
)
async def test_another_conversation_is_found_by_its_id_or_name(to: str, lane: str) -> None:
    hands = SmallHands(elsewhere=PLACES)
    assert (await use(send_message, hands, delivers=False, text="hello", to=to)).ok
    assert hands.sent == {"turn 1 call 1": ("hello", lane)}


@pytest.mark.parametrize(
    ("to", "shown"),
    [
        ("taxes", ["s2", "s3"]),
        ("?", ["s1", "s2", "s3", "s4"]),
        ("matrix", ["s1", "s2", "s3", "s4"]),
        ("Plumber", ["s1", "s2", "s3", "s4"]),
        ("1", ["s1", "s2", "s3", "s4"]),
    ],
)
async def test_a_name_that_is_not_one_conversations_is_answered_with_those_there_are(
    to: str, shown: list[str]
) -> None:
    hands = SmallHands(elsewhere=PLACES)
    said = await use(send_message, hands, text="hello", to=to)
    assert not said.ok
    assert [line.split(":")[0] for line in said.text.splitlines()[1:]] == shown
    assert not hands.sent


async def test_the_list_tells_what_where_and_with_whom() -> None:
    source = SessionSource("matrix", "!r", chat_name="Family", user_id="@bo:x", user_name="Bo")
    hands = SmallHands(elsewhere=[Conversation("lane", "s1", "Cake", source, 0.0)])
    said = await use(send_message, hands, text="hello", to="?")
    assert said.text.splitlines()[1:] == ["s1: Cake (Family, Bo, matrix:@bo:x)"]


async def test_the_list_is_short_and_a_title_stays_in_its_line() -> None:
    many = [a_conversation(f"s{n}", title="new\nline " + "x" * 500) for n in range(40)]
    said = await use(send_message, SmallHands(elsewhere=many), text="hello", to="?")
    assert len(said.text.splitlines()) == 9
    assert len(said.text) < 1_000


async def test_a_person_with_no_other_conversation_is_told_so() -> None:
    said = await use(send_message, SmallHands(), text="hello", to="telegram")
    assert not said.ok
    assert "There is no other conversation" in said.text


@pytest.mark.parametrize("delivers", [True, False])
async def test_this_very_conversation_by_its_name_is_here(delivers: bool) -> None:
    hands = SmallHands(elsewhere=[a_conversation("s9", lane="key")])
    said = await use(send_message, hands, delivers=delivers, text="hello", to="s9")
    assert said.ok is delivers
    assert hands.sent == ({"turn 1 call 1": ("hello", None)} if delivers else {})


@pytest.mark.parametrize("text", ["", "  \n ", "x" * 8_001, None])
async def test_a_message_has_a_text_of_bounded_length(text: object) -> None:
    hands = SmallHands()
    assert not (await use(send_message, hands, text=text)).ok
    assert not hands.sent
