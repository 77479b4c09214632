"""What the declarations of the routes do not say: their answers, errors, headers and examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from parley.surfaces.api.schemas import Schema

__all__ = ["ERRORS", "HEADERS", "IN_PATH", "MORE", "PARAMETERS", "More"]


@dataclass(frozen=True, slots=True)
class More:
    """`answer` names a schema, or is a media type. `errors`: those that are the route's own."""

    tag: str = "Server"
    answer: str = "application/json"
    errors: tuple[int, ...] = ()
    takes: tuple[str, ...] = ()
    stream: str = ""
    example: Mapping[str, Any] | None = None


_HELLO: Final = {"model": "parley", "input": "Hello!"}
_TALKS: Final = ("Session", "SessionKey", "IdempotencyKey")
_ONCE: Final = ("IdempotencyKey",)
_PAGED: Final = ("Limit", "Order", "AfterItem")
_FAILS: Final = (404, 409, 422, 502, 504)
_CHAT_STREAM: Final = (
    "With `stream`: each event holds a `chat.completion.chunk`, and the last is `[DONE]`. "
    "What fails after the stream began comes as an event that holds an `Error`."
)
_RESPONSE_STREAM: Final = (
    "With `stream`: named events from `response.created` to `response.completed`, "
    "`response.incomplete` or `response.failed`."
)
_RUN_STREAM: Final = (
    "Numbered, named events: `run.started`, `run.resumed`, `reasoning.delta`, `text.delta`, "
    "`text.reset`, `step`, `tool.started`, `tool.finished`, `approval.asked`, "
    "`approval.decided`; the last is `run.completed`, `run.failed` or `run.cancelled`."
)
MORE: Final[dict[tuple[str, str], More]] = {
    ("POST", "/v1/chat/completions"): More(
        "Chat",
        "ChatCompletion",
        _FAILS,
        (*_TALKS, "Events"),
        _CHAT_STREAM,
        {"model": "parley", "messages": [{"role": "user", "content": "Hello!"}]},
    ),
    ("POST", "/v1/responses"): More(
        "Responses", "Response", _FAILS, _TALKS, _RESPONSE_STREAM, _HELLO
    ),
    ("GET", "/v1/responses/{id}"): More(
        "Responses", "Response", (404,), ("Stream", "StartingAfter"), _RESPONSE_STREAM
    ),
    ("GET", "/v1/responses/{id}/input_items"): More("Responses", "ItemList", (404,), _PAGED),
    ("POST", "/v1/responses/{id}/cancel"): More("Responses", "Response", (404,)),
    ("DELETE", "/v1/responses/{id}"): More("Responses", "ResponseDeleted", (404,)),
    ("POST", "/v1/conversations"): More(
        "Conversations", "Conversation", (404, 409), _ONCE, example={"metadata": {"topic": "demo"}}
    ),
    ("GET", "/v1/conversations/{id}"): More("Conversations", "Conversation", (404,)),
    ("POST", "/v1/conversations/{id}"): More(
        "Conversations", "Conversation", (404,), example={"metadata": {"topic": "demo"}}
    ),
    ("DELETE", "/v1/conversations/{id}"): More("Conversations", "ConversationDeleted", (404, 409)),
    ("GET", "/v1/conversations/{id}/items"): More("Conversations", "ItemList", (404,), _PAGED),
    ("POST", "/v1/conversations/{id}/items"): More(
        "Conversations",
        "ItemList",
        (404, 409),
        _ONCE,
        example={"items": [{"role": "user", "content": "Hello!"}]},
    ),
    ("GET", "/v1/conversations/{id}/items/{item}"): More("Conversations", "Item", (404,)),
    ("DELETE", "/v1/conversations/{id}/items/{item}"): More(
        "Conversations", "Conversation", (404, 409)
    ),
    ("POST", "/v1/runs"): More("Runs", "Run", (404, 409), _TALKS, example=_HELLO),
    ("GET", "/v1/runs/{id}"): More("Runs", "Run", (404,)),
    ("GET", "/v1/runs/{id}/events"): More(
        "Runs", "text/event-stream", (404,), ("LastEventId", "After", "Names"), _RUN_STREAM
    ),
    ("POST", "/v1/runs/{id}/stop"): More("Runs", "Run", (404,)),
    ("POST", "/v1/runs/{id}/approval"): More(
        "Runs",
        "ApprovalAnswer",
        (404, 409),
        example={"approval_id": "appr_1", "decision": "approve"},
    ),
    ("POST", "/v1/embeddings"): More(
        "Embeddings",
        "EmbeddingList",
        (404,),
        example={"model": "parley", "input": ["The harbour is calm tonight."]},
    ),
    ("GET", "/v1/models"): More("Models", "ModelList"),
    ("GET", "/v1/models/{model}"): More("Models", "Model", (404,)),
    ("GET", "/v1/capabilities"): More("Models", "Capabilities", (404,)),
    ("GET", "/api/sessions"): More("Views", "SessionList", (404,), ("Limit", "Cursor", "All")),
    ("GET", "/api/jobs"): More("Views", "JobList", (404,), ("Limit", "Cursor", "All")),
    ("GET", "/healthz"): More("Server", "Health"),
    ("GET", "/health"): More("Server", "Health"),
    ("GET", "/v1/health"): More("Server", "Health"),
    ("GET", "/readyz"): More("Server", "Readiness"),
    ("GET", "/metrics"): More("Server", "text/plain"),
    ("GET", "/openapi.json"): More("Server", "application/json"),
    ("GET", "/docs"): More("Server", "text/html"),
}

