"""One process serves a home at a time: its lock, and the note that says who holds it.

`lock` is held by whoever serves the home. A gateway holds `gateway.lock` as well, from before it
has the home: while somebody holds that one, no chat serves the home, and one that does hands over.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, TypeAlias

from parley.profiles import Profile
from parley.protocol import ParleyError

__all__ = [
    "Holder",
    "HomeInUse",
    "HomeLock",
    "Kind",
    "Silent",
    "gateway_of",
    "holder_of",
    "served_home",
    "socket_path",
]

Kind: TypeAlias = Literal["gateway", "chat", "profile"]
"""By which command a home is held."""

_LockName: TypeAlias = Literal["lock", "gateway.lock", "house.lock"]

_LONGEST_SOCKET_PATH = 100  # the kernel takes some 107 bytes
_ASKING_TAKES = 0.3
_HANDED_OVER_WITHIN = 15.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who serves a home."""

    pid: int
    kind: Kind


class Silent(ParleyError):
    """Whoever serves this home does not answer."""

    def __init__(self, home: Path, holder: Holder | None) -> None:
        who = f"process {holder.pid}" if holder else "a process"
        super().__init__(
            f"{home} is served by {who}, which does not answer; `parley doctor` says more."
        )


class HomeInUse(ParleyError):
    """Another process serves this home."""

    def __init__(self, home: Path, holder: Holder | None) -> None:
        who = (
            f"`parley {'gateway run' if holder.kind == 'gateway' else holder.kind}` "
            f"(process {holder.pid})"
            if holder
            else "another process"
        )
        then = (
            ", which does not hand it over; end it first."
            if holder and holder.kind == "chat"
            else "; stop it first, or use it as it is."
        )
        super().__init__(f"{home} is already served by {who}{then}")
        self.holder = holder


class HomeLock:
    """Held from `__enter__` to `__exit__`; let go by the system when the process dies.

    `house.lock` is held beside the locks of each home by who serves all of them.
    """

    def __init__(self, profile: Profile, kind: Kind, *, name: _LockName = "lock") -> None:
        self._profile = profile
        self._name = name
        self._kind: Kind = kind
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        run = self._profile.run
        try:
            if self._profile.is_default:  # a named one is made by `profile create` alone
                self._profile.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            run.mkdir(exist_ok=True, mode=0o700)
            handle = os.open(run / self._name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            file = os.fdopen(handle, "a+", encoding="utf-8")
        except OSError as error:
            raise ParleyError(
                f"{self._profile.home} cannot be used ({error.strerror or error}); "
                "check its permissions, or set PARLEY_HOME to a directory of yours."
            ) from error
        try:
            self._take(file)
        except HomeInUse:
            file.close()
            raise
        file.seek(0)
        file.truncate()
        file.write(json.dumps(asdict(Holder(os.getpid(), self._kind))))
        file.flush()
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()

    def _take(self, file: IO[str]) -> None:
        run_file = self._profile.run / self._name
        deadline = time.monotonic() + _ASKING_TAKES
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = _holder(run_file)
                # Nobody by name: someone who only asks who it is holds the lock for a moment.
                if holder is not None or time.monotonic() > deadline:
                    raise HomeInUse(self._profile.home, holder) from error
                time.sleep(0.01)
            else:
                return


@asynccontextmanager
async def served_home(profile: Profile, kind: Kind) -> AsyncIterator[None]:
    """Hold the home while it is served. A gateway waits for a chat that has it to hand it over."""
    with ExitStack() as held:
        if kind == "gateway":
            held.enter_context(HomeLock(profile, kind, name="gateway.lock"))
            await _handed_over(held, HomeLock(profile, kind))
        else:
            held.enter_context(HomeLock(profile, kind))
            # Asked after it is held: a gateway that starts from here on finds it held, and waits.
            if (gateway := gateway_of(profile)) is not None:
                raise HomeInUse(profile.home, gateway)
        yield


async def _handed_over(held: ExitStack, lock: HomeLock) -> None:
    deadline = time.monotonic() + _HANDED_OVER_WITHIN
    while True:
        try:
            held.enter_context(lock)
        except HomeInUse as error:
            has_chat = error.holder is None or error.holder.kind == "chat"
            if not has_chat or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)
        else:
            return


def gateway_of(profile: Profile) -> Holder | None:
    """The gateway that serves the home, or waits for it."""
    return _holder(profile.run / "gateway.lock")


def holder_of(profile: Profile) -> Holder | None:
    """Who holds the home now, if anyone."""
    return _holder(profile.run / "lock")


def _holder(lock: Path) -> Holder | None:
    try:
        with lock.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                record = json.loads(file.read() or "{}")
                return Holder(record["pid"], record["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def socket_path(profile: Profile) -> Path:
    """Where the local socket is: in the home, or under a short name when that is too long."""
    inside = profile.run / "parley.sock"
    if len(os.fsencode(inside)) <= _LONGEST_SOCKET_PATH:
        return inside
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"parley-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise ParleyError(f"{folder} is not private to you; remove it and start again.")
    name = hashlib.sha256(os.fsencode(inside)).hexdigest()[:24]
    return folder / f"{name}.sock"
