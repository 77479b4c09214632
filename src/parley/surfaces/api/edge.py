"""What every request passes before its handler, and every response after it.

The request gets an id; a page of another site is refused; whatever goes wrong is told in OpenAI's
shape; and every response says what a browser may not do with it.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from parley.config.hosts import canonical_host, is_loopback_host, named_host, parse_address
from parley.gateway.failures import error_text
from parley.gateway.intake import Stopping
from parley.gateway.routing import NobodyThere
from parley.protocol import ParleyError
from parley.storage.contract import StoreClosed, StoreUnavailable
from parley.surfaces.api.errors import ApiError, ClientGone, error_response

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["EdgeRules", "fortify", "guard_edge", "new_request_id", "request_id"]

_log = logging.getLogger("parley.api")

METHODS: Final = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
_TAKEN: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Hermes-Session-Id",
    "X-Parley-Session-Id",
    "X-Hermes-Session-Key",
    "X-Parley-Session-Key",
    "X-Parley-Events",
)
_EXPOSED: Final = ("X-Parley-Session-Id", "X-Hermes-Session-Id", "X-Request-Id", "Retry-After")
_SECURITY: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
_PREFLIGHT_SECONDS: Final = 600
_LONGEST_HOST: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PROCESS: Final = secrets.token_hex(6)
_NUMBERS: Final = itertools.count(1)

_Handler = Callable[["web.Request"], Awaitable["web.StreamResponse"]]


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """Which pages may ask, and under which names this server is asked.

    `origins` as browsers send them: `https://chat.example.org`. `hosts` are the names besides those
    of loopback; None is any. They keep out a page whose own name was made to point here (DNS
    rebinding). An address cannot be made to point elsewhere, so `any_address` lets every one in.
    """

    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] | None = None
    any_address: bool = False

    @classmethod
    def of(
        cls,
        origins: Iterable[str],
        hosts: Iterable[str] | None = None,
        *,
        any_address: bool = False,
    ) -> EdgeRules:
        """`*` is never an origin: a page must be named."""
        named = frozenset(origin.strip().rstrip("/").lower() for origin in origins)
        known = None
        if hosts is not None:
            known = frozenset(name for host in hosts if (name := named_host(host)) is not None)
        return cls(named - {"*", "null", ""}, known, any_address)

    def knows_host(self, request: web.Request) -> bool:
        """Whether the request names this server as somebody here would."""
        if self.hosts is None:
            return True
        header = request.headers.get("Host")
        if header is None:
            # No browser leaves it out; old health checks do.
            return request.version == (1, 0)
        name = canonical_host(header)
        if name is None:
            return False
        return (
            name in self.hosts
            or is_loopback_host(name)
            or (self.any_address and parse_address(name) is not None)
        )


def guard_edge(app: web.Application, rules: EdgeRules) -> None:
    """Put the edge around everything that the application serves."""
    from aiohttp import web

    @web.middleware
    async def edge(request: web.Request, handler: _Handler) -> web.StreamResponse:
        request_id(request)
        try:
            early = _answer_early(request, rules)
            return early if early is not None else await handler(request)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, it is answered
            return _answer(request, error)

    async def finish(request: web.Request, response: web.StreamResponse) -> None:
        fortify(response.headers, request_id(request))
        if rules.origins:
            _open_to_allowed(request, response, rules)

    app.middlewares.append(edge)
    app.on_response_prepare.append(finish)


def request_id(request: web.Request) -> str:
    """Ours, or the client's own where it is short and plain."""
    known: str | None = request.get(_key())
    if known is None:
        given = request.headers.get("X-Request-Id", "")
        known = given if _PLAIN.fullmatch(given) else new_request_id()
        request[_key()] = known
    return known


def new_request_id() -> str:
    """Nobody's secret: it only has to be found in the log."""
    return f"req_{_PROCESS}{next(_NUMBERS):06x}"


def fortify(headers: MutableMapping[str, str], request_id: str) -> None:
    """What every response says. A page with a policy of its own keeps it."""
    for name, value in _SECURITY.items():
        headers.setdefault(name, value)
    headers["X-Request-Id"] = request_id
    headers.pop("Server", None)


# ── before the handler ────────────────────────────────────────────────────────────────────────


