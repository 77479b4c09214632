"""What a program is told when it gets no answer: a status, and an error in OpenAI's shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parley.protocol import Failed, ParleyError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["ApiError", "ClientGone", "error_response", "failed_to_error"]

_DO_NOT_RETRY = {"X-Should-Retry": "false"}
"""OpenAI's clients repeat every 409 and 5xx by themselves, unless they are told not to."""


class ClientGone(ParleyError):
    """Nobody is there any more to be answered."""


class ApiError(ParleyError):
    """A request is refused, or its answer failed. `message` is one sentence for who reads it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type or _type_of(status)
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.headers = dict(headers or {})

    def as_body(self) -> dict[str, Any]:
        """In OpenAI's shape, for a response or for an event of a stream."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    @classmethod
    def bad_request(
        cls, message: str, param: str | None = None, code: str | None = None
    ) -> ApiError:
        return cls(400, message, param=param, code=code)

    @classmethod
    def unauthorized(cls, message: str, code: str = "invalid_api_key") -> ApiError:
        return cls(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})

    @classmethod
    def forbidden(cls, message: str, code: str | None = None) -> ApiError:
        return cls(403, message, code=code)

    @classmethod
    def not_found(
        cls, message: str, param: str | None = None, code: str | None = "not_found"
    ) -> ApiError:
        return cls(404, message, param=param, code=code)

    @classmethod
    def conflict(cls, message: str, param: str | None = None, code: str | None = None) -> ApiError:
        return cls(409, message, param=param, code=code, headers=_DO_NOT_RETRY)

    @classmethod
    def too_slow(cls, message: str) -> ApiError:
        return cls(408, message, code="request_timeout")

    @classmethod
    def too_large(cls, message: str) -> ApiError:
        return cls(413, message, code="request_too_large")

    @classmethod
    def wrong_media(cls, message: str) -> ApiError:
        return cls(415, message, code="unsupported_media_type")

    @classmethod
    def rate_limited(
        cls, retry_after: float, message: str = "Too many requests at once; please wait a moment."
    ) -> ApiError:
        return cls(429, message, code="rate_limit_exceeded", retry_after=retry_after)

    @classmethod
    def unavailable(
        cls, message: str, retry_after: float | None = None, code: str | None = None
    ) -> ApiError:
        return cls(503, message, code=code, retry_after=retry_after)


_KINDS: dict[str, tuple[int, str]] = {
    "rate_limited": (429, "rate_limit_exceeded"),
    "overloaded": (503, "upstream_overloaded"),
    "too_long": (400, "context_length_exceeded"),
    "not_found": (502, "upstream_not_found"),
    "refused": (400, "upstream_refused"),
    "unsupported": (400, "unsupported_parameter"),
    "auth": (502, "upstream_auth"),
    "unreachable": (502, "upstream_unreachable"),
    "timeout": (504, "upstream_timeout"),
    "broken": (502, "upstream_broken"),
    # A limit of the settings: the same request meets it again, so nothing that invites a repeat.
    "budget": (429, "insufficient_quota"),
    "limit": (422, "limit_exceeded"),
}


def failed_to_error(failed: Failed) -> ApiError:
    """What a program is told of a turn that failed."""
    status, code = _KINDS.get(failed.kind, (500, "internal_error"))
    return ApiError(
        status,
        failed.sentence,
        code=code,
        type="upstream_error" if code.startswith("upstream_") and status >= 500 else None,
        retry_after=failed.retry_after if status in {429, 503} else None,
        headers=_DO_NOT_RETRY if failed.kind in {"auth", "budget", "not_found"} else None,
    )


def error_response(error: ApiError) -> web.Response:
    from aiohttp import web

    headers = dict(error.headers)
    if error.retry_after is not None or error.status in {429, 503}:
        headers["Retry-After"] = str(_whole_seconds(error.retry_after))
    return web.json_response(error.as_body(), status=error.status, headers=headers)


def _whole_seconds(seconds: float | None) -> int:
    if seconds is None or not math.isfinite(seconds):
        return 1
    return max(1, math.ceil(seconds))


def _type_of(status: int) -> str:
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "invalid_request_error"
