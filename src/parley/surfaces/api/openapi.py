"""The API described for programs, as OpenAPI 3.1: made from the routes and their models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from parley import __version__
from parley.surfaces.api.described import ERRORS, HEADERS, IN_PATH, MORE, PARAMETERS, More
from parley.surfaces.api.schemas import ANSWERS, Schema, ref

if TYPE_CHECKING:
    from pydantic import BaseModel

    from parley.surfaces.api.routes import Route

__all__ = ["BELOW_PROFILE", "openapi_document"]

BELOW_PROFILE: Final = "/p/{profile}"
"""Where every route is once more, for one profile."""

_ABOUT: Final = (
    "Ask the agents of this gateway from a program. Chat completions and responses are those that "
    "OpenAI's clients speak; a run goes on by itself, and can be followed from any point. Every "
    "address is there once more below `/p/{profile}`, for that profile alone. Fields that are not "
    "known are passed over."
)
_TAGS: Final = {
    "Chat": "One answer to a conversation.",
    "Responses": "Answers that are kept, and can be gone on from.",
    "Conversations": "Where responses are kept together, item by item.",
    "Runs": "Work that goes on without its client, and after a restart.",
    "Embeddings": "Texts as vectors.",
    "Models": "Who can be asked, and for what.",
    "Views": "What is stored and planned, to be read.",
    "Server": "How the server is, and what it offers.",
}

_EVERYWHERE: Final = (400, 403, 431, 500, 503)
_WITH_KEY: Final = (401, 429)
_WITH_BODY: Final = (408, 413, 415)


def openapi_document(routes: Sequence[Route], *, server: str | None) -> dict[str, Any]:
    """`server` is the address of it; None is wherever the document was found."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Parley", "version": __version__, "description": _ABOUT},
        "servers": [{"url": server or "/"}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": _paths(routes),
        "components": {
            "schemas": {**_schemas_of(route.body for route in routes), **ANSWERS},
            "responses": {name: _error(status, told) for status, (name, told) in ERRORS.items()},
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "sk-parley-…",
                    "description": "A key of `parley keys create`.",
                }
            },
        },
    }


def _schemas_of(models: Iterable[type[BaseModel] | None]) -> dict[str, Schema]:
    """The models of requests, and whatever they are made of, each by its name."""
    from pydantic.json_schema import GenerateJsonSchema, models_json_schema

    class WithoutTitles(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    wanted = [(model, "validation") for model in dict.fromkeys(models) if model is not None]
    _, made = models_json_schema(
        wanted,  # type: ignore[arg-type]  # a list of pairs is invariant
        ref_template="#/components/schemas/{model}",
        schema_generator=WithoutTitles,
    )
    found: dict[str, Schema] = made.get("$defs", {})
    return found


# ── paths ─────────────────────────────────────────────────────────────────────────────────────


def _paths(routes: Sequence[Route]) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for prefix in ("", BELOW_PROFILE):
        for route in routes:
            operation = _operation(route, below_profile=bool(prefix))
            paths.setdefault(prefix + route.path, {})[route.method.lower()] = operation
    return paths


def _operation(route: Route, *, below_profile: bool) -> dict[str, Any]:
    more = MORE.get((route.method, route.path), More())
    path = BELOW_PROFILE + route.path if below_profile else route.path
    told: dict[str, Any] = {
        "operationId": ("profile_" if below_profile else "") + _name(route),
        "tags": [more.tag],
        "summary": route.summary,
        "security": [{"key": [scope]} for scope in route.scopes],
        "parameters": [*_in_path(path), *(_parameter(name) for name in more.takes)],
        "responses": _responses(route, more, below_profile),
    }
    if route.scopes:
        told["description"] = f"Needs a key with the scope {' or '.join(route.scopes)}."
    if route.body is not None:
        content: dict[str, Any] = {"schema": ref(route.body.__name__)}
        if more.example is not None:
            content["example"] = dict(more.example)
        told["requestBody"] = {"required": True, "content": {"application/json": content}}
    return told


def _name(route: Route) -> str:
    return f"{route.answer.__module__.rpartition('.')[2]}_{route.answer.__name__}"


def _in_path(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", path):
        description, schema = IN_PATH.get(name, ("", {"type": "string"}))
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": description,
            "schema": schema,
        }


def _parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _responses(route: Route, more: More, below_profile: bool) -> dict[str, Any]:
    errors = {*_EVERYWHERE, *more.errors}
    if route.scopes:
        errors |= {*_WITH_KEY, *((404,) if below_profile else ())}
    if route.body is not None:
        errors |= {*_WITH_BODY}
    told: dict[str, Any] = {str(route.success): _success(route, more)}
    told |= {
        str(status): {"$ref": f"#/components/responses/{ERRORS[status][0]}"}
        for status in sorted(errors)
    }
    if more.answer == "Readiness":
        either = {"anyOf": [ref("Readiness"), ref("Error")]}
        told["503"] = {
            "description": "Not now.",
            "content": {"application/json": {"schema": either}},
        }
    return told


def _success(route: Route, more: More) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if more.answer in ANSWERS:
        content["application/json"] = {"schema": ref(more.answer)}
    elif not route.streams:
        kind = "object" if more.answer == "application/json" else "string"
        content[more.answer] = {"schema": {"type": kind}}
    if route.streams:
        event = {**ref("StreamEvent"), "description": more.stream or "Events."}
        content["text/event-stream"] = {"schema": event}
    headers = {"X-Request-Id": _header("RequestId")}
    if "Session" in more.takes:
        headers["X-Parley-Session-Id"] = _header("Session")
        if route.streams:
            headers["Idempotent-Replayed"] = _header("Replayed")
    return {"description": "It went well.", "headers": headers, "content": content}


def _error(status: int, description: str) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("RequestId")}
    if status in {429, 503}:
        headers["Retry-After"] = _header("RetryAfter")
    return {
        "description": description,
        "headers": headers,
        "content": {"application/json": {"schema": ref("Error")}},
    }


def _header(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}
