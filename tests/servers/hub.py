"""A model hub on loopback: the HTTP API of Hugging Face's, and the storage it redirects to."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

__all__ = ["Hub", "hub_server"]


@dataclass
class Hub:
    """Repositories with their files. `gated` ones want `token`; `cut_after` cuts one body off."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = ""
    cut_after: int = 0
    wrong_checksum: bool = False
    endpoint: str = ""
    storage: str = ""
    asked: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    """(`hub` or `storage`, path, Authorization, Range) of every request."""

    def info(self, repository: str) -> dict[str, object]:
        siblings: list[dict[str, object]] = [{"rfilename": "README.md", "size": 10}]
        for name, content in self.files[repository].items():
            digest = hashlib.sha256(content + b"!" * self.wrong_checksum).hexdigest()
            lfs = {"sha256": digest, "size": len(content), "pointerSize": 135}
            siblings.append({"rfilename": name, "size": len(content), "lfs": lfs})
        return {"id": repository, "siblings": siblings}


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()
    servers = [_server(hub, _HubHandler), _server(hub, _StorageHandler)]
    hub.endpoint, hub.storage = (f"http://127.0.0.1:{each.server_port}" for each in servers)
    threads = [threading.Thread(target=each.serve_forever) for each in servers]
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


def _server(hub: Hub, handler: type[_Handler]) -> ThreadingHTTPServer:
    return ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), {"hub": hub}))


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def note(self, where: str) -> None:
        asked = self.headers.get("Authorization"), self.headers.get("Range")
        self.hub.asked.append((where, self.path, *asked))

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HubHandler(_Handler):
    def do_GET(self) -> None:
        self.note("hub")
        parts = urlsplit(self.path).path.strip("/").split("/")
        repository = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if repository in self.hub.gated and (
            self.headers.get("Authorization") != f"Bearer {self.hub.token}"
        ):
            return self.say(401, b'{"error": "Access to model is restricted"}')
        if repository not in self.hub.files:
            return self.say(404, b'{"error": "Repository not found"}')
        if parts[0] == "api":
            return self.say(200, json.dumps(self.hub.info(repository)).encode())
        return self.say(
            302, Location=f"{self.hub.storage}/{repository}/{'/'.join(parts[4:])}?sig=1"
        )


class _StorageHandler(_Handler):
    def do_GET(self) -> None:
        self.note("storage")
        owner, name, *rest = urlsplit(self.path).path.strip("/").split("/")
        content = self.hub.files[f"{owner}/{name}"]["/".join(rest)]
        start = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut, self.hub.cut_after = self.hub.cut_after, 0
        self.wfile.write(content[start : start + cut] if cut else content[start:])
        self.close_connection = True
