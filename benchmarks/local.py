"""Sixty tasks for the model on this machine: how many it gets right, and how long each takes.

`python -m benchmarks.local` takes Qwen, or with `--weights` another model; it must be installed.
Each task is said to a real gateway with the built-in agent and a workspace of its own, and is
judged by what came of it: words in the reply, a file, a planned reminder, a remembered fact.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.in_process import gateway_here
from benchmarks.local_tasks import TASKS, Job, LocalTask, Outcome
from benchmarks.parties import Bystander
from benchmarks.report import Row, cpu_seconds, median, percentile, print_table, rss_mb
from parley.backends.agent import AgentBackend
from parley.backends.base import Turn
from parley.config import load_settings
from parley.gateway.live import LiveEvent
from parley.profiles import DEFAULT_PROFILE, Profile, profile_scope
from parley.protocol import (
    ApprovalAsked,
    Failed,
    Final,
    InboundMessage,
    SessionSource,
    StepTaken,
    ToolStarted,
    TurnEvent,
    Usage,
)
from parley.storage.contract import Delivery
from parley.storage.memory import person_place
from parley.storage.sqlite import SqliteStore

__all__ = ["Judged", "Person", "run_tasks"]

_ANSWERED_WITHIN = 600.0
_LEAST_RIGHT = 85
_MOST_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One task, and how it went. `cpu` is the model's processor time, `prompt` its tokens."""

    task: LocalTask
    right: bool
    seconds: float
    cpu: float
    calls: tuple[str, ...]
    replies: tuple[str, ...]
    prompt: int
    memory: float


@dataclass(slots=True)
class _Watch:
    calls: list[str] = field(default_factory=list)
    prompt: int = 0
    key: str = ""


class _WatchedAgent(AgentBackend):
    """The built-in agent; notes the tools it calls and how much it sends."""

    watch: _Watch

    async def run(self, turn: Turn) -> AsyncGenerator[TurnEvent, None]:
        self.watch.key = turn.session_key
        async with aclosing(super().run(turn)) as events:
            async for event in events:
                usage: Usage | None = None
                match event:
                    case ToolStarted(call=call):
                        shown = ", ".join(f"{k}={v!r}" for k, v in call.arguments.items())
                        self.watch.calls.append(f"{call.name}({shown})")
                    case StepTaken(usage=found) | Final(usage=found) | Failed(usage=found):
                        usage = found
                if usage is not None:
                    self.watch.prompt = max(self.watch.prompt, usage.input_tokens)
                yield event


class Person(Bystander):
    """Whoever gives the tasks. They allow every command: without a sandbox they are asked."""

    platform = "bystander"
    can_ask = True
    shows_questions = True

    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, asyncio.Future[str]] = {}
        self._asked = 0

    async def send(self, delivery: Delivery) -> str | None:
        for number in delivery.answers:
            reply = self._texts.get(number)
            if reply is not None and not reply.done():
                reply.set_result(delivery.text)
        return None

    async def show(self, event: LiveEvent) -> None:
        if isinstance(event.event, ApprovalAsked):
            self._asked += 1
            asyncio.get_running_loop().create_task(self._allow(event.source, self._asked))

    async def _allow(self, source: SessionSource, number: int) -> None:
        assert self._door is not None
        await self._door.admit(InboundMessage(source, "/yes", event_id=f"yes-{number}"))

    async def say(self, who: str, text: str, number: str, *, user: str | None = None) -> str:
        assert self._door is not None
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._texts[number] = reply
        source = SessionSource(self.platform, chat_id=who, user_id=user or who)
        await self._door.admit(InboundMessage(source, text, event_id=number))
        async with asyncio.timeout(_ANSWERED_WITHIN):
            return await reply


