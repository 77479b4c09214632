"""The store on SQLite: one file, one writer thread, no server."""

from parley.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
