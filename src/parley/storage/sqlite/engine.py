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
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from parley.storage.contract import StoreClosed, StoreError, StoreUnavailable
from parley.storage.sqlite.names import renamed

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
        # Measured: more is no faster, for the system keeps the file in memory too.
        connection.execute("PRAGMA cache_size = -1000")
        connection.create_function("renamed", 2, renamed, deterministic=True)
    except sqlite3.Error as error:
        raise StoreError(f"The database {file} cannot be opened: {error}.") from error
    return connection


class _KnownFile:
    """The file as it was found when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = self._look()

    def check(self) -> None:
        """Raise unless it is still there.

        SQLite would go on writing into a file that has no name and goes with this process.
        """
        if self._look() != self._identity:
            raise StoreUnavailable(
                f"The database {self.path} was removed or replaced while Parley ran; "
                "put it back, or start Parley again."
            )

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


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
    """A thread that serves jobs on a connection of its own until it is told to end."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()

    def submit(self, operation: Operation[T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(operation, future))
        return future

    def end(self) -> None:
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
                self.serve(group)
                self._settle(group)
        self.over()

    @abstractmethod
    def serve(self, group: list[_Job]) -> None:
        """Do what these jobs ask; each has its result or its error afterwards."""

    @abstractmethod
    def over(self) -> None:
        """Nothing more will be asked."""

    def _settle(self, group: list[_Job]) -> None:
        def settle() -> None:
            for job in group:
                job.settle()

        try:
            group[0].future.get_loop().call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is gone, and with it everyone who waited
            return


class _Reader(_Worker):
    """Reads; the file is opened for the first of them."""

    def __init__(self, file: _KnownFile, name: str = "parley-reader") -> None:
        super().__init__(name)
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def serve(self, group: list[_Job]) -> None:
        for job in group:
            try:
                if self._connection is None:
                    self._file.check()
                    self._connection = connect(self._file.path, read_only=True)
                job.result = job.operation(self._connection)
            except Exception as error:  # noqa: BLE001 - supervisor: it belongs to the caller
                job.error = _told(error)

    def over(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Writer(_Worker):
    """Writes, one commit for all that wait."""

    def __init__(self, file: _KnownFile, connection: sqlite3.Connection) -> None:
        super().__init__("parley-writer")
        self.fault: str | None = None
        self._file = file
        self._connection = connection

    def over(self) -> None:
        self._connection.close()

    def serve(self, group: list[_Job]) -> None:
        connection = self._connection
        before = connection.total_changes
        try:
            self._file.check()
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
        except (sqlite3.Error, StoreUnavailable) as error:
            self._fail(group, _fault(error) if isinstance(error, sqlite3.Error) else error)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return
        passing = [job.error for job in group if isinstance(job.error, StoreUnavailable)]
        if passing:
            self.fault = str(passing[-1])
        elif connection.total_changes != before:
            self.fault = None

    def _fail(self, group: list[_Job], error: StoreError) -> None:
        self.fault = str(error)
        for job in group:
            job.error = error


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


class Engine:
    """The threads of one database file, each begun when it is first asked."""

    def __init__(self, file: Path, connection: sqlite3.Connection | None = None) -> None:
        """`connection`, when there is one already, becomes the writer's."""
        connection = connection or connect(file)
        known = _KnownFile(file)
        self._writer = _Writer(known, connection)
        self._reader = _Reader(known)
        self._searcher = _Reader(known, "parley-searcher")
        self._closed = False

    @property
    def fault(self) -> str | None:
        """Why the last write failed, until one works again."""
        return self._writer.fault

    def write(self, operation: Operation[T]) -> asyncio.Future[T]:
        """Run in the next group; done when it is committed. Order of calls is kept."""
        return self._ask(self._writer, operation)

    def read(self, operation: Operation[T]) -> asyncio.Future[T]:
        return self._ask(self._reader, operation)

    def search(self, operation: Operation[T]) -> asyncio.Future[T]:
        """A read that may take long: no turn waits behind it."""
        return self._ask(self._searcher, operation)

    def glance(self, operation: Operation[T]) -> asyncio.Future[T]:
        """A small read, which alone is not worth a reader's thread and connection."""
        return self._ask(self._writer if self._reader.ident is None else self._reader, operation)

    def _ask(self, worker: _Worker, operation: Operation[T]) -> asyncio.Future[T]:
        if self._closed:
            raise StoreClosed("The database is closed.")
        if worker.ident is None:
            worker.start()
        return worker.submit(operation)

    async def close(self) -> None:
        """End both threads when what was asked is done."""
        self._closed = True
        # The writer last: whoever closes last folds the log into the file, and only it may write.
        for worker in (self._searcher, self._reader, self._writer):
            if worker.ident is None:
                worker.over()
            else:
                worker.end()
                await asyncio.to_thread(worker.join)
