"""`POST /v1/embeddings`: vectors of texts, from the local embedding model."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from parley.config.extras import install_command
from parley.memory.embeddings import EmbeddingError, find_embedder
from parley.surfaces.api.body import read_json
from parley.surfaces.api.callers import Caller
from parley.surfaces.api.desk import Desk
from parley.surfaces.api.errors import ApiError
from parley.surfaces.api.wire.embeddings import embedding_list, read_embedding_request

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["create"]


async def create(desk: Desk, request: web.Request, caller: Caller) -> web.Response:
    """A vector for each text, in their order."""
    from aiohttp import web

    rules = desk.rules
    body = await read_json(request, most=rules.body_bytes, seconds=rules.body_seconds)
    asked = await desk.read(request, lambda: read_embedding_request(body))
    embedder = find_embedder("auto")
    caller.target(None if embedder is not None and asked.model == embedder.name else asked.model)
    is_operator = "admin" in caller.key.scopes
    if embedder is None:
        raise _not_installed(is_operator=is_operator)
    # A thread of its own: long lists of texts must not hold up other work beside the event loop.
    loop = asyncio.get_running_loop()
    try:
        written = await loop.run_in_executor(_thread(), embedding_list, asked, embedder)
    except EmbeddingError as error:
        sentence = str(error) if is_operator else "The embedding model cannot be used."
        raise ApiError(
            503, sentence, code="embeddings_broken", headers={"X-Should-Retry": "false"}
        ) from error
    return web.Response(body=written, content_type="application/json")


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="embeddings")


def _not_installed(*, is_operator: bool) -> ApiError:
    sentence = "There is no embedding model here."
    if is_operator:
        sentence = f"{sentence[:-1]}: install it with `{install_command('embeddings')}`."
    return ApiError.not_found(sentence, code="embeddings_not_installed")
