"""What the agent promises over a webhook it keeps: later answers come to the chat that asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.agent.processes.house import needs_bubblewrap
from tests.gateway.house import House
from tests.gateway.workshop import Scenes, begin, delegate, let_go, result_of, waiting, works
from tests.servers.callback_receiver import CallbackReceiver
from tests.servers.scripted_model import Reply
from tests.surfaces.webhook import Caller, WebhookHouse
from tests.waiting import until


@pytest.fixture
async def receiver() -> AsyncIterator[CallbackReceiver]:
    async with CallbackReceiver() as server:
        yield server


@pytest.fixture
async def caller(house: House, receiver: CallbackReceiver) -> AsyncIterator[Caller]:
    made = WebhookHouse(receiver, house.profile)
    house.more_surfaces = made.surfaces
    await house.open()
    async with Caller(made.url) as opened:
        yield opened


def _told(receiver: CallbackReceiver) -> list[tuple[Any, ...]]:
    names = ("text", "kind", "chat", "thread", "user")
    return [tuple(posted.answer[name] for name in names) for posted in receiver.posted]


_ROOM = {"chat": "room", "chat_type": "group", "thread": "7"}


@needs_bubblewrap
@pytest.mark.parametrize(
    "asked", [{"notify_on_complete": True}, {"watch_patterns": ["nothing like it"]}]
)
async def test_the_end_of_a_process_is_answered_in_the_chat_and_thread_that_asked(
    house: House,
    scenes: Scenes,
    caller: Caller,
    receiver: CallbackReceiver,
    asked: dict[str, Any],
) -> None:
    options = {"notify_on_complete": False} | asked
    scenes.when("build", begin(waiting("go", "echo built"), **options), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))
    await caller.say("build", "e1", **_ROOM)
    await caller.say("hello", "e2", chat="elsewhere")
    await until(lambda: len(receiver.posted) == 2)
    told = result_of(house)
    assert told["notify_on_complete"] is True
    assert "notify_unsupported" not in told
    [work] = await works(house)
    source = work.source
    assert (source.platform, source.chat_id, source.thread_id) == ("webhook", "room", "7")
    assert (source.user_id, work.notify) == ("ann", True)
    assert "webhook" in work.lane
    assert "room" in work.lane
    let_go(house, "go")
    await until(lambda: "the build is over" in receiver.texts)
    await caller.say("anything else?", "e3", **_ROOM)
    await until(lambda: "heard: anything else?" in receiver.texts)
    assert sorted(_told(receiver)) == [
        ("heard: anything else?", "reply", "room", "7", "ann"),
        ("heard: hello", "reply", "elsewhere", None, "ann"),
        ("it builds", "reply", "room", "7", "ann"),
        ("the build is over", "reply", "room", "7", "ann"),
    ]


async def test_the_result_of_a_task_is_answered_in_the_chat_and_thread_that_asked(
    house: House, scenes: Scenes, caller: Caller, receiver: CallbackReceiver
) -> None:
    scenes.when("fetch", delegate("dig", background=True), Reply(text="they dig"))
    scenes.when("[Delegated", Reply(text="they found gold"))
    scenes.when("dig", Reply(text="gold", delay=0.3))
    await caller.say("fetch", "e1", **_ROOM)
    await until(lambda: len(receiver.posted) == 2)
    assert _told(receiver) == [
        ("they dig", "reply", "room", "7", "ann"),
        ("they found gold", "reply", "room", "7", "ann"),
    ]


@needs_bubblewrap
async def test_the_end_of_what_is_gone_is_a_notice_in_that_chat(
    house: House, scenes: Scenes, caller: Caller, receiver: CallbackReceiver
) -> None:
    scenes.when("build", begin(waiting("go", "echo built")), Reply(text="it builds"))
    await caller.say("build", "e1", **_ROOM)
    await until(lambda: len(receiver.posted) == 1)
    await caller.say("/new", "e2", **_ROOM)
    await until(lambda: len(receiver.posted) == 2)
    asked = house.model.total
    let_go(house, "go")
    await until(lambda: len(receiver.posted) == 3)
    text, *where = _told(receiver)[-1]
    assert where == ["notice", "room", "7", "ann"]
    assert "built" in text
    assert "earlier conversation" in text
    assert house.model.total == asked


@needs_bubblewrap
async def test_an_answer_that_cannot_be_delivered_yet_waits_for_its_receiver(
    house: House, scenes: Scenes, caller: Caller, receiver: CallbackReceiver
) -> None:
    scenes.when("build", begin(waiting("go")), Reply(text="it builds"))
    scenes.when("[Background", Reply(text="the build is over"))
    await caller.say("build", "e1", **_ROOM)
    await until(lambda: len(receiver.posted) == 1)
    receiver.says(503)
    let_go(house, "go")
    await until(lambda: "the build is over" in receiver.texts)
    receiver.is_fine()
    refused = receiver.texts.count("the build is over")
    await until(lambda: receiver.texts.count("the build is over") == refused + 1)
    ids = {p.answer["id"] for p in receiver.posted if p.text == "the build is over"}
    assert len(ids) == 1
