"""The keeper of one command: starts it, keeps the end of what it prints, and tells how it ended.

A program of its own, of the standard library alone: `python -I -S -u keeper.py <folder>`. It goes
on when the gateway is gone. In its folder:

- `launch`: what to run; removed as soon as it is read.
- `keeper.json`: who keeps it. It is made before anything runs, by whoever is first: the keeper,
  or a gateway that rules that nothing shall run here any more.
- `output`: a ring, see `parley.agent.processes.ring`.
- `input`: a pipe; a frame is two bytes of length and that much text, a length of 0 is the end.
- `exit.json`: how it ended; there only when all of its processes are gone.
- `home`, `scratch`: without a sandbox, its empty home and what it may leave until its end.

SIGTERM ends the command and all that it started.
"""

# `pathlib` and `contextlib` cost more to import than they save here.
# ruff: noqa: PTH100, PTH104, PTH106, PTH108, PTH120, PTH123, PTH208, SIM105, S606

from __future__ import annotations

import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import signal
import struct
import sys
import termios
import time

# `json` and `typing` would take longer to import than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from parley.agent.processes.disk_watch import DiskWatch
    from parley.agent.processes.memory_watch import MemoryWatch

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL |= {"armv7l": 311, "armv6l": 311, "i686": 288, "i386": 288}
_KEYCTL_JOIN_SESSION_KEYRING = 1
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_SCOPE_ABSTRACT_SOCKETS = 1
_F_SETPIPE_SZ = 1031
_CHUNK = 256 * 1024
_MOST_PENDING = 64 * 1024
_LOOK_SECONDS = 0.1
_NICE = 5
_SCAN_SECONDS = 1.0
_GRACE_SECONDS = 2.0
_DRAIN_SECONDS = 2.0
_TASKS_TO_SPARE = 1024
_FIRST_TO_GO = "800"
_HEADER = struct.Struct("<QQ")


def main(folder: str) -> None:
    _close_inherited()
    os.chdir(folder)
    os.umask(0o077)
    if os.getpid() != os.getsid(0):
        os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _on_term)
    started_at = time.time()
    pid = os.getpid()
    if not _claim({"pid": pid, "start": _start_of(pid), "boot": _boot(), "at": started_at}):
        return
    with open("launch", "rb") as file:
        launch = marshal.load(file)  # noqa: S302 - the gateway of this very Python wrote it
    os.unlink("launch")
    _Keeper(launch, started_at).run()


_asked_to_end: list[int] = []


def _on_term(number: int, frame: object) -> None:
    _asked_to_end.append(number)


