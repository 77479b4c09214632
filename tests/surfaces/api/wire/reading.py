"""The official client as a reader of what we write: its types, and its own way over HTTP."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import openai
from pydantic import BaseModel, TypeAdapter

from parley.surfaces.api.wire.responses_events import ServerEvent

__all__ = ["Canned", "as_chunks", "as_events", "canned", "read_as"]

T = TypeVar("T")
OLDER = {"name"}
"""What an older client needs in `response.function_call_arguments.done`, and ours does not."""


def read_as(kind: type[T], value: object) -> T:
    """The value as the client's type: all it needs is there, and nothing it does not know."""
    known: Any = kind
    read: T = _reader(known).validate_python(value)
    _knows_all(read, "")
    return read


@functools.cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _knows_all(value: object, place: str) -> None:
    if isinstance(value, BaseModel):
        assert set(value.model_extra or ()) <= OLDER, f"{place}: {value.model_extra}"
        for name in type(value).model_fields:
            _knows_all(getattr(value, name), f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            _knows_all(item, place)


def as_chunks(chunks: Iterable[bytes]) -> bytes:
    return b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def as_events(events: Iterable[ServerEvent]) -> bytes:
    return b"".join(
        b"event: " + event.name.encode() + b"\ndata: " + event.data + b"\n\n" for event in events
    )


class Canned:
    """A server that gives every request the same answer, and the client that asks it."""

    def __init__(self, address: str) -> None:
        self.answer = b""
        self.kind = "text/event-stream"
        self.client = openai.OpenAI(api_key="k", base_url=address, max_retries=0)

    def chat_stream(self, answer: bytes) -> list[Any]:
        self.answer, self.kind = answer, "text/event-stream"
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        return list(self.client.chat.completions.create(**asked, stream=True))

    def response_stream(self, answer: bytes) -> list[Any]:
        self.answer, self.kind = answer, "text/event-stream"
        return list(self.client.responses.create(model="m", input="hi", stream=True))


@contextmanager
def canned() -> Iterator[Canned]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", server.kind)
            self.send_header("Content-Length", str(len(server.answer)))
            self.end_headers()
            self.wfile.write(server.answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Canned(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.client.close()
        http.shutdown()
        thread.join()
        http.server_close()
