"""A real store, a model by script, and a consolidator between them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from parley.agent.prompt import mend
from parley.agent.providers.base import ModelEvent, ModelReply, ModelRequest
from parley.memory.consolidator import MemoryConsolidator, Prompt
from parley.protocol import ChatMessage, ToolCall, ToolSpec, Usage
from parley.storage.contract import Claim, TurnEnd
from parley.storage.memory import Commit, Fact, Line, Tended, person_place
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, say
from tests.storage.conformance.base import claim_one

__all__ = ["Model", "Scene", "a_line", "an_answer", "place", "task_of"]

Script: TypeAlias = str | Exception | ModelReply | Callable[[ModelRequest], str]

SYSTEM = "You are a helpful assistant.\n\nYou are talking in a test."
TOOLS = (ToolSpec("look", "Look something up.", {"type": "object", "properties": {}}),)
_SAID = re.compile(r"^- (\d+) \([^)]*\): (.*)$", re.MULTILINE)


def a_line(id: int, turn: int, message: ChatMessage | str, *, person: str = "test:ann") -> Line:
    if isinstance(message, str):
        message = ChatMessage("user", message)
    return Line(id, turn, message, 1_700_000_000.0 + id, person)


def task_of(request: ModelRequest) -> str:
    return request.messages[-1].text


def an_answer(request: ModelRequest) -> str:
    """Every message that begins with "I " is a fact; a summary when one is asked for."""
    task = task_of(request)
    said = task.partition("Messages that facts may come from, by number:")[2]
    facts = [
        {"text": f"They said that {text}", "kind": "person", "sources": [int(id)]}
        for id, text in _SAID.findall(said)
        if text.startswith("I ")
    ]
    answer: dict[str, Any] = {"facts": facts, "forget": []}
    if '"summary": "…"' in task:
        answer["summary"] = f"- They talked, {len(request.messages) - 1} messages."
    return json.dumps(answer)


class Model:
    """A provider in this process. Its last answer is given again and again."""

    label = "scripted"
    model = "scripted-1"

    def __init__(self, *script: Script, window: int = 8_000, offers_tools: bool = True) -> None:
        self.script: Sequence[Script] = script or (an_answer,)
        self.context_window = window
        self.offers_tools = offers_tools
        self.requests: list[ModelRequest] = []
        self.open = asyncio.Event()
        """It answers while this is set."""
        self.open.set()
        self.running = 0
        self.most_at_once = 0
        self.broken_off = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        answer = self.script[min(len(self.requests), len(self.script) - 1)]
        self.requests.append(request)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self.running -= 1
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ModelReply):
            yield answer
            return
        text = answer if isinstance(answer, str) else answer(request)
        yield ModelReply(text, Usage(self.label, self.model, 100, 10))

    async def check(self) -> None: ...
    async def close(self) -> None: ...


class Scene:
    """People talk in chats, which are lanes; `consolidator` tends what they said."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.folder = folder
        self.store = SqliteStore.open(folder / "parley.db")
        self.model = model
        self.busy: set[str] = set()
        self.commits: list[Commit] = []
        self.learns = True
        self.alone = False
        self.lean = False
        self.place: Callable[[Tended], str] = lambda session: person_place(session.person)
        self.build_error: dict[str, Exception] = {}
        self._consolidators: list[MemoryConsolidator] = []
        self._count = 0

    async def close(self) -> None:
        for consolidator in self._consolidators:
            await consolidator.stop_background_task()
        await self.store.close()

    def consolidator(self, *, interval: float = 60.0, **changed: Any) -> MemoryConsolidator:
        made = MemoryConsolidator(
            self.folder,
            self.model,
            self.model.model,
            self.store,
            self.model.context_window,
            self._prompt,
            lambda: TOOLS,
            idle_check_interval=interval,
            **{
                "place_of": self._place_of,
                "is_busy": self.busy.__contains__,
                "is_anyone_busy": lambda: bool(self.busy),
                "on_commit": self.commits.append,
                **changed,
            },
        )
        self._consolidators.append(made)
        return made

    def _place_of(self, session: Tended) -> str:
        return self.place(session)

    async def _prompt(self, session: Tended, history: Sequence[ChatMessage]) -> Prompt | None:
        if session.key in self.build_error:
            raise self.build_error[session.key]
        summary = f"\n\nEarlier:\n{session.summary}" if session.summary else ""
        return Prompt(
            SYSTEM + summary, mend(history), learns=self.learns, alone=self.alone, lean=self.lean
        )

    def asked_in_a_turn(self, history: Sequence[ChatMessage], text: str) -> ModelRequest:
        """The conversation's own next request."""
        return ModelRequest(SYSTEM, mend([*history, ChatMessage("user", text)]), TOOLS)

    # ── talking ──

    async def talk(self, *texts: str, chat: str = "c1", reply: str = "I see.") -> Tended:
        """One turn each."""
        for text in texts:
            await self.end(await self.begin(text, chat=chat), ChatMessage("assistant", reply))
        return await self.session(chat)

    async def long_talk(
        self,
        turns: int,
        *,
        chat: str = "c1",
        words: int = 100,
        facts: int = 0,
        topic: str = "dish",
    ) -> Tended:
        """So many turns of so many words, the first of which tell something."""
        for number in range(turns):
            what = f"I like {topic} number {number}." if number < facts else f"On {topic} {number}."
            await self.talk(f"{what} {'blah ' * words}".strip(), chat=chat, reply="well " * words)
        return await self.session(chat)

    async def use_a_tool(self, text: str, *, chat: str = "c1", result: str = "found") -> Tended:
        """A turn in which the agent looks something up."""
        claim = await self.begin(text, chat=chat)
        call = ToolCall("call-1", "look", {"what": text})
        await self.store.step(claim, [ChatMessage("assistant", "", (call,))])
        found = ChatMessage("tool", result, tool_call_id="call-1", tool_name="look")
        await self.store.step(claim, [found])
        await self.end(claim, ChatMessage("assistant", "There it is."))
        return await self.session(chat)

    async def begin(self, text: str, *, chat: str = "c1") -> Claim:
        await say(self.store, text, chat=chat)
        claim = await claim_one(self.store)
        assert claim.lane == chat
        return claim

    async def end(self, claim: Claim, *messages: ChatMessage) -> None:
        await self.store.commit(claim, TurnEnd("done", messages))

    # ── what is there ──

    async def session(self, chat: str = "c1") -> Tended:
        record = await self.store.session_of(chat)
        assert record is not None
        found = await self.store.tended(record.id)
        assert found is not None
        return found

    async def facts(self, chat: str = "c1") -> list[Fact]:
        return await self.store.facts([place(chat)])

    async def texts(self, chat: str = "c1") -> list[str]:
        return [fact.text for fact in await self.facts(chat)]

    async def history(self, chat: str = "c1", *, whole: bool = False) -> list[ChatMessage]:
        session = await self.session(chat)
        return [each.message for each in await self.store.transcript(session.id, whole=whole)]


def place(chat: str = "c1") -> str:
    return person_place(f"{PLATFORM}:user-of-{chat}")
