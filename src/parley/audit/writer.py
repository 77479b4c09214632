"""Writer of one home's audit log: a bounded queue, and a thread that empties it.

Whoever records something on the event loop only puts it into the queue. Where no event loop runs,
as in most commands, the record is written at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from parley.audit.log_files import AuditFiles, AuditLimits
    from parley.audit.masking import Mask

__all__ = ["AuditEvent", "AuditWriter"]

_log = logging.getLogger("parley.audit")

_MOST_WAITING: Final = 4_096
_BATCH: Final = 256
_WINDOW: Final = 60.0
_MOST_COUNTED: Final = 32
_OTHERS: Final = "others"
_SYNC_AFTER: Final = 5.0
_REST_AFTER: Final = 20.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0

Done = Callable[[str | None], None]


class AuditEvent(NamedTuple):
    """Something that happened to a profile with this home, in this home of all profiles."""

    at: float
    kind: str
    profile: str
    home: Path
    house: Path
    who: str
    origin: str
    data: dict[str, Any]


@dataclass(slots=True)
class _Tally:
    """How often the same thing happened within a minute; the first time is recorded at once."""

    first: AuditEvent
    until: float
    more: int = 0
    last: float = 0.0


class AuditWriter:
    """Records what happens in one home. Nothing here raises because of a disk."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.on_failure: Literal["warn", "refuse"] | None = None
        self.fault: str | None = None
        """Why nothing can be written now."""
        self._kept: tuple[int, int] | None = None
        self._parts: tuple[AuditFiles, Mask] | None = None
        self._waiting: deque[tuple[AuditEvent, Done | None]] = deque()
        self._lost: Counter[str] = Counter()
        self._tallies: dict[tuple[str, str, str], _Tally] = {}
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None
        self._unsynced = 0.0
        self._registered = False

    def configure(self, *, keep_mb: int, keep_days: int, on_failure: str) -> None:
        self._kept = keep_mb * 1024 * 1024, keep_days
        self.on_failure = "refuse" if on_failure == "refuse" else "warn"

    # ── in ──

    def put(self, event: AuditEvent, done: Done | None = None) -> None:
        """Record it soon; `done` is told, on the writer's thread, once it is on the disk."""
        with self._guard:
            if len(self._waiting) >= _MOST_WAITING:
                self._lost[event.kind] += 1
                if done is None:
                    return
                event = event._replace(data={"shortened": "the queue was full"})
            self._waiting.append((event, done))
            self._idle.clear()
            self._start()
        self._wake.set()

    def write(self, event: AuditEvent) -> bool:
        """Record it now; False when that cannot be. What waits in the queue is older."""
        if self._thread is not None:
            self._finish()
        return self._append([event], sync=False) is None

    def count(self, event: AuditEvent, by: str) -> None:
        """Record the first of a minute, and then how many there were. `by` keeps apart whose."""
        key = (event.kind, event.profile, by)
        with self._guard:
            if key not in self._tallies and len(self._tallies) >= _MOST_COUNTED:
                key = (event.kind, event.profile, _OTHERS)
                event = event._replace(origin=_OTHERS)
            tally = self._tallies.get(key)
            if tally is not None:
                tally.more, tally.last = tally.more + 1, event.at
                return
            self._tallies[key] = _Tally(event, event.at + _WINDOW)
        self.put(event)

    def flush(self, seconds: float = 5.0) -> bool:
        """Wait until everything that was put is written, counts included."""
        with self._guard:
            for key in list(self._tallies):
                self._end_tally(key)
        return self._finish(seconds)

    def _finish(self, seconds: float = 5.0) -> bool:
        with self._guard:
            if self._thread is None:
                return True
            self._idle.clear()
        self._wake.set()
        return self._idle.wait(seconds)

    # ── the thread ──

    def _start(self) -> None:
        if self._thread is not None:
            return
        if not self._registered:
            atexit.register(self.flush)
            self._registered = True
        thread = threading.Thread(target=self._serve, name="audit", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or Python is about to end
            _log.error("The audit log cannot be written: %s.", error)
        else:
            self._thread = thread

    def _serve(self) -> None:
        pause = 0.0
        while True:
            woken = self._wake.wait(self._patience(pause))
            self._wake.clear()
            if not woken and self._rest():
                return
            try:
                pause = self._work(pause)
            except Exception:  # noqa: BLE001 - the supervisor: it goes on with the next records
                _log.exception("audit_broke_off")

    def _patience(self, pause: float) -> float | None:
        """How long to sleep where nobody wakes it."""
        if pause:
            return pause
        with self._guard:
            waits = [tally.until - time.time() for tally in self._tallies.values()]
        if self._unsynced:
            waits.append(self._unsynced - time.monotonic())
        return max(0.0, min(waits, default=_REST_AFTER))

    def _rest(self) -> bool:
        """End the thread where nothing is left to do; the next record starts another."""
        with self._guard:
            if self._waiting or self._tallies or self._lost or self._unsynced:
                return False
            self._thread = None
            if self._parts is not None:
                self._parts[0].close()
            return True

    def _work(self, pause: float) -> float:
        """Write what waits. Returns how long to wait before it is tried again; 0: it is done."""
        self._end_tallies()
        while True:
            with self._guard:
                batch = [self._waiting[i] for i in range(min(_BATCH, len(self._waiting)))]
                lost = sum(self._lost.values())
            if not batch and not lost:
                break
            durable = any(done is not None for _, done in batch)
            why = self._append([event for event, _ in batch], sync=durable)
            for _, done in batch:
                if done is not None:
                    done(why)
            with self._guard:
                for _ in batch:
                    self._waiting.popleft()
                if why is not None:
                    self._keep(batch)
            if why is not None:
                self._idle.set()
                return min(pause * 2 or _FIRST_PAUSE, _LONGEST_PAUSE)
        if self._unsynced and time.monotonic() >= self._unsynced:
            self._unsynced = 0.0
            self._opened()[0].sync()
        with self._guard:
            if not self._waiting:
                self._idle.set()
        return 0.0

    def _keep(self, batch: Sequence[tuple[AuditEvent, Done | None]]) -> None:
        """For another try; but not of a home that is gone, nor what is refused for this."""
        if not self.home.is_dir():
            self._waiting.clear()
            self._lost.clear()
            self._tallies.clear()
            return
        refused = self.on_failure == "refuse"
        kept = [(event, None) for event, done in batch if done is None or not refused]
        self._waiting.extendleft(reversed(kept))

    def _append(self, events: Sequence[AuditEvent], *, sync: bool) -> str | None:
        """Why it could not be written; None when it was."""
        files, mask = self._opened()
        lost = Counter(self._lost)
        entries = [_fields(event, mask) for event in events]
        if lost:
            why = self.fault or "too much at once"
            data = {"records": lost.total(), "kinds": dict(lost.most_common(20)), "why": why}
            entries.append({"at": _stamp(time.time()), "kind": "audit.lost", "data": data})
        try:
            files.append(entries, sync=sync)
        except OSError as error:
            why = error.strerror or str(error)
            if self.home.is_dir() and self.fault is None:
                _log.error("The audit log in %s cannot be written: %s.", self.home / "audit", why)
            self.fault = why
            return why
        with self._guard:
            self._lost -= lost
        if self.fault is not None:
            _log.warning("The audit log is written again.")
            self.fault = None
        self._unsynced = 0.0 if sync else self._unsynced or time.monotonic() + _SYNC_AFTER
        return None

    # ── counts ──

    def _end_tallies(self) -> None:
        now = time.time()
        with self._guard:
            for key in [key for key, tally in self._tallies.items() if tally.until <= now]:
                self._end_tally(key)

    def _end_tally(self, key: tuple[str, str, str]) -> None:
        tally = self._tallies.pop(key)
        if tally.more:
            data = {**tally.first.data, "times": tally.more, "last": _stamp(tally.last)}
            self._waiting.append((tally.first._replace(at=time.time(), data=data), None))

    # ── parts ──

    def _opened(self) -> tuple[AuditFiles, Mask]:
        """What writes and what strikes out secrets: loaded by whoever writes first."""
        if self._parts is None:
            from parley.audit.log_files import AuditFiles
            from parley.audit.masking import Mask

            self._parts = AuditFiles(self.home / "audit", self._limits), Mask(self.home)
        return self._parts

    def _limits(self) -> AuditLimits:
        from parley.audit.log_files import AuditLimits

        if self._kept is None:
            from parley.config.load import load_audit
            from parley.profiles import DEFAULT_PROFILE, Profile

            found = load_audit(Profile(DEFAULT_PROFILE, self.home))
            self._kept = found.keep_mb * 1024 * 1024, found.keep_days
        return AuditLimits(*self._kept)


def _fields(event: AuditEvent, mask: Mask) -> dict[str, Any]:
    named = {"profile": event.profile, "who": event.who, "from": event.origin}
    fields: dict[str, Any] = {name: value for name, value in named.items() if value}
    if event.data:
        fields["data"] = event.data
    plain = mask.plain(fields, event.home)
    return {"at": _stamp(event.at), "kind": event.kind, "pid": os.getpid(), **plain}


def _stamp(at: float) -> str:
    from parley.audit.log_files import stamp

    return stamp(at)
