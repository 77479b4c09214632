"""A loopback HTTP server for downloads: it serves ranges, cuts connections and refuses."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """`files` by path; each connection is cut after `cut_after` bytes of a body, `cuts` times."""

    base: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: int = 0
    cuts: int = 0
    knows_ranges: bool = True
    refuse: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0

    def url(self, name: str) -> str:
        return f"{self.base}/{name}"


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    files = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, files)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    files.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: BaseHTTPRequestHandler, files: FileServer) -> None:
    wanted = request.headers.get("Range", "")
    files.asked.append((request.path, wanted))
    body = files.files.get(request.path.lstrip("/"))
    if files.refuse or body is None:
        request.send_error(files.refuse or 404)
        return
    start = 0
    match = re.fullmatch(r"bytes=(\d+)-", wanted)
    if match and files.knows_ranges:
        start = int(match[1])
        if start >= len(body):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(body)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
    else:
        request.send_response(200)
    rest = body[start:]
    request.send_header("Content-Length", str(len(rest)))
    request.end_headers()
    if files.cuts > 0:
        files.cuts -= 1
        rest = rest[: files.cut_after]
        files.sent += len(rest)
        request.wfile.write(rest)
        request.wfile.flush()
        request.connection.shutdown(socket.SHUT_RDWR)
        return
    files.sent += len(rest)
    request.wfile.write(rest)
