"""Items one by one: those that a request names, and pages of those that are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from parley.storage.items import ItemBody, ItemPage, ItemStore
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.wire.items import is_reference

if TYPE_CHECKING:
    from aiohttp import web

__all__ = [
    "PageAsked",
    "limit_asked",
    "no_such_after",
    "page_asked",
    "query_flag",
    "query_number",
    "resolve_references",
]

_MOST: Final = 100
_USUAL: Final = 20


async def resolve_references(
    rows: ItemStore, owner: str, body: Mapping[str, Any], *, field: str = "input"
) -> dict[str, Any]:
    """The body with the items themselves in the place of what only names them."""
    given = body.get(field)
    named = [item["id"] for item in given if is_reference(item)] if isinstance(given, list) else []
    if not isinstance(given, list) or not named:
        return dict(body)
    found = await rows.find_items(owner, list(dict.fromkeys(named)))
    for index, item in enumerate(given):
        if is_reference(item) and item["id"] not in found:
            raise ApiError.not_found(
                f"`{field}[{index}]`: there is no item of this id for this key. Items are kept "
                "with responses that are stored.",
                param=f"{field}[{index}].id",
                code="item_not_found",
            )
    whole = [found[item["id"]] if is_reference(item) else item for item in given]
    return {**body, field: whole}


@dataclass(frozen=True, slots=True)
class PageAsked:
    """Which part of a list is wanted."""

    limit: int
    newest_first: bool
    after: str | None

    def of(self, items: Sequence[ItemBody]) -> ItemPage | None:
        """That part of items that are at hand, the oldest first; None without an item `after`."""
        ordered = list(reversed(items)) if self.newest_first else list(items)
        start = 0
        if self.after is not None:
            ids = [item["id"] for item in ordered]
            if self.after not in ids:
                return None
            start = ids.index(self.after) + 1
        part = ordered[start : start + self.limit]
        return ItemPage(tuple(part), more=len(ordered) > start + self.limit)


def page_asked(request: web.Request) -> PageAsked:
    """`limit`, `order` and `after`, as OpenAI's lists take them."""
    limit = limit_asked(request)
    order = request.query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise ApiError.bad_request("`order` must be asc or desc.", param="order")
    after = request.query.get("after") or None
    return PageAsked(limit, order == "desc", after)


def limit_asked(request: web.Request) -> int:
    limit = query_number(request, "limit")
    if limit is None:
        return _USUAL
    if not 1 <= limit <= _MOST:
        raise ApiError.bad_request(f"`limit` must be from 1 to {_MOST}.", param="limit")
    return limit


def no_such_after() -> ApiError:
    return ApiError.not_found("There is no item of this id in the list.", param="after")


def query_number(request: web.Request, name: str) -> int | None:
    given = request.query.get(name)
    if given is None:
        return None
    if not given.isascii() or not given.isdecimal() or len(given) > 15:
        raise ApiError.bad_request(f"`{name}` must be a whole number.", param=name)
    return int(given)


def query_flag(request: web.Request, name: str) -> bool:
    given = request.query.get(name, "false").lower()
    if given not in {"true", "false", "1", "0"}:
        raise ApiError.bad_request(f"`{name}` must be true or false.", param=name)
    return given in {"true", "1"}
