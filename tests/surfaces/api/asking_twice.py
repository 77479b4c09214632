"""The same request again, with an `Idempotency-Key`; and what came of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.servers.scripted_model import Reply
from tests.surfaces.api.asking import user
from tests.surfaces.api.served import Got, Served

__all__ = ["BODIES", "CHAT", "RESPONSES", "SLOW", "ask", "both_routes", "streamed", "text_of"]

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SLOW = Reply(text="never whole", chunks=2, chunk_delay=30)
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [user("hi")]},
    RESPONSES: {"input": "hi"},
}
both_routes = pytest.mark.parametrize("path", [CHAT, RESPONSES])


async def ask(
    served: Served, path: str = CHAT, *, id: str = "k1", key: str | None = None, **more: Any
) -> Got:
    body = BODIES[path] | more
    return await served.post(path, body, key=key, headers={"Idempotency-Key": id})


def text_of(got: Got) -> str:
    assert got.status == 200, got.body
    told = json.loads(got.body)
    if "choices" in told:
        return str(told["choices"][0]["message"]["content"])
    return str(told["output"][-1]["content"][0]["text"])


def streamed(got: Got) -> list[dict[str, Any]]:
    """The data of every event."""
    lines = [line for line in got.body.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]
