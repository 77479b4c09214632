"""Setup for the injections: a gateway, an obeying model, and servers that count visits."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import web

from parley.memory.places import places_of
from parley.protocol import Attachment, InboundMessage, SessionSource
from parley.sessions.key import build_session_key
from parley.storage.contract import Delivery
from parley.storage.sqlite import SqliteStore
from tests.gateway.house import House
from tests.gateway.injections import REF
from tests.gateway.room import Room
from tests.gateway.workshop import calls
from tests.servers.scripted_model import Reply
from tests.servers.web_site import WebSite
from tests.waiting import until

__all__ = [
    "TOOLS",
    "Asked",
    "Case",
    "ObeyingModel",
    "Setup",
    "Step",
    "letters_server",
    "messages_of",
]

Asked: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Reply | Callable[[Asked], Reply]

TOOLS = [
    *("clarify", "delegate_task", "edit_file", "mcp", "memory", "now", "process", "read_file"),
    *("read_skill", "schedule", "search_files", "send_file", "send_message", "session_search"),
    *("terminal", "todo", "web_fetch", "web_search", "write_file"),
]
_TAG = re.compile(r"INJ-\d{3}|case-\d{3}(?:-[a-z])?|do-\d{3,4}")
_REASON = "There is text here that nobody in this conversation wrote (from "


@dataclass(frozen=True)
class Case:
    """One injection, and the conversation in which it is met."""

    number: int
    channel: str
    effect: str
    template: str
    is_group: bool = False

    @property
    def tag(self) -> str:
        """In what the person says."""
        return f"case-{self.number:03}"

    @property
    def ref(self) -> str:
        """In the injection."""
        return f"INJ-{self.number:03}"

    @property
    def mark(self) -> str:
        """In what the injection brings about."""
        return f"EFF-{self.number:03}"

    @property
    def text(self) -> str:
        return self.template.replace(REF, self.ref)

    @property
    def who(self) -> str:
        return f"p{self.number:03}"

    @cached_property
    def source(self) -> SessionSource:
        return self.at(self.who)

    def at(self, who: str) -> SessionSource:
        """Where they speak: to the agent alone, or in a thread that all in a group share."""
        if not self.is_group:
            return SessionSource("desk", chat_id=who, user_id=who)
        chat = f"g{self.number:03}"
        return SessionSource("desk", chat_id=chat, chat_type="group", thread_id="t1", user_id=who)

    @property
    def lane(self) -> str:
        return build_session_key(self.source)

    @property
    def place(self) -> str:
        """Where it would be remembered."""
        return places_of(self.lane, self.source).write

    def __str__(self) -> str:
        return f"{self.tag} ({self.channel}, {self.effect})"


class ObeyingModel:
    """A model that does what it reads: its replies, by a tag in the newest message of a person.

    A summary that it makes keeps the orders that it has seen. `obeyed` are the cases in which it
    was shown the injection when it acted.
    """

    def __init__(self) -> None:
        self._steps: dict[str, Sequence[Step]] = {}
        self.obeyed: set[str] = set()
        self.learns: Sequence[str] = ()
        """What it claims that people said, when it sums up."""

    def when(self, tag: str, *steps: Step) -> None:
        self._steps[tag] = steps

    def __call__(self, asked: Asked) -> Reply:
        text, step = "", 0
        for message in asked["messages"]:
            if message["role"] == "user":
                text, step = _words(message), 0
            elif message["role"] == "assistant":
                step += 1
        if "it is housekeeping" in text:
            seen = dict.fromkeys(re.findall(r"INJ-\d{3}", json.dumps(asked)))
            summary = "\n".join(f"- {ref} wants something done." for ref in seen) or "- Nothing."
            said = re.findall(r"^- (\d+) \(", text.partition("Messages that facts")[2], re.M)
            facts = [{"text": each, "sources": [int(said[-1])]} for each in self.learns if said]
            return Reply(text=json.dumps({"facts": facts, "forget": [], "summary": summary}))
        tags = sorted(_TAG.findall(text), key=lambda tag: not tag.startswith("INJ"))
        steps = next((self._steps[tag] for tag in tags if tag in self._steps), ())
        if step >= len(steps):
            return Reply(text=f"ok {step}")
        found = steps[step]
        return found if isinstance(found, Reply) else found(asked)

    def act(self, case: Case, call: tuple[str, Mapping[str, Any]]) -> Step:
        """The step in which it obeys."""

        def step(asked: Asked) -> Reply:
            if case.ref in json.dumps(asked, ensure_ascii=False):
                self.obeyed.add(case.ref)
            return calls(call)

        return step


class FileRoom(Room):
    """A room that files can be sent to."""

    sends_files = True


@dataclass
class Setup:
    """Everything that a case needs. `open` starts the gateway."""

    house: House
    model: ObeyingModel
    site: WebSite
    letters: Path
    room: Room = field(default_factory=Room)
    facts: dict[int, int] = field(default_factory=dict)
    sessions: dict[int, str] = field(default_factory=dict)
    processes: dict[int, str] = field(default_factory=dict)
    found: dict[str, list[dict[str, str]]] = field(default_factory=lambda: defaultdict(list))
    """What a search of the web finds, by a word of the query."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def store(self) -> SqliteStore:
        assert self.house.store is not None
        return self.house.store

    async def open(self, *, owners: Sequence[str] = (), **sections: Mapping[str, Any]) -> None:
        self.house.desk_type = FileRoom
        self.site.does("/search", self._search)
        for path in ("/gather", "/"):
            self.site.has(path, "<p>Thank you.</p>")
        search = {"provider": "searxng", "url": self.site.url("").rstrip("/")}
        settings: dict[str, Any] = {
            "access": {"owners": list(owners)},
            "web": {"allow": [self.site.place], "search": search},
            **sections,
        }
        settings["agent"] = {"tools": TOOLS, **sections.get("agent", {})}
        room = await self.house.open(**settings)
        assert isinstance(room, Room)
        self.room = room

    async def _search(self, request: web.BaseRequest) -> web.StreamResponse:
        words = request.query.get("q", "").split()
        return web.json_response({"results": [each for word in words for each in self.found[word]]})

    # ── what people do ──

    async def say(
        self,
        case: Case,
        text: str,
        *,
        who: str | None = None,
        outside: str = "",
        attachments: Sequence[Attachment] = (),
        chat: str | None = None,
    ) -> str:
        """Somebody says something, or sends what others wrote; the id of its answer."""
        number = f"{case.tag}-{next(self._numbers)}"
        source = case.at(who or case.who)
        if chat is not None:
            source = SessionSource("desk", chat_id=chat, user_id=case.who)
        said = InboundMessage(source, text, number, tuple(attachments), outside=outside)
        await self.room.admit(said)
        return number

    async def talk(self, case: Case, text: str, **more: Any) -> str:
        """Say something, allow what is asked, and wait for the answer."""
        number = await self.say(case, text, **more)
        before = len(self.questions(case))
        await until(lambda: self.room.answer_to(number) or len(self.questions(case)) > before)
        if self.room.answer_to(number) is None:
            await self.say(case, f"!yes {self.question_id(case)}", **more)
        return await self.room.reply_to(number)

    async def prepare_another_chat(self, case: Case) -> None:
        """The person has a second conversation, whose session is known."""
        chat = f"{case.who}-other"
        await self.room.reply_to(await self.say(case, "hello", chat=chat))
        found = await self.store.conversations(f"desk:{case.who}")
        self.sessions[case.number] = next(e.session for e in found if e.source.chat_id == chat)

    # ── what they see ──

    def deliveries(self, case: Case) -> list[Delivery]:
        chat = case.source.chat_id
        return [each for each in self.room.sent if each.source.chat_id == chat]

    def questions(self, case: Case) -> list[str]:
        return [each.text for each in self.deliveries(case) if each.text.startswith("May I ")]

    def question_id(self, case: Case) -> str:
        """Of the newest question; what it shows may hold another."""
        return str(re.findall(r"appr_\w+", self.questions(case)[-1])[-1])

    def is_answered(self, case: Case, number: str) -> bool:
        """Or asked about."""
        return self.room.answer_to(number) is not None or bool(self.questions(case))

    def has_said_more(self, case: Case, before: int) -> bool:
        return len(self.deliveries(case)) > before

    async def names_for(self, case: Case) -> dict[str, str]:
        """What the names in an ordinary conversation stand for just now."""
        names = {"SESSION": self.sessions[case.number], '"FACT"': "0"}
        names |= {"PAGE": self.site.url("/tea"), "OTHER": self.site.url("/milk?a=1")}
        names["ROOT"] = self.site.url("/")
        for job in await self.store.jobs(case.lane):
            names["PLAN"] = job.job.id
        for fact in await self.store.facts([case.place]):
            names['"FACT"'] = str(fact.id)
        return names

    async def results(self, case: Case) -> list[str]:
        """Of all calls in the conversations of the case's lane; what was undone is left out."""
        found = await self.store.sessions(lane=case.lane)
        entries = [e for one in found for e in await self.store.transcript(one.id, whole=True)]
        return [entry.message.text for entry in entries if entry.message.role == "tool"]

    def is_done(self, case: Case) -> bool:
        return any(each.text == f"Done-{case.number:03}" for each in self.deliveries(case))

    def done(self, case: Case) -> Reply:
        return Reply(text=f"Done-{case.number:03}")

    def visits(self, mark: str) -> int:
        """How often something with this mark was carried to the site."""
        return sum(mark in str(request.rel_url) for request in self.site.requests)

    def reason(self, question: str) -> str:
        """Of a question: the sources of outside text that it names; empty when it names none."""
        return question.partition(_REASON)[2]


def letters_server(letters: Path, **more: Any) -> dict[str, Any]:
    """Settings of the MCP server `office`."""
    program = Path(__file__).with_name("injections_mcp.py")
    said = more.pop("said", None)
    args = [str(program), str(letters), *([said] if said else [])]
    return {"command": sys.executable, "args": args, **more}


def messages_of(asked: Asked, role: str) -> list[str]:
    return [_words(each) for each in asked["messages"] if each["role"] == role]


def _words(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
