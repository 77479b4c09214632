"""A real surface with several people: direct chats, a group, and a thread that all share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from parley.agent.tools import TOOLS, Wanted
from parley.protocol import InboundMessage, SessionSource
from tests.gateway.asking_tool import AskingTool
from tests.gateway.desk import Desk
from tests.servers.scripted_model import Reply
from tests.waiting import until

__all__ = ["DENIED", "NOTHING", "Room", "a_call", "a_deed", "direct", "in_thread"]

NOTHING = "Nothing waits for your word here."
DENIED = "The person did not allow this."

Place = Callable[[str], SessionSource]


def direct(who: str) -> SessionSource:
    return SessionSource("desk", chat_id=who, user_id=who, user_name=who.title())


def in_thread(who: str) -> SessionSource:
    """One conversation for all who speak there."""
    return SessionSource(
        "desk", chat_id="g1", chat_type="group", thread_id="t1", user_id=who, user_name=who.title()
    )


class Room(Desk):
    """What it has to ask is sent like a reply."""

    can_ask = True

    _said = itertools.count(1)

    async def tell(self, who: str, text: str, *, at: Place = direct) -> str:
        """Somebody says something; the id under which it is answered."""
        number = f"said-{next(self._said)}"
        await self.admit(InboundMessage(at(who), text, number))
        return number

    async def hear(self, who: str, text: str, *, at: Place = direct) -> str:
        """Somebody says something, and this is the answer to it."""
        return await self.reply_to(await self.tell(who, text, at=at))

    async def reply_to(self, number: str) -> str:
        await until(lambda: self.answer_to(number))
        found = self.answer_to(number)
        assert found is not None
        return found.text

    @property
    def questions(self) -> list[str]:
        return [d.text for d in self.sent if d.text.startswith("May I ")]

    async def question(self, count: int = 1) -> str:
        """The newest question once there are so many; its id."""
        await until(lambda: len(self.questions) == count)
        found = re.search(r"appr_\w+", self.questions[-1])
        assert found is not None
        return found[0]


def a_deed(monkeypatch: pytest.MonkeyPatch, wanted: Wanted | None = None) -> AskingTool:
    """A tool that asks, among those of the house."""
    made = AskingTool(wanted=wanted)
    monkeypatch.setitem(TOOLS, "deed", made.tool)
    return made


def a_call(word: str = "a", **more: object) -> Reply:
    return Reply(tool_calls=(("deed", {"word": word, **more}),))