# ── errors ────────────────────────────────────────────────────────────────────────────────────

ERRORS: Final[dict[int, tuple[str, str]]] = {
    400: ("BadRequest", "The request is not as it must be; `param` names the field."),
    401: ("Unauthorized", "The key is missing, unknown, expired or revoked."),
    403: ("Forbidden", "The key has not the scope, or the page may not ask here."),
    404: ("NotFound", "There is no such thing, or not for this key."),
    408: ("TooSlow", "The body did not come in time."),
    409: ("Conflict", "It does not fit what came before: a key used twice, a question answered."),
    413: ("TooLarge", "The body is too large."),
    415: ("WrongMedia", "The body is not JSON in UTF-8."),
    422: ("LimitMet", "The turn met a limit of the profile's settings."),
    429: ("TooMany", "Too many requests; `Retry-After` says when to ask again."),
    431: ("LongHeaders", "The request line or a header is too long."),
    500: ("Broken", "Something went wrong here; the log tells more under `X-Request-Id`."),
    502: (
        "UpstreamFailed",
        "The model's provider cannot be reached, or did not answer as it must.",
    ),
    503: ("Unavailable", "Not now: the server stops, or is full; `Retry-After` says when."),
    504: ("UpstreamTimeout", "The model's provider took too long."),
}

# ── headers and parameters ────────────────────────────────────────────────────────────────────

_SESSION_ID: Final = (
    r"^(?:\.?[!--0-\[\]-~]|"
    r"(?:[!--0-\[\]-~]|\.[ --0-\[\]-~])(?:\.?[ --0-\[\]-~])*(?:\.|\.?[!--0-\[\]-~]))$"
)
"""Printable, without `/`, `\\`, `..` and spaces at the ends, and not `.` alone."""
_EVENT_NUMBER: Final[Schema] = {"type": "string", "pattern": "^[0-9]{0,15}$"}


def _header(name: str, schema: Schema, description: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "description": description,
        "schema": schema,
        "example": example,
    }


def _query(name: str, schema: Schema, description: str, example: str | None = None) -> Schema:
    told: Schema = {"name": name, "in": "query", "description": description, "schema": schema}
    return told if example is None else {**told, "example": example}


def _session_text() -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": 256, "pattern": _SESSION_ID}


PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "Session": _header(
        "X-Parley-Session-Id",
        _session_text(),
        "The conversation to go on with; without one, a new one. Printable ASCII without `/`, "
        "`\\` and `..`. `X-Hermes-Session-Id` is the same.",
        "project-42",
    ),
    "SessionKey": _header(
        "X-Hermes-Session-Key",
        _session_text(),
        "Whose memory is meant, across conversations. `X-Parley-Session-Key` is the same.",
        "anna",
    ),
    "IdempotencyKey": _header(
        "Idempotency-Key",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[!-~](?:[ -~]*[!-~])?$"},
        "The same key and body give the first answer again, after a restart too; another body is "
        "refused with 409.",
        "3f1c9a52",
    ),
    "Events": _header(
        "X-Parley-Events",
        {"type": "string"},
        "`1`: a stream also holds `parley.step`, `parley.reset`, `parley.tool` and "
        "`parley.approval`.",
        "1",
    ),
    "LastEventId": _header(
        "Last-Event-ID", _EVENT_NUMBER, "The last event that is known; what follows is sent.", "0"
    ),
    "After": _query("after", _EVENT_NUMBER, "The same, for who cannot send the header.", "0"),
    "Stream": _query("stream", {"type": "boolean"}, "Send it as events."),
    "StartingAfter": _query(
        "starting_after",
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1},
        "With `stream`: the `sequence_number` of the last event that is known.",
    ),
    "Limit": _query(
        "limit", {"type": "integer", "minimum": 1, "maximum": 100}, "How many; 20 without it."
    ),
    "Order": _query(
        "order", {"type": "string", "enum": ["asc", "desc"]}, "The newest first without it."
    ),
    "AfterItem": _query("after", {"type": "string"}, "The item that the page comes behind."),
    "Names": _query(
        "names",
        {"type": "string", "enum": ["parley", "hermes"]},
        "`hermes`: the events and their fields have Hermes' names. The header `X-Parley-Names` is "
        "the same.",
        "hermes",
    ),
    "Cursor": _query(
        "after",
        {"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{1,9})?~[!-~]{1,256}$"},
        "The `next` of the page before.",
        "1700000000.5~abc",
    ),
    "All": _query(
        "all",
        {"type": "string", "enum": ["true", "false"]},
        "`true`: those of everybody; this takes the scope admin.",
        "false",
    ),
}
HEADERS: Final[dict[str, dict[str, Any]]] = {
    "RequestId": {"description": "Of this request, as logs name it.", "schema": {"type": "string"}},
    "RetryAfter": {
        "description": "Seconds until it is worth asking again.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Session": {"description": "The conversation it was.", "schema": {"type": "string"}},
    "Replayed": {
        "description": "The answer was given before, to the same `Idempotency-Key`.",
        "schema": {"type": "string", "const": "true"},
    },
}
IN_PATH: Final[dict[str, tuple[str, Schema]]] = {
    "profile": ("The profile.", {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,31}$"}),
    "model": ("The name of a profile.", {"type": "string", "minLength": 1}),
    "id": ("As it was given out.", {"type": "string", "minLength": 1}),
    "item": ("The id of the item.", {"type": "string", "minLength": 1}),
}
