"""What a program is told when it gets no answer."""

from __future__ import annotations

import json

import pytest

from parley.protocol import Failed
from parley.surfaces.api.errors import ApiError, error_response, failed_to_error


def test_an_error_has_the_shape_that_clients_of_openai_read() -> None:
    error = ApiError.bad_request("`n` must be 1.", param="n", code="unsupported_value")
    assert error.as_body() == {
        "error": {
            "message": "`n` must be 1.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "unsupported_value",
        }
    }
    assert str(error) == "`n` must be 1."


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ApiError.bad_request("x"), 400, "invalid_request_error"),
        (ApiError.unauthorized("x"), 401, "authentication_error"),
        (ApiError.forbidden("x"), 403, "permission_error"),
        (ApiError.not_found("x"), 404, "invalid_request_error"),
        (ApiError.too_slow("x"), 408, "invalid_request_error"),
        (ApiError.conflict("x"), 409, "invalid_request_error"),
        (ApiError.too_large("x"), 413, "invalid_request_error"),
        (ApiError.wrong_media("x"), 415, "invalid_request_error"),
        (ApiError.rate_limited(2), 429, "rate_limit_error"),
        (ApiError.unavailable("x", 1), 503, "server_error"),
    ],
    ids=str,
)
def test_every_refusal_has_its_status_and_type(error: ApiError, status: int, kind: str) -> None:
    response = error_response(error)
    assert response.status == status
    assert json.loads(response.body or b"")["error"]["type"] == kind  # type: ignore[arg-type]
    assert ("Retry-After" in response.headers) == (status in {429, 503})
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60"), (float("inf"), "1")],
)
def test_the_wait_is_told_in_whole_seconds_and_never_none(seconds: float, said: str) -> None:
    assert error_response(ApiError.rate_limited(seconds)).headers["Retry-After"] == said


def test_a_client_does_not_repeat_what_cannot_succeed() -> None:
    assert error_response(ApiError.conflict("x")).headers["X-Should-Retry"] == "false"


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("rate_limited", 429, "rate_limit_exceeded"),
        ("overloaded", 503, "upstream_overloaded"),
        ("too_long", 400, "context_length_exceeded"),
        ("refused", 400, "upstream_refused"),
        ("unsupported", 400, "unsupported_parameter"),
        ("auth", 502, "upstream_auth"),
        ("unreachable", 502, "upstream_unreachable"),
        ("timeout", 504, "upstream_timeout"),
        ("broken", 502, "upstream_broken"),
        ("limit", 422, "limit_exceeded"),
        ("internal", 500, "internal_error"),
        ("something new", 500, "internal_error"),
    ],
)
def test_a_turn_that_failed_is_told_by_its_kind(kind: str, status: int, code: str) -> None:
    failed = Failed("The model is busy.", "secret cause", kind=kind, retry_after=3.5)
    error = failed_to_error(failed)
    assert (error.status, error.code, error.message) == (status, code, "The model is busy.")
    assert error.retry_after == (3.5 if status in {429, 503} else None)
    assert "secret" not in json.dumps(error.as_body())


def test_every_kind_of_a_providers_error_is_known() -> None:
    from typing import get_args

    from parley.agent.providers.base import ErrorKind

    for kind in get_args(ErrorKind):
        assert failed_to_error(Failed("x", kind=kind)).status != 500, kind
