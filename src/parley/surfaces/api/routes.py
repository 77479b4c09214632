"""Every address of the API: who may use it, and what answers there. The one list of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from parley.profiles import PROFILE_NAME
from parley.surfaces.api import chat, conversations, embeddings, meta, page, responses, runs, views
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.wire.chat_in import ChatCompletionRequest
from parley.surfaces.api.wire.conversations import (
    ConversationItemsRequest,
    ConversationRequest,
    ConversationUpdate,
)
from parley.surfaces.api.wire.embeddings import EmbeddingRequest
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.responses_in import ResponseRequest
from parley.surfaces.api.wire.runs import ApprovalRequest, RunRequest

if TYPE_CHECKING:
    from aiohttp import web

    from parley.surfaces.api.desk import Desk

__all__ = ["ROUTES", "Route", "add_routes"]

Answer = Callable[..., Awaitable["web.StreamResponse"]]


@dataclass(frozen=True, slots=True)
class Route:
    """One address. Without `scopes` it is open to everyone."""

    method: str
    path: str
    answer: Answer
    summary: str
    scopes: tuple[str, ...] = ()
    body: type[BaseModel] | None = None
    streams: bool = False
    success: int = 200


ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/v1/chat/completions",
        chat.complete,
        "Ask, and get the answer whole or as it is made.",
        ("chat",),
        ChatCompletionRequest,
        streams=True,
    ),
    Route(
        "POST",
        "/v1/responses",
        responses.create,
        "Ask, in the form of the Responses API.",
        ("chat",),
        ResponseRequest,
        streams=True,
    ),
    Route(
        "GET",
        "/v1/responses/{id}",
        responses.show,
        "A stored response, whole or as events.",
        ("chat",),
        streams=True,
    ),
    Route("DELETE", "/v1/responses/{id}", responses.delete, "Forget a response.", ("chat",)),
    Route(
        "GET",
        "/v1/responses/{id}/input_items",
        responses.input_items,
        "What a stored response was given, item by item.",
        ("chat",),
    ),
    Route(
        "POST",
        "/v1/responses/{id}/cancel",
        responses.cancel,
        "Stop a response in the background.",
        ("chat",),
    ),
    Route(
        "POST",
        "/v1/conversations",
        conversations.create,
        "Make a conversation.",
        ("chat",),
        ConversationRequest,
    ),
    Route("GET", "/v1/conversations/{id}", conversations.show, "A conversation.", ("chat",)),
    Route(
        "POST",
        "/v1/conversations/{id}",
        conversations.update,
        "Change the notes on a conversation.",
        ("chat",),
        ConversationUpdate,
    ),
    Route(
        "DELETE",
        "/v1/conversations/{id}",
        conversations.delete,
        "Forget a conversation, and all that was said in it.",
        ("chat",),
    ),
    Route(
        "GET",
        "/v1/conversations/{id}/items",
        conversations.list_items,
        "What is in a conversation, item by item.",
        ("chat",),
    ),
    Route(
        "POST",
        "/v1/conversations/{id}/items",
        conversations.add_items,
        "Add items to a conversation.",
        ("chat",),
        ConversationItemsRequest,
    ),
    Route(
        "GET",
        "/v1/conversations/{id}/items/{item}",
        conversations.show_item,
        "An item of a conversation.",
        ("chat",),
    ),
    Route(
        "DELETE",
        "/v1/conversations/{id}/items/{item}",
        conversations.delete_item,
        "Take an item out of a conversation.",
        ("chat",),
    ),
    Route(
        "POST",
        "/v1/runs",
        runs.start,
        "Begin a run, which goes on by itself.",
        ("runs",),
        RunRequest,
        success=202,
    ),
    Route("GET", "/v1/runs/{id}", runs.show, "How a run is.", ("runs",)),
    Route(
        "GET",
        "/v1/runs/{id}/events",
        runs.events,
        "What happens in a run, from the start or from `Last-Event-ID`.",
        ("runs",),
        streams=True,
    ),
    Route("POST", "/v1/runs/{id}/stop", runs.stop, "Stop a run.", ("runs",)),
    Route(
        "POST",
        "/v1/runs/{id}/approval",
        runs.approve,
        "Allow or refuse what a run asks for.",
        ("runs", "chat"),
        ApprovalRequest,
    ),
    Route(
        "POST",
        "/v1/embeddings",
        embeddings.create,
        "Make vectors of texts, where an embedding model is installed.",
        ("chat",),
        EmbeddingRequest,
    ),
    Route("GET", "/v1/models", meta.models, "Who can be asked.", ("chat", "runs")),
    Route("GET", "/v1/models/{model}", meta.model, "One of them.", ("chat", "runs")),
    Route("GET", "/v1/capabilities", meta.capabilities, "What can be done.", ("chat", "runs")),
    Route(
        "GET",
        "/api/sessions",
        views.sessions,
        "The conversations of this key; with `all=true` every one (scope admin).",
        ("chat", "runs", "admin"),
    ),
    Route(
        "GET",
        "/api/jobs",
        views.jobs,
        "What is planned there; with `all=true` everything (scope admin).",
        ("chat", "runs", "admin"),
    ),
    Route("GET", "/healthz", meta.healthz, "The process lives."),
    Route("GET", "/health", meta.health, "The same, where Hermes has it."),
    Route("GET", "/v1/health", meta.health_v1, "The same, where Hermes has it."),
    Route("GET", "/readyz", meta.readyz, "Whether messages are taken."),
    Route("GET", "/metrics", meta.metrics, "Numbers, for Prometheus.", ("admin",)),
    Route("GET", "/openapi.json", page.description, "This list, for programs."),
    Route("GET", "/docs", page.readable, "This list, for people."),
)


def add_routes(app: web.Application, desk: Desk) -> None:
    """Serve every route, and again below `/p/{profile}`; `/` leads to the page for people."""
    app.router.add_get("/", page.root)
    for route in ROUTES:
        handler = _handler(desk, route)
        for prefix in ("", f"/p/{{profile:{PROFILE_NAME.pattern}}}"):
            app.router.add_route(route.method, prefix + route.path, handler)
            if route.method == "GET" and not route.scopes:  # who only looks whether it is there
                app.router.add_route("HEAD", prefix + route.path, handler)


def _handler(desk: Desk, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        caller: Any = None
        if route.scopes:
            caller = desk.callers.admit(request, route.scopes, desk.door.profiles())
        elif "Authorization" in request.headers:
            caller = desk.callers.recognise(request, desk.door.profiles())
        try:
            return await route.answer(desk, request, caller)
        except BadRequest as error:
            raise ApiError.bad_request(error.message, error.param, error.code) from error

    return handle
