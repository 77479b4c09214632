"""One SQLite file, used from an event loop: a writer thread with group commit, and a reader.

Writes are functions of a connection. The writer takes all that wait, runs each in a savepoint and
commits once, so a disk flush is shared by everyone who waited for it. A caller is told after the
commit, never before.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from parley.storage.contract import StoreClosed, StoreError, StoreUnavailable

__all__ = ["Engine", "connect"]

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

_GROUP = 256
_PASSING = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
    }
)


def connect(file: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with our pragmas; transactions are begun by hand."""
    uri = f"{file.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA busy_timeout = 10000")
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            # What a person deletes is gone from the file, not only from the tables.
            connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA cache_size = -4000")
    except sqlite3.Error as error:
        raise StoreError(f"The database {file} cannot be opened: {error}.") from error
    return connection


class _Job:
    __slots__ = ("error", "future", "operation", "result")

    def __init__(self, operation: Operation[Any], future: asyncio.Future[Any]) -> None:
        self.operation = operation
        self.future = future
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Worker(threading.Thread):
    """A thread that owns one connection and serves jobs until it is told to end.

    `writes` is the file it writes to; without one it only reads.
    """

    def __init__(self, name: str, connection: sqlite3.Connection, *, writes: Path | None) -> None:
        super().__init__(name=name, daemon=True)
        self._connection = connection
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._file = writes
        self._identity = _identity(writes) if writes else None
        self._serve = self._write_group if writes else self._read_group
        self._closed = False

    def submit(self, operation: Operation[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreClosed("The database is closed.")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(operation, future))
        return future

    def end(self) -> None:
        self._closed = True
        self._jobs.put(None)

    def run(self) -> None:
        ended = False
        while not ended:
            first = self._jobs.get()
            group: list[_Job] = []
            while first is not None:
                group.append(first)
                if len(group) == _GROUP:
                    break
                try:
                    first = self._jobs.get_nowait()
                except queue.Empty:
                    break
            else:
                ended = True
            if group:
                self._serve(group)
                self._settle(group)
        self._connection.close()

    def _settle(self, group: list[_Job]) -> None:
        def settle() -> None:
            for job in group:
                job.settle()

        try:
            group[0].future.get_loop().call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is gone, and with it everyone who waited
            return

    def _read_group(self, group: list[_Job]) -> None:
        for job in group:
            try:
                job.result = job.operation(self._connection)
            except Exception as error:  # noqa: BLE001 - supervisor: it belongs to the caller
                job.error = _told(error)

    def _write_group(self, group: list[_Job]) -> None:
        connection = self._connection
        if self._file is not None and _identity(self._file) != self._identity:
            # SQLite would go on writing into a file that has no name and goes with this process.
            gone = StoreUnavailable(
                f"The database {self._file} was removed or replaced while Parley ran; "
                "put it back, or start Parley again."
            )
            for job in group:
                job.error = gone
            return
        try:
            connection.execute("BEGIN IMMEDIATE")
            for job in group:
                connection.execute("SAVEPOINT job")
                try:
                    job.result = job.operation(connection)
                except Exception as error:
                    if not connection.in_transaction:
                        raise  # on a full disk SQLite takes the whole group back by itself
                    job.error = _told(error)
                    connection.execute("ROLLBACK TO job")
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            failure = _fault(error)
            for job in group:
                job.error = failure
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _told(error: Exception) -> Exception:
    """A fault of the disk or the file, as the contract names it; a fault of ours as it is."""
    return _fault(error) if isinstance(error, sqlite3.OperationalError) else error


def _fault(error: sqlite3.Error) -> StoreError:
    # The lowest byte is the kind of the fault; the rest says more of it.
    passing = getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING
    kind = StoreUnavailable if passing else StoreError
    fault = kind(f"The database cannot be used: {error}.")
    fault.__cause__ = error
    return fault


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Engine:
    """The two threads of one database file."""

    def __init__(self, file: Path) -> None:
        self._writer = _Worker("parley-writer", connect(file), writes=file)
        self._reader = _Worker("parley-reader", connect(file, read_only=True), writes=None)
        self._writer.start()
        self._reader.start()

    def write(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run in the next group; done when it is committed. Order of calls is kept."""
        return self._writer.submit(operation)

    def read(self, operation: Operation[T]) -> asyncio.Future[T]:
        return self._reader.submit(operation)

    async def close(self) -> None:
        """End both threads when what was asked is done."""
        # The writer last: whoever closes last folds the log into the file, and only it may write.
        for worker in (self._reader, self._writer):
            worker.end()
            await asyncio.to_thread(worker.join)
