"""All processes of a profile: begun once under their name, watched, and told about."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parley.agent.disk_quota import DiskLimits, DiskRoom, quota_for
from parley.agent.processes.folder import HOME, SCRATCH, Launch, ProcessFolder, terminate
from parley.agent.processes.process import Ended, Matched, Output, Process, Spec
from parley.agent.processes.watching import Entry, watch
from parley.agent.sandbox import Sandbox
from parley.agent.sandbox.environment import (
    UNCONTAINED,
    clean_environment,
    personal_environment,
)
from parley.agent.sandbox.landlock import can_scope_sockets
from parley.agent.session_files import PRIVATE
from parley.agent.tools.base import ToolError
from parley.agent.tools.typed_input import rest_of_line
from parley.config.hands import TerminalSettings
from parley.protocol import ParleyError

__all__ = ["Processes"]

_MOST_RUNNING = 64
_MOST_KEPT = 200
_KEPT_SECONDS = 7 * 86_400.0
_KILL_SECONDS = 30.0
_INPUT_SECONDS = 5.0
_FRAME = 4000
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Processes:
    """`on_end` is called once for each process that ends while this registry is open.

    `sandbox` may take a moment; it is asked in a thread. What an earlier gateway began in a lane is
    of the same lane in `namespace`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sandbox: Callable[[], Sandbox],
        settings: TerminalSettings,
        namespace: str | None = None,
    ) -> None:
        self.on_end: Callable[[Ended], None] = lambda _: None
        self.on_match: Callable[[Matched], None] = lambda _: None
        self._folder = folder
        self._sandbox = sandbox
        self._settings = settings
        self._namespace = namespace
        self._entries: dict[str, Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Take up what an earlier gateway left."""
        if not self._folder.is_dir():  # nothing was ever begun here
            return
        for entry in await asyncio.to_thread(self._find):
            self._entries[entry.id] = entry
            if entry.process.is_running:
                self._watch(entry)
        await self.forget_old(time.time() - _KEPT_SECONDS)

    async def close(self) -> None:
        """Stop watching; the processes go on."""
        await asyncio.gather(*self._beginning.values(), return_exceptions=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()

    # ── looking ───────────────────────────────────────────────────────────────────────────────

    def get(self, id: str) -> Process | None:
        entry = self._entries.get(id)
        return entry.process if entry is not None else None

    def listing(self, lane: str) -> list[Process]:
        """Those of one conversation, oldest first."""
        mine = (entry.process for entry in self._entries.values() if entry.process.lane == lane)
        return sorted(mine, key=lambda process: process.started_at)

    def running(self) -> list[Process]:
        return [each.process for each in self._entries.values() if each.process.is_running]

    def has_room(self) -> bool:
        running = sum(entry.process.is_running for entry in self._entries.values())
        return running + len(self._beginning) < _MOST_RUNNING

    def typed(self, id: str) -> str | None:
        """What stands on the line that was typed last; None where that is not known."""
        return self._entry(id).typed

    def sandbox(self) -> Sandbox:
        """What the next command would run in; raises `ParleyError` when it may not run."""
        return self._sandbox()

    async def wait(self, id: str, timeout: float | None = None) -> Process:
        """As it stands when it ends, or when the time is over."""
        entry = self._entry(id)
        try:
            async with asyncio.timeout(timeout):
                await entry.over.wait()
        except TimeoutError:
            pass
        return entry.process

    async def output(self, id: str, last_bytes: int) -> Output:
        entry = self._entry(id)
        piece = await asyncio.to_thread(entry.folder.printed, last=last_bytes)
        data = piece.data
        if piece.start:  # not to begin in the middle of a character
            cut = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
            data = data[cut:]
        return Output(data.decode("utf-8", errors="replace"), piece.end - len(data))

    async def missed(self, id: str) -> tuple[str, ...]:
        """The lines that one which ended before we came was watched for, and nobody reported."""
        return await watch(self._entry(id), self._matched)

    # ── doing ─────────────────────────────────────────────────────────────────────────────────

    async def start(self, id: str, spec: Spec) -> Process:
        """Begin it, once under this id: when it was begun before, that one as it stands."""
        if not _ID.fullmatch(id):
            raise ToolError("A process id has letters, digits, - and _ only.")
        if id not in self._entries:
            beginning = self._beginning.get(id)
            if beginning is None:
                if not self.has_room():
                    raise ToolError(
                        f"{_MOST_RUNNING} processes run already: end one with "
                        f'process(action="kill") first.'
                    )
                beginning = asyncio.create_task(self._begin(id, spec), name=f"begin {id}")
                self._beginning[id] = beginning
            # What is half begun is not left unknown when whoever asked for it is gone.
            await asyncio.shield(beginning)
        return self._entry(id).process

    async def kill(self, id: str) -> Process:
        """End it and all that it started; back when they are gone."""
        if id in self._beginning:
            await asyncio.wait([self._beginning[id]])
        entry = self._entry(id)
        until = time.monotonic() + _KILL_SECONDS
        while entry.process.is_running:
            if time.monotonic() > until:
                raise ToolError(f"Process {id} could not be ended; try again later.")
            await asyncio.to_thread(terminate, entry.folder)
            await self.wait(id, 0.5)
        return entry.process

    async def write(self, id: str, text: str, *, eof: bool = False) -> None:
        """Give it something to read; with `eof`, nothing comes after."""
        entry = self._entry(id)
        data = text.encode("utf-8", errors="replace")
        frames = [data[place : place + _FRAME] for place in range(0, len(data), _FRAME)]
        if eof:
            frames.append(b"")
        until = time.monotonic() + _INPUT_SECONDS
        pipe = entry.folder.open_input()
        while pipe is None:
            if not entry.process.is_running or time.monotonic() > until:
                raise ToolError(f"Process {id} does not run any more.")
            await asyncio.sleep(0.01)
            pipe = entry.folder.open_input()
        line = rest_of_line(entry.typed, text)
        try:
            # Not known while it is written, nor after a write that broke off.
            entry.typed = None
            await asyncio.to_thread(entry.folder.put_typed, None)
            for frame in frames:
                while not _put_frame(pipe, frame):
                    if time.monotonic() > until:
                        raise ToolError(f"Process {id} does not read what is written to it.")
                    await asyncio.sleep(0.02)
        except BrokenPipeError as error:
            raise ToolError(f"Process {id} does not run any more.") from error
        finally:
            os.close(pipe)
        entry.typed = line
        with contextlib.suppress(OSError):
            await asyncio.to_thread(entry.folder.put_typed, line)

    async def forget_old(self, before: float) -> None:
        """Remove what is left of those that ended before that time, and of too many."""
        ended = [entry for entry in self._entries.values() if not entry.process.is_running]
        ended.sort(key=lambda entry: entry.process.ended_at or 0.0, reverse=True)
        for number, entry in enumerate(ended):
            if number >= _MOST_KEPT or (entry.process.ended_at or 0.0) < before:
                del self._entries[entry.id]
                await asyncio.to_thread(entry.folder.remove)

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _entry(self, id: str) -> Entry:
        entry = self._entries.get(id)
        if entry is None:
            raise ToolError(f"There is no process {id}.")
        return entry

    def _watch(self, entry: Entry) -> None:
        self._keep(asyncio.create_task(self._until_over(entry), name=f"process {entry.id}"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_over(self, entry: Entry) -> None:
        lines = await watch(entry, self._matched)
        entry.over.set()
        self.on_end(Ended(entry.process, lines))
        if len(self._entries) > _MOST_KEPT + _MOST_RUNNING:
            await self.forget_old(time.time() - _KEPT_SECONDS)

    def _matched(self, matched: Matched) -> None:
        self.on_match(matched)

    async def _begin(self, id: str, spec: Spec) -> None:
        try:
            self._entries[id] = entry = await self._begun(id, spec)
            if entry.process.is_running:
                self._watch(entry)
            elif entry.is_child:
                self.on_end(Ended(entry.process))
        finally:
            del self._beginning[id]

    async def _begun(self, id: str, spec: Spec) -> Entry:
        """It, or, when it could not be begun, its failure: an end like any other."""
        try:
            return await asyncio.to_thread(self._make, id, spec)
        except ParleyError as error:
            reason = str(error)
        except OSError as error:
            reason = f"it could not be started: {error.strerror or error}"
        folder, now = ProcessFolder(self._folder / id), time.time()
        failed = Process(
            id, spec.command, spec.lane, "failed", now, contained=True, reason=reason, ended_at=now
        )
        return Entry(folder, failed, is_child=True)

    def _make(self, id: str, spec: Spec) -> Entry:
        """Make the folder and start the keeper; or find what is there."""
        folder = ProcessFolder(self._folder / id)
        if folder.path.is_dir():
            if not folder.rule_out():
                return _entry_of(folder)
            folder.remove()
        sandbox, now = self._sandbox(), time.time()
        facts = {
            "command": spec.command,
            "lane": spec.lane,
            "patterns": list(spec.patterns),
            "contained": sandbox.contains,
            "pty": spec.pty,
            "output_bytes": self._settings.output_kb * 1024,
            "started_at": now,
        }
        launch = _launch(spec, sandbox, folder.path).record(
            self._settings, *_disk(spec, self._settings)
        )
        if not folder.make(facts, launch):
            return _entry_of(folder)
        try:
            pid = folder.spawn()
        except OSError:
            folder.remove()
            raise
        # Told to have begun, it has: the next gateway may come before the keeper is up.
        folder.await_keeper(pid)
        known = Process(id, spec.command, spec.lane, "running", now, sandbox.contains, pty=spec.pty)
        return Entry(folder, known, spec.patterns, pid, is_child=True)

    def _find(self) -> list[Entry]:
        found: list[Entry] = []
        if not self._folder.is_dir():
            return found
        for path in sorted(self._folder.iterdir()):
            folder = ProcessFolder(path)
            if not _ID.fullmatch(path.name):
                if path.name.startswith("."):
                    shutil.rmtree(path, ignore_errors=True)
            elif folder.rule_out():
                folder.remove()
            else:
                if self._namespace is not None:
                    folder.follow(self._namespace)
                found.append(_entry_of(folder))
        return found


def _entry_of(folder: ProcessFolder) -> Entry:
    patterns = folder.facts().get("patterns", ())
    return Entry(
        folder,
        folder.process(),
        tuple(map(str, patterns)),
        folder.keeper_pid(),
        typed=folder.typed(),
    )


def _launch(spec: Spec, sandbox: Sandbox, folder: Path) -> Launch:
    shell = shutil.which("bash", path="/bin:/usr/bin:/usr/local/bin") or "/bin/sh"
    environment = clean_environment(spec.environment)
    argv = sandbox.command(
        [shell, "-c", spec.command],
        workspace=spec.workspace,
        cwd=spec.cwd,
        network=spec.network,
        environment=environment,
        terminal=spec.pty,
        private=_own_folder(spec),
    )
    if not sandbox.contains:
        environment |= personal_environment(str(folder / HOME), str(folder / SCRATCH)) | UNCONTAINED
    return Launch(
        argv=argv,
        cwd=str(spec.workspace if sandbox.contains else spec.cwd),
        environment={} if sandbox.contains else environment,
        wrapped=sandbox.contains,
        scoped=sandbox.contains and spec.network and can_scope_sockets(),
        pty=spec.pty,
        timeout=spec.timeout,
    )


def _disk(spec: Spec, settings: TerminalSettings) -> tuple[DiskRoom, dict[str, Any]]:
    """What the files take that are counted while it runs."""
    sessions = spec.private.parent.parent if spec.private is not None else None
    quota = quota_for(spec.workspace, sessions, DiskLimits.from_settings(settings))
    room = quota.look(spec.private)
    return room, quota.terms(room, spec.private)


def _own_folder(spec: Spec) -> tuple[Path, Path] | None:
    """The folder of its conversation, and where it sees it; both are there."""
    if spec.private is None:
        return None
    spec.private.mkdir(mode=0o700, parents=True, exist_ok=True)
    seen = spec.workspace.resolve() / PRIVATE
    if seen.is_symlink() or (seen.exists() and not seen.is_dir()):
        seen.unlink(missing_ok=True)  # a command without a sandbox put it there
    seen.mkdir(mode=0o700, exist_ok=True)
    return spec.private, seen


def _put_frame(pipe: int, frame: bytes) -> bool:
    """All of it or nothing; False when the pipe is full."""
    try:
        os.write(pipe, len(frame).to_bytes(2, "little") + frame)
    except BlockingIOError:
        return False
    return True
