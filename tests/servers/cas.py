"""A CAS server on loopback: whoever comes to log in is let in at once, as the user it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

__all__ = ["running_cas"]

_TICKET = "ST-1"


@contextmanager
def running_cas(user: str) -> Iterator[str]:
    """Its address, while it runs in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/login":
                service = query["service"]
                joint = "&" if "?" in service else "?"
                self.send_response(302)
                self.send_header("Location", f"{service}{joint}{urlencode({'ticket': _TICKET})}")
                self.end_headers()
                return
            said = (
                f"<cas:authenticationSuccess><cas:user>{user}</cas:user>"
                "</cas:authenticationSuccess>"
                if parts.path == "/proxyValidate" and query.get("ticket") == _TICKET
                else '<cas:authenticationFailure code="INVALID_TICKET"/>'
            )
            space = 'xmlns:cas="http://www.yale.edu/tp/cas"'
            body = f"<cas:serviceResponse {space}>{said}</cas:serviceResponse>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
