"""Items of responses and conversations, in the store on SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, Literal
from uuid import uuid4

from parley.storage.items import ItemBody, ItemPage, ResponseItems, instructs
from parley.storage.sqlite import rows
from parley.storage.sqlite.engine import Engine
from parley.storage.sqlite.queries import SQL

__all__ = ["SqliteItems", "add_items", "keep_items", "remove_items"]

_FIRST: Final = 0
_BEYOND: Final = 2**62
_PARENTS: Final = {"response": "given", "conversation": "of_conversation"}


class SqliteItems:
    """The part of `SqliteStore` that keeps items."""

    _engine: Engine

    async def find_items(self, owner: str, ids: Sequence[str]) -> dict[str, ItemBody]:
        values = {"owner": owner, "ids": json.dumps(list(ids))}
        return await self._engine.read(
            lambda db: {
                row["id"]: json.loads(row["body"]) for row in db.execute(SQL["items_by_id"], values)
            }
        )

    async def page_of_items(
        self,
        of: Literal["response", "conversation"],
        id: str,
        *,
        limit: int,
        newest_first: bool,
        after: str | None = None,
    ) -> ItemPage | None:
        return await self._engine.read(
            lambda db: _page(
                db, _PARENTS[of], id, limit=limit, newest_first=newest_first, after=after
            )
        )


def _page(
    db: sqlite3.Connection,
    which: str,
    parent: str,
    *,
    limit: int,
    newest_first: bool,
    after: str | None,
) -> ItemPage | None:
    start = _BEYOND if newest_first else _FIRST
    if after is not None:
        found = db.execute(SQL[f"item_{which}"], {"id": after, "parent": parent}).fetchone()
        if found is None:
            return None
        start = found["number"]
    query = f"items_{which}_backwards" if newest_first else f"items_{which}"
    values = {"parent": parent, "after": start, "limit": limit + 1}
    read = [json.loads(row["body"]) for row in db.execute(SQL[query], values)]
    return ItemPage(tuple(read[:limit]), more=len(read) > limit)


def add_items(
    db: sqlite3.Connection,
    items: Iterable[ItemBody],
    *,
    owner: str,
    request: str | None = None,
    conversation: str | None = None,
    output: bool = False,
) -> None:
    """An id names one item of a conversation: what is told there once more gets a new one."""
    for given in items:
        item = given
        if conversation is not None and _is_in(db, conversation, given["id"]):
            item = {**given, "id": f"{given['id'].partition('_')[0]}_{uuid4().hex}"}
        values = {
            "id": item["id"],
            "owner": owner,
            "request": request,
            "conversation": conversation,
            "output": output,
            "instructs": instructs(item),
            "body": rows.dump(item),
        }
        db.execute(SQL["item_add"], values)


def _is_in(db: sqlite3.Connection, conversation: str, id: str) -> bool:
    values = {"parent": conversation, "id": id}
    return db.execute(SQL["item_of_conversation"], values).fetchone() is not None


def keep_items(db: sqlite3.Connection, request: str, kept: ResponseItems) -> None:
    """What a response was given comes before what it answered."""
    if not kept.stored and kept.conversation is None:
        return
    parent = request if kept.stored else None
    for items, output in ((kept.given, False), (kept.answered, True)):
        add_items(
            db,
            items,
            owner=kept.owner,
            request=parent,
            conversation=kept.conversation,
            output=output,
        )


def remove_items(db: sqlite3.Connection, request: str) -> None:
    """Of a response that goes; what a conversation has stays there."""
    db.execute(SQL["items_let_go"], {"id": request})
    db.execute(SQL["items_remove"], {"id": request})