async def run_tasks(
    weights: str, tasks: Sequence[LocalTask], *, prompt: str = "auto", tell: bool = False
) -> list[Judged]:
    """Each in a conversation of a person of its own; the model stays loaded."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Profile(DEFAULT_PROFILE, Path(folder))
        config = {
            "local": {"weights": weights},
            "access": {"owners": [f"{Person.platform}:{task.name}" for task in tasks]},
            **({} if prompt == "auto" else {"agent": {"prompt": prompt}}),
            "memory": {"learn": False},  # housekeeping would take processor time from a task
            "plan": {"tokens": None},
        }
        profile.config_file.write_text(json.dumps(config))
        with profile_scope(profile):
            backend = _WatchedAgent(profile, load_settings(profile), secret=lambda _: None)
            backend.watch = _Watch()
            person = Person()
            async with gateway_here(profile, backend=backend, surface=person) as here:
                await person.say("first", "Say ok.", "first")  # loads the weights
                judged = []
                for task in tasks:
                    judged.append(await _judge(task, profile, here.store, person, backend.watch))
                    if tell:
                        print(_line(judged[-1]), flush=True)
                return judged


async def _judge(
    task: LocalTask, profile: Profile, store: SqliteStore, person: Person, watch: _Watch
) -> Judged:
    shutil.rmtree(profile.workspace, ignore_errors=True)
    profile.workspace.mkdir(parents=True)
    for name, text in task.files.items():
        (profile.workspace / name).write_text(text)
    watch.calls, watch.prompt = [], 0
    began, started, cpu = time.time(), time.perf_counter(), _model_cpu()
    replies = [
        await person.say(task.name, said, f"{task.name}-{number}")
        for number, said in enumerate(task.says)
    ]
    seconds = time.perf_counter() - started
    outcome = Outcome(
        replies=replies,
        calls=[call.partition("(")[0] for call in watch.calls],
        workspace=profile.workspace,
        jobs=[Job(each.next_at, each.job.message.text) for each in await store.jobs(watch.key)],
        memory=[
            fact.text
            for fact in await store.facts([person_place(f"{Person.platform}:{task.name}")])
        ],
        began=began,
    )
    return Judged(
        task=task,
        right=task.check(outcome),
        seconds=seconds,
        cpu=_model_cpu() - cpu,
        calls=tuple(watch.calls),
        replies=tuple(replies),
        prompt=watch.prompt,
        memory=max((rss_mb(pid) for pid in _children()), default=0.0),
    )


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def _model_cpu() -> float:
    return max((cpu_seconds(pid) for pid in _children()), default=0.0)


def _line(judged: Judged) -> str:
    mark = "right" if judged.right else "WRONG"
    said = " / ".join(" ".join(reply.split())[:90] for reply in judged.replies)
    calls = "; ".join(call[:90] for call in judged.calls)
    return (
        f"{mark} {judged.seconds:6.1f} s {judged.cpu:6.1f} cpu {judged.prompt:5d} tok  "
        f"{judged.task.name:10} [{calls}] {said}"
    )


def _table(weights: str, judged: Sequence[Judged]) -> list[Row]:
    rows = []
    for kind in ("facts", "tools", "mixed"):
        these = [each for each in judged if each.task.kind == kind]
        if these:
            rows.append(Row(f"{weights}: {kind}", _score(these)))
    share = 100 * sum(each.right for each in judged) / len(judged)
    seconds = [each.seconds for each in judged]
    p50 = median(seconds)
    rows += [
        Row(f"{weights}: all", _score(judged), f"≥ {_LEAST_RIGHT} %", share >= _LEAST_RIGHT),
        Row(
            f"{weights}: seconds a task, p50 / p90",
            f"{p50:.1f} / {percentile(seconds, 90):.1f}",
            f"≤ {_MOST_SECONDS:.0f}",
            p50 <= _MOST_SECONDS,
        ),
        Row(f"{weights}: the model's cpu seconds, p50", f"{median([e.cpu for e in judged]):.1f}"),
        Row(f"{weights}: prompt tokens, p50", f"{median([e.prompt for e in judged]):.0f}"),
        Row(
            f"{weights}: memory of the model's process", f"{max(e.memory for e in judged):,.0f} MB"
        ),
    ]
    return rows


def _score(judged: Sequence[Judged]) -> str:
    right = sum(each.right for each in judged)
    return f"{right} of {len(judged)} right ({100 * right / len(judged):.0f} %)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", default="qwen", help="an installed model, or a .gguf file")
    parser.add_argument("--prompt", default="auto", choices=["auto", "lean", "full"])
    parser.add_argument("--only", default="", help="names of tasks or kinds, with commas")
    chosen = parser.parse_args()
    only = set(filter(None, chosen.only.split(",")))
    tasks = [task for task in TASKS if not only or only & {task.name, task.kind}]
    judged = asyncio.run(run_tasks(chosen.weights, tasks, prompt=chosen.prompt, tell=True))
    rows = _table(chosen.weights, judged)
    print_table("The local model", rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
