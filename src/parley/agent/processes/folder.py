"""The folder of one process: made once, read by any gateway, and removed in the end.

See `parley.agent.processes.keeper` for what lies in it. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parley.agent.disk_quota import DiskRoom
from parley.agent.processes.process import Process, ProcessState
from parley.agent.processes.ring import Piece, read_ring
from parley.config.hands import TerminalSettings
from parley.storage.sqlite.names import renamed

__all__ = ["HOME", "SCRATCH", "Launch", "ProcessFolder", "lives", "reap", "terminate"]

# Without a sandbox: an empty home, and what lasts as long as the command.
HOME, SCRATCH = "home", "scratch"
_LOST = "the machine or its keeper ended; the outcome is unknown"
_NOBODY = {"pid": 0}
_UP_WITHIN = 10.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Launch:
    """What the keeper is told to run."""

    argv: list[str]
    cwd: str
    environment: dict[str, str]
    wrapped: bool
    scoped: bool
    pty: bool
    timeout: float | None

    def record(
        self, limits: TerminalSettings, room: DiskRoom, disk: dict[str, Any]
    ) -> dict[str, Any]:
        file_bytes, note = room.for_command(limits.file_mb * 1024 * 1024)
        return {
            "argv": self.argv,
            "cwd": self.cwd,
            "environment": self.environment,
            "wrapped": self.wrapped,
            "scoped": self.scoped,
            "pty": self.pty,
            "timeout": self.timeout,
            "memory_bytes": limits.memory_mb * 1024 * 1024,
            "file_bytes": file_bytes,
            "processes": limits.processes,
            "output_bytes": limits.output_kb * 1024,
            "disk": disk,
            "note": note,
        }


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    # ── making ────────────────────────────────────────────────────────────────────────────────

    def make(self, facts: Mapping[str, Any], launch: dict[str, Any]) -> bool:
        """All of it at once, or nothing; False when it is there already."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.id}.{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        try:
            _put(draft / "spec.json", json.dumps(facts).encode())
            _put(draft / "launch", marshal.dumps(launch))
            if not launch["wrapped"]:
                (draft / HOME).mkdir(mode=0o500)
                (draft / SCRATCH).mkdir(mode=0o700)
            draft.rename(self.path)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if self.path.is_dir():
                return False
            raise
        return True

    def spawn(self) -> int:
        """Start the keeper: a child of ours, but in a session of its own."""
        program = Path(__file__).with_name("keeper.py")
        nothing = ((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in range(3))
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-u", str(program), str(self.path)],
            {"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            file_actions=list(nothing),
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
        )

    def await_keeper(self, pid: int) -> None:
        """Until the keeper has taken the folder, or is gone; longer than that nobody waits."""
        until = time.monotonic() + _UP_WITHIN
        while not self.has_keeper() and lives(pid, None) and time.monotonic() < until:
            time.sleep(0.002)

    def rule_out(self) -> bool:
        """Make sure that nothing will start here any more; False when something did."""
        claim = self.path / f"keeper.json.not-{os.getpid()}"
        try:
            _put(claim, json.dumps(_NOBODY).encode())
            os.link(claim, self.path / "keeper.json")
        except FileExistsError:
            return self._keeper().get("pid") == 0
        except FileNotFoundError:
            return True
        finally:
            claim.unlink(missing_ok=True)
        return True

    def follow(self, namespace: str) -> None:
        """Its lane may have another name by now: the profile's name is in it."""
        facts = self.facts()
        lane = renamed(str(facts.get("lane", "")), namespace)
        if facts.get("lane") not in (None, lane):
            draft = self.path / "spec.json.new"
            _put(draft, json.dumps(facts | {"lane": lane}).encode())
            draft.rename(self.path / "spec.json")

    def remove(self) -> None:
        gone = self.path.with_name(f".{self.id}.gone-{os.getpid()}-{time.monotonic_ns()}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def facts(self) -> dict[str, Any]:
        return _get(self.path / "spec.json")

    def keeper_pid(self) -> int | None:
        """The keeper that lives; a pid that now means another process does not count."""
        keeper = self._keeper()
        pid = keeper.get("pid")
        if not isinstance(pid, int) or pid <= 0 or keeper.get("boot") != _boot():
            return None
        return pid if lives(pid, keeper.get("start")) else None

    def has_keeper(self) -> bool:
        return (self.path / "keeper.json").exists()

    def process(self) -> Process:
        """As it stands now."""
        alive = self.keeper_pid() is not None  # before the exit is read: it may end meanwhile
        facts, end = self.facts(), _get(self.path / "exit.json")
        known = Process(
            id=self.id,
            command=str(facts.get("command", "")),
            lane=str(facts.get("lane", "")),
            state="running",
            started_at=float(facts.get("started_at", 0.0)),
            contained=bool(facts.get("contained", False)),
            pty=bool(facts.get("pty", True)),
        )
        return _ended(known, end) if end or not alive else known

    def printed(self, *, since: int = 0, last: int | None = None) -> Piece:
        size = int(self.facts().get("output_bytes", 0))
        if size <= 0:
            return Piece(0, b"")
        return read_ring(self.path / "output", size=size, since=since, last=last)

    def watched(self) -> tuple[int, int]:
        """How far its output was searched, and how many reports there were."""
        found = _get(self.path / "watch.json")
        return int(found.get("position", 0)), int(found.get("reports", 0))

    def put_watched(self, position: int, reports: int) -> None:
        draft = self.path / "watch.json.new"
        with contextlib.suppress(OSError):
            _put(draft, json.dumps({"position": position, "reports": reports}).encode())
            draft.rename(self.path / "watch.json")

    def _keeper(self) -> dict[str, Any]:
        return _get(self.path / "keeper.json")

    def typed(self) -> str | None:
        """What stands on the line that was typed last; None where that is not known."""
        file = self.path / "typed.json"
        if not file.exists():
            return "" if "pty" in self.facts() else None  # an earlier version noted nothing
        line = _get(file).get("line")
        return line if isinstance(line, str) else None

    def put_typed(self, line: str | None) -> None:
        draft = self.path / "typed.json.new"
        _put(draft, json.dumps({"line": line}).encode())
        draft.rename(self.path / "typed.json")

    # ── input ─────────────────────────────────────────────────────────────────────────────────

    def open_input(self) -> int | None:
        """None while, or because, nobody reads it."""
        try:
            return os.open(self.path / "input", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None


def _ended(known: Process, end: Mapping[str, Any]) -> Process:
    if not end:
        return replace(known, state="lost", reason=_LOST, ended_at=time.time())
    code, by, reason = end.get("code"), end.get("signal"), end.get("reason")
    state: ProcessState = "done" if code == 0 else "failed"
    if reason == "not started":
        state, reason = "failed", "it could not be started"
    elif reason is not None:
        state = "killed"
    elif by is not None:
        reason = f"ended by signal {by}"
    return replace(
        known,
        state=state,
        exit_code=code if code is not None else 128 + by if by is not None else None,
        reason=reason,
        ended_at=end.get("ended_at"),
        bytes=end.get("bytes"),
    )


def lives(pid: int, start: int | None) -> bool:
    """Whether this very process is there, and no other under its number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return False
        return _answers(pid)
    return fields[0] not in "ZX" and (start is None or int(fields[19]) == start)


def _boot() -> str | None:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return None


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def terminate(folder: ProcessFolder) -> None:
    """Ask the keeper to end all of it."""
    pid = folder.keeper_pid()
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            os.kill(pid, signal.SIGTERM)
            return
        handle = os.pidfd_open(pid)
        try:
            if folder.keeper_pid() == pid:  # still the same, now that it cannot change
                signal.pidfd_send_signal(handle, signal.SIGTERM)
        finally:
            os.close(handle)


def reap(pid: int) -> None:
    """A keeper that was a child of ours leaves nothing behind."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _put(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _get(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