def _answer_early(request: web.Request, rules: EdgeRules) -> web.StreamResponse | None:
    """The response where no handler is needed; raises when the request is refused."""
    if request.version < (1, 0):
        raise ApiError(
            400, "Speak HTTP/1.1.", code="unknown_version", headers={"Connection": "close"}
        )
    if request.method in {"TRACE", "CONNECT"}:
        raise ApiError(
            405,
            f"{request.method} is not taken here.",
            code="method_not_allowed",
            headers={"Allow": ", ".join(METHODS), "Connection": "close"},
        )
    if not rules.knows_host(request):
        raise ApiError(421, _unknown_host(request), code="unknown_host")
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    if not _may_ask(request, origin, rules):
        raise ApiError.forbidden(
            "This page may not ask here: add its origin to the setting gateway.api.origins.",
            code="origin_not_allowed",
        )
    if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        return _preflight()
    return None


def _may_ask(request: web.Request, origin: str, rules: EdgeRules) -> bool:
    if len(request.headers.getall("Origin")) != 1:
        return False
    if origin.lower() in rules.origins:
        return True
    return origin.lower() == f"{request.scheme}://{request.headers.get('Host', '')}".lower()


def _unknown_host(request: web.Request) -> str:
    name = canonical_host(request.headers.get("Host", ""))
    if name is None or len(name) > _LONGEST_HOST:
        return "Name this server in the header `Host`."
    return (
        f"This server does not know itself as {name}; if that is its name, set gateway.public_url "
        f"to its address, or add {name} to the setting gateway.hosts."
    )


def _preflight() -> web.Response:
    from aiohttp import web

    return web.Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": ", ".join(METHODS),
            "Access-Control-Allow-Headers": ", ".join(_TAKEN),
            "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
        },
    )


def _open_to_allowed(request: web.Request, response: web.StreamResponse, rules: EdgeRules) -> None:
    vary = response.headers.get("Vary")
    response.headers["Vary"] = f"{vary}, Origin" if vary else "Origin"
    origin = request.headers.get("Origin", "")
    if origin.lower() in rules.origins:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = ", ".join(_EXPOSED)


# ── after it ──────────────────────────────────────────────────────────────────────────────────


def _answer(request: web.Request, error: Exception) -> web.StreamResponse:
    """What is told of an error: nothing when nobody is there, or a response has begun already."""
    from aiohttp import web

    transport = request.transport
    gone = transport is None or transport.is_closing()
    if isinstance(error, ClientGone) or (gone and isinstance(error, ConnectionError)):
        _cut(request)
        return web.Response(status=400)
    if isinstance(error, web.HTTPException) and error.status < 400:
        raise error
    told = _as_api_error(request, error)
    if request.writer.output_size > 0:
        # A half-written response cannot be taken back: cut, so that it is not taken for whole.
        _cut(request)
    if isinstance(error, web.HTTPMethodNotAllowed) and request.method == "OPTIONS":
        return web.Response(status=204, headers={"Allow": told.headers["Allow"]})
    response = error_response(told)
    if "Connection" in response.headers:
        response.force_close()
    return response


def _as_api_error(request: web.Request, error: Exception) -> ApiError:
    from aiohttp import web

    match error:
        case ApiError():
            return error
        case Stopping():
            return ApiError(
                503, str(error), code="stopping", retry_after=1, headers={"Connection": "close"}
            )
        case NobodyThere() | StoreUnavailable() | StoreClosed():
            return ApiError.unavailable(error_text(error, operator=False), retry_after=1)
        case ParleyError():
            return ApiError.bad_request(error_text(error, operator=False))
        case web.HTTPException():
            return _of_aiohttp(request, error)
        case web.RequestPayloadError():
            return ApiError.bad_request("The body is not as its headers say.")
        case _:
            _log.error(
                "A request failed",
                exc_info=error,
                extra={
                    "request_id": request_id(request),
                    "method": request.method,
                    "route": _route(request),
                },
            )
            return ApiError(
                500,
                f"Something went wrong here; the log tells more under {request_id(request)}.",
                code="internal_error",
            )


def _of_aiohttp(request: web.Request, error: web.HTTPException) -> ApiError:
    from aiohttp import web

    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted({*error.allowed_methods, "OPTIONS"}))
        return ApiError(
            405,
            f"{request.method} is not taken at this address; take one of: {allowed}.",
            code="method_not_allowed",
            headers={"Allow": allowed},
        )
    if error.status == 404:
        sentence = "There is nothing at this address."
        if request.path.endswith("/v1/completions"):
            sentence = "Old completions are not served: use /v1/chat/completions."
        return ApiError.not_found(sentence, code="unknown_url")
    if error.status == 413:
        return ApiError.too_large("The body of the request is too large.")
    return ApiError(error.status, f"The request was refused: {error.reason}.")


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _route(request: web.Request) -> str:
    """The path as it was declared: what a client puts into it is nobody's to log."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


@functools.cache
def _key() -> web.RequestKey[str]:
    from aiohttp import web

    return web.RequestKey("parley.request_id", str)
