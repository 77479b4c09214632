"""The body of a request: only so large, only so slow, and one JSON object."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any, Final

from parley.surfaces.api.errors import ApiError, ClientGone

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["parse_object", "read_body", "read_json"]

_BYTES_PER_SECOND: Final = 16 * 1024
"""What a body must bring once its time is over."""
_DEEPEST: Final = 128
_LARGE: Final = 256 * 1024
_MOST_VALUES: Final = 200_000


async def read_body(request: web.Request, *, most: int, seconds: float) -> bytes:
    """All of it. After `seconds` it may go on only while it comes at 16 KiB a second."""
    from aiohttp import web

    if request.content_length is not None and request.content_length > most:
        raise _too_large(most)
    pieces: list[bytes] = []
    size = 0
    start = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout_at(start + seconds) as clock:
            while piece := await request.content.readany():
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise _too_large(most)
                clock.reschedule(start + seconds + size / _BYTES_PER_SECOND)
    except TimeoutError as error:
        raise ApiError.too_slow("The body of the request did not come in time.") from error
    except ConnectionError as error:
        raise ClientGone("The client left before its request was complete.") from error
    except web.RequestPayloadError as error:
        raise ApiError.bad_request("The body is not as its headers say.") from error
    return b"".join(pieces)


async def read_json(request: web.Request, *, most: int, seconds: float) -> dict[str, Any]:
    """The JSON object that the body is."""
    _check_kind(request)
    body = await read_body(request, most=most, seconds=seconds)
    return parse_object(body) if len(body) < _LARGE else await asyncio.to_thread(parse_object, body)


def _check_kind(request: web.Request) -> None:
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise ApiError.wrong_media("Send the body as it is, without a Content-Encoding.")
    if "Content-Type" not in request.headers:
        return
    if request.content_type != "application/json":
        raise ApiError.wrong_media("Send the body as `Content-Type: application/json`.")
    if (request.charset or "utf-8").strip("\"'").lower() not in {"utf-8", "utf8"}:
        raise ApiError.wrong_media("Send the JSON in UTF-8.")


class _Unfit(ValueError):
    """JSON as Python would take it, but nobody else."""


def parse_object(body: bytes) -> dict[str, Any]:
    """One JSON object, as everybody takes it; a large one beside the event loop."""
    if _holds_too_many(body):
        # To build so many would keep everyone else waiting.
        raise ApiError.bad_request(
            f"The body may hold {_MOST_VALUES} values at most.", code="invalid_json"
        )
    try:
        found = json.loads(
            body.decode(),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
        if b"\\u" in body:
            # Half of a pair, which no file, no database and no model can take.
            json.dumps(found, ensure_ascii=False).encode()
    except _Unfit as error:
        raise ApiError.bad_request(str(error), code="invalid_json") from error
    except (ValueError, RecursionError) as error:
        raise _not_json() from error
    if not isinstance(found, dict) or _is_deep(found):
        raise _not_json()
    return found


def _holds_too_many(body: bytes) -> bool:
    """Whether it holds more values than may be built; commas and quotes within texts are none."""
    if body.count(b",") <= _MOST_VALUES:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * _MOST_VALUES:
        return True
    outside = plain.split(b'"')[::2]
    return sum(piece.count(b",") for piece in outside) > _MOST_VALUES


def _no_constant(name: str) -> float:
    raise _Unfit(f"`{name}` is not JSON.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Unfit("A number in the body is too large.")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Unfit("A name in the body is given twice in one object.")
    return made


def _is_deep(found: dict[str, Any]) -> bool:
    level: list[Any] = [found]
    for _ in range(_DEEPEST):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _too_large(most: int) -> ApiError:
    return ApiError.too_large(f"The body of a request may have {most} bytes at most.")


def _not_json() -> ApiError:
    return ApiError.bad_request(
        "The body must be one JSON object in UTF-8, and not nested too deeply.", code="invalid_json"
    )