class _Ring:
    """The last bytes of an endless text. The header says what is written, and what is about to."""

    def __init__(self, size: int) -> None:
        self.total = 0
        self._size = size
        self._file = os.open("output", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.pwrite(self._file, _HEADER.pack(0, 0), 0)

    def add(self, data: bytes) -> None:
        try:
            self._put(data, self.total + len(data))
        except OSError:
            pass  # the disk is full: the command goes on, what it prints is lost
        self.total += len(data)

    def close(self) -> None:
        os.close(self._file)

    def _put(self, data: bytes, end: int) -> None:
        os.pwrite(self._file, _HEADER.pack(self.total, end), 0)
        kept = data[-self._size :]
        place = (end - len(kept)) % self._size
        first = kept[: self._size - place]
        os.pwrite(self._file, first, _HEADER.size + place)
        if len(first) < len(kept):
            os.pwrite(self._file, kept[len(first) :], _HEADER.size)
        os.pwrite(self._file, _HEADER.pack(end, end), 0)


class _Keeper:
    def __init__(self, launch: dict[str, Any], started_at: float) -> None:
        self._launch = launch
        self._started_at = started_at
        self._ring = _Ring(launch["output_bytes"])
        self._limit: int = launch["processes"]
        self._wrapped: bool = launch["wrapped"]
        self._reason: str | None = None
        self._status: int | None = None
        self._deadline: float | None = None
        self._kill_at: float | None = None
        self._tasks_seen = 0
        self._scan_at = 0.0
        self._count = 0
        self._watch_at = 0.0
        self._memory: MemoryWatch | None = None
        self._disk: DiskWatch | None = None
        self._disk_is_next = False
        self._frames = b""
        self._pending = b""
        self._close_input = False

    def run(self) -> None:
        wake, wake_write = os.pipe()
        for end in (wake, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _on_child)
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        os.mkfifo("input.new", 0o600)
        self._input = os.open("input.new", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename("input.new", "input")
        if not self._wrapped:  # what others hold in memory is known before it begins
            self._memory = self._watch_memory()
        try:
            self._start()
        except OSError as error:
            self._ring.add(f"{error.strerror or error}\n".encode())
            self._finish("not started")
            return
        self._watch_at = time.monotonic() + _LOOK_SECONDS
        if self._launch["timeout"] is not None:
            self._deadline = time.monotonic() + self._launch["timeout"]
        try:
            while self._status is None:
                self._wait(wake)
                self._reap()
                self._look()
        finally:
            _end_all(self._child, wrapped=self._wrapped)
        self._drain()
        self._finish(self._reason)

    # ── the command ───────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._pty: bool = self._launch["pty"]
        if self._pty:
            mine, theirs = os.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
            self._out, self._in, given = mine, os.dup(mine), (theirs, theirs)
        else:
            out, out_theirs = os.pipe()
            in_theirs, into = os.pipe()
            try:
                fcntl.fcntl(out, _F_SETPIPE_SZ, _CHUNK)
            except OSError:
                pass  # the usual size is slower, that is all
            self._out, self._in, given = out, into, (in_theirs, out_theirs)
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        fault, fault_theirs = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            self._become(given, fault_theirs)
        for end in {*given, fault_theirs}:
            os.close(end)
        said = os.read(fault, 8)
        os.close(fault)
        if said:
            os.waitpid(self._child, 0)
            number = int(said)
            raise OSError(number, os.strerror(number))

    def _become(self, given: tuple[int, int], fault: int) -> None:
        """In the child: fewer rights, then the command."""
        try:
            os.setsid()
            os.nice(_NICE)
            source, sink = given
            if self._pty:
                fcntl.ioctl(sink, termios.TIOCSCTTY, 0)
            for number, end in enumerate((source, sink, sink)):
                os.dup2(end, number)
            for name in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGXFSZ):
                signal.signal(name, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir(self._launch["cwd"])
            self._set_limits()
            _give_way_when_memory_is_short()
            _leave_keyring()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _prctl(_PR_SET_NO_NEW_PRIVS, 1)
            if self._launch["scoped"]:
                _bar_sockets_of_others()
            argv = self._launch["argv"]
            os.execve(argv[0], argv, self._launch["environment"])
        except OSError as error:
            os.write(fault, str(error.errno or errno.EIO).encode())
        finally:
            os._exit(127)

    def _set_limits(self) -> None:
        wanted = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: self._launch["file_bytes"],
            resource.RLIMIT_AS: self._launch["memory_bytes"],
            resource.RLIMIT_NOFILE: 1024,
            # What counts are the tasks of the user, threads too; ours are watched besides.
            resource.RLIMIT_NPROC: _tasks_of_user() + self._limit + _TASKS_TO_SPARE,
        }
        for name, most in wanted.items():
            hard = resource.getrlimit(name)[1]
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(name, (limit, limit))

    # ── its life ──────────────────────────────────────────────────────────────────────────────

    def _wait(self, wake: int) -> None:
        readable = [wake]
        if self._out >= 0:
            readable.append(self._out)
        if len(self._pending) < _MOST_PENDING and not self._close_input:
            readable.append(self._input)
        writable = [self._in] if self._pending and self._in >= 0 else []
        pause = 0.01 if self._count * 2 > self._limit else self._pause()
        ready, ready_to_write, _ = select.select(readable, writable, [], pause)
        if wake in ready:
            os.read(wake, 4096)
        if self._out in ready:
            self._read_output()
        if self._input in ready:
            self._read_input()
        if ready_to_write or self._close_input:
            self._write_input()

    def _read_output(self) -> bool:
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody holds any more
            data = b""
        if data:
            self._ring.add(data)
            return True
        os.close(self._out)
        self._out = -1
        return False

    def _read_input(self) -> None:
        try:
            self._frames += os.read(self._input, _MOST_PENDING)
        except BlockingIOError:
            return
        while len(self._frames) >= 2:
            length = int.from_bytes(self._frames[:2], "little")
            if len(self._frames) < 2 + length:
                break
            text, self._frames = self._frames[2 : 2 + length], self._frames[2 + length :]
            if text:
                self._pending += text
            elif self._pty:
                self._pending += b"\x04"
            else:
                self._close_input = True

    def _write_input(self) -> None:
        if self._pending and self._in >= 0:
            try:
                self._pending = self._pending[os.write(self._in, self._pending) :]
            except BlockingIOError:
                return
            except OSError:  # it closed its end
                self._pending, self._close_input = b"", True
        if self._close_input and not self._pending and self._in >= 0:
            os.close(self._in)
            self._in = -1

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._status = os.waitstatus_to_exitcode(status)

    def _look(self) -> None:
        """What must end now, and why."""
        if self._status is not None:
            return
        now = time.monotonic()
        if self._reason is None:
            if _asked_to_end:
                self._end_soon("killed", now)
            elif self._deadline is not None and now >= self._deadline:
                self._end_soon("timeout", now)
        if self._kill_at is not None and now >= self._kill_at:
            _kill(self._child)
        if self._has_too_many():
            self._end_now("too many processes")
        elif now >= self._watch_at:
            reason = self._too_much()
            self._watch_at = now + self._pause()
            if reason is not None:
                self._end_now(reason)

    def _end_now(self, reason: str) -> None:
        self._reason = reason
        self._status = -signal.SIGKILL

    def _pause(self) -> float:
        """What is left to look at, and a count of files under way, go on at once."""
        counts = self._disk is not None and self._disk.is_counting
        return 0.0 if counts or self._disk_is_next else _LOOK_SECONDS

    def _too_much(self) -> str | None:
        """Why it must end for what it takes of the machine.

        One thing at a time: who forks without end must not have long until the next count.
        """
        if self._disk_is_next:
            self._disk_is_next = False
            if self._disk is None:
                self._disk = self._watch_disk()
            return self._disk.look(self._some_descendants)
        self._disk_is_next = self._launch["disk"] is not None
        if self._memory is None:
            self._memory = self._watch_memory()
        return self._memory.look(self._some_descendants)

    def _some_descendants(self) -> set[int]:
        """No more than there may be: for more of them it is ended anyway."""
        return _descendants(most=self._limit + 1)

    def _watch_memory(self) -> MemoryWatch:
        """Loaded when the command has run for a moment: most are over by then."""
        watch: MemoryWatch = _beside_us("memory_watch").MemoryWatch(
            self._launch["memory_bytes"], wrapped=self._wrapped
        )
        return watch

    def _watch_disk(self) -> DiskWatch:
        scratch = None if self._wrapped else os.path.abspath("scratch")
        watch: DiskWatch = _beside_us("disk_watch").DiskWatch(self._launch["disk"], scratch)
        return watch

    def _end_soon(self, reason: str, now: float) -> None:
        self._reason = reason
        self._kill_at = now + _GRACE_SECONDS
        spared = {self._child, *_children_of(self._child)} if self._wrapped else set()

        def ask(pid: int, ours: set[int]) -> None:
            if pid not in spared:
                _signal_ours(pid, ours, signal.SIGTERM, signal.SIGCONT)

        _descendants(ask)

    def _has_too_many(self) -> bool:
        """Cheap while the machine as a whole has no more tasks than a moment ago."""
        tasks, now = _tasks_of_machine(), time.monotonic()
        few = self._count * 2 <= self._limit and now < self._scan_at
        if few and tasks is not None and tasks - self._tasks_seen <= self._limit // 4:
            self._tasks_seen = min(tasks, self._tasks_seen)
            return False
        self._tasks_seen, self._scan_at = tasks or 0, now + _SCAN_SECONDS
        self._count = len(self._some_descendants())
        return self._count > self._limit

    # ── its end ───────────────────────────────────────────────────────────────────────────────

    def _drain(self) -> None:
        """What was printed last; nobody can add to it any more."""
        until = time.monotonic() + _DRAIN_SECONDS
        while self._out >= 0 and time.monotonic() < until and self._read_output():
            pass

    def _finish(self, reason: str | None) -> None:
        status = self._status
        if status != 0 and reason is None and self._launch["note"]:
            self._ring.add(self._launch["note"].encode())
        told: dict[str, int | float | str | None] = {
            "code": status if status is not None and status >= 0 else None,
            "signal": -status if status is not None and status < 0 else None,
            "reason": reason,
            "started_at": self._started_at,
            "ended_at": time.time(),
            "bytes": self._ring.total,
        }
        os.unlink("input")
        _remove("scratch")
        _write("exit.json.new", told)
        os.rename("exit.json.new", "exit.json")


def _beside_us(module: str) -> Any:
    """A module of our own folder: what this Python has installed is not there."""
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:
        sys.path.append(here)
    return __import__(module)


# ── files ─────────────────────────────────────────────────────────────────────────────────────


def _close_inherited() -> None:
    """Files that the gateway was started with, and through them a command, are not ours."""
    try:
        names = os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")
    except OSError:
        os.closerange(3, 65536)
        return
    for number in map(int, names):
        if number > 2:
            os.closerange(number, number + 1)  # also when it is closed, as that of the listing is


def _claim(told: dict[str, int | float | str | None]) -> bool:
    name = f"keeper.json.{os.getpid()}"
    _write(name, told)
    try:
        os.link(name, "keeper.json")
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True


def _remove(path: str) -> None:
    """A folder with all that is in it, as far as that can be."""
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _remove(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        pass  # it is gone with the rest of our folder


def _write(name: str, told: dict[str, int | float | str | None]) -> None:
    """As JSON; the texts are plain words of ours."""
    values = {
        name: "null" if value is None else f'"{value}"' if isinstance(value, str) else repr(value)
        for name, value in told.items()
    }
    with open(name, "w", encoding="ascii") as file:
        file.write("{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}")


# ── processes ─────────────────────────────────────────────────────────────────────────────────


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _give_way_when_memory_is_short() -> None:
    """The kernel ends a command before it ends the gateway or anyone else."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(_FIRST_TO_GO)
    except OSError:
        pass


def _leave_keyring() -> None:
    """The kernel keeps keys for a login, and no namespace hides them: go on with none."""
    number = _KEYCTL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is not None:
        ctypes.CDLL(None, use_errno=True).syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def _bar_sockets_of_others() -> None:
    """Those that have a name and no path, by Landlock. Raises `OSError` when they stay open."""
    libc = ctypes.CDLL(None, use_errno=True)
    rules = struct.pack("=QQQ", 0, 0, _SCOPE_ABSTRACT_SOCKETS)
    ruleset = libc.syscall(_LANDLOCK_CREATE, rules, len(rules), 0)
    if ruleset < 0 or libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno() or errno.EPERM, "no Landlock")
    os.close(ruleset)


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _on_child(number: int, frame: object) -> None:
    """Only to be woken."""


def _end_all(group: int, *, wrapped: bool) -> None:
    """Kill all that is below us, however fast it grows, and see it gone."""
    _kill_group(group)
    # In a sandbox the kernel ends all of them with the first one, which goes with its group.
    began = time.monotonic()
    look_at = began + 2.0 if wrapped else began
    while _reap_all() and time.monotonic() < began + 20.0:
        if time.monotonic() >= look_at:
            halted = _halt_all()
            groups = set()
            for pid in halted:
                try:
                    groups.add(os.getpgid(pid))
                except ProcessLookupError:
                    pass
            for found in groups - {os.getpgrp()}:
                _kill_group(found)
            for pid in halted:
                _kill(pid)
        time.sleep(0.001)


def _kill_group(group: int) -> None:
    """A whole group dies at once, also while it forks."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _reap_all() -> bool:
    """Whether there is still somebody."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _halt_all() -> set[int]:
    """Who is halted has no more children and keeps its pid, so that each is looked at once."""
    halted: set[int] = set()

    def halt(pid: int, ours: set[int]) -> None:
        if _signal_ours(pid, ours, signal.SIGSTOP):
            halted.add(pid)

    _descendants(halt)
    return halted


def _signal_ours(pid: int, ours: set[int], *numbers: int) -> bool:
    """Whether it was signalled: not where the pid has become that of a process of others.

    A command that forks without end uses up all pids in seconds: the one that was listed may be
    gone, and its pid with someone else. A handle stays with the process it was opened for.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _parent_of(pid) not in ours:
            return False
        for number in numbers:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _descendants(
    visit: Callable[[int, set[int]], None] | None = None, *, most: int | None = None
) -> set[int]:
    """All below us, zombies too; whoever lost a parent has become our child.

    `visit` is called with each and with those that its parent is one of. With `most` it ends
    after so many: of those that fork without end there are always more.
    """
    found: set[int] = set()
    ours = {os.getpid()}
    left = _children_of(os.getpid())
    while left and (most is None or len(found) < most):
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            if visit is not None:
                visit(pid, ours)
            if _parent_of(pid) in ours:
                ours.add(pid)
                left |= _children_of(pid)
    return found


def _children_of(pid: int) -> set[int]:
    found: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found.update(map(int, file.read().split()))
    except OSError:
        pass  # it ended while we looked
    return found


def _tasks_of_machine() -> int | None:
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].split("/")[1])
    except (OSError, ValueError, IndexError):
        return None


def _tasks_of_user() -> int:
    """How many processes there are already; as good as a count of ours."""
    try:
        return sum(name.isdigit() for name in os.listdir("/proc"))
    except OSError:
        return 0


def _parent_of(pid: int) -> int | None:
    return _stat_of(pid, 1)


def _start_of(pid: int) -> int | None:
    """When it began, in ticks since the machine did: a pid alone may mean another."""
    return _stat_of(pid, 19)


def _stat_of(pid: int, field: int) -> int | None:
    """A number of its `stat`, counted from what stands behind its name."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return None


def _boot() -> str | None:
    """Which life of the machine this is: ticks begin anew in the next."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    finally:
        os._exit(0)
