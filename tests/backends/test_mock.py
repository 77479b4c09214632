"""The mock: it repeats, and says that it does no more."""

from __future__ import annotations

from parley.backends.mock import MockBackend
from parley.protocol import Attachment, ChatMessage, Final, TextDelta, TurnEvent
from tests.backends.proxy.builders import a_turn, all_of, ending


async def events_of(*messages: ChatMessage) -> list[TurnEvent]:
    return [event async for event in MockBackend().run(a_turn(progress=messages))]


async def test_it_repeats_what_is_said_in_a_few_pieces() -> None:
    events = await events_of(ChatMessage("user", "hello there"), ChatMessage("user", "and more"))
    pieces = [event.text for event in all_of(events, TextDelta)]
    assert ending(events) == Final("[mock] hello there\n\nand more")
    assert "".join(pieces) == "[mock] hello there\n\nand more"
    assert 1 < len(pieces) <= 4


async def test_it_names_files_and_has_an_answer_to_nothing() -> None:
    photo = Attachment("photo.jpg", "image/jpeg", "/nowhere", 3)
    files = await events_of(ChatMessage("user", "", attachments=(photo,)))
    assert ending(files) == Final("[mock] (file: photo.jpg)")
    assert ending(await events_of(ChatMessage("user", ""))) == Final("[mock]")


async def test_it_is_honest_about_itself() -> None:
    assert MockBackend().about() == "a mock that only repeats what is said"
    assert await MockBackend().health() is None
    assert MockBackend().models is None
