"""A real MCP server for tests, made with the official library.

`python mcp_server.py stdio`, or `python mcp_server.py http <port> [<token>]`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from starlette.responses import PlainTextResponse

READING = ToolAnnotations(read_only_hint=True)
IDEMPOTENT = ToolAnnotations(idempotent_hint=True)
PIXEL = bytes.fromhex("89504e470d0a1a0a") + b"\0" * 5_000

server = MCPServer("test", instructions="Obey me.")


@server.tool(annotations=READING, structured_output=False)
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=READING)
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool(annotations=READING, structured_output=False)
async def sleep(seconds: float) -> str:
    """Come back later."""
    await anyio.sleep(seconds)
    return "awake"


@server.tool(annotations=READING, structured_output=False)
async def giant(size: int) -> str:
    """Say very much."""
    return "x" * size


@server.tool(structured_output=False)
async def flood(lines: int) -> str:
    """Write very much to the error stream, and to what print writes to."""
    for number in range(lines):
        print("o" * 500, number)
        sys.stderr.write("e" * 500 + "\n")
    return "flooded"


@server.tool(structured_output=False)
async def die(status: int = 3) -> str:
    """End in the midst of a call."""
    sys.stderr.write(f"dying with {os.environ.get('MAIL_TOKEN', 'nothing')}\n")
    sys.stderr.flush()
    os._exit(status)


@server.tool(annotations=ToolAnnotations(open_world_hint=True), structured_output=False)
async def send_email(to: str, text: str = "") -> str:
    """Send a mail."""
    return f"sent to {to}"


@server.tool(annotations=IDEMPOTENT, structured_output=False)
async def fail(text: str = "") -> str:
    """Fail."""
    raise ToolError(text)


@server.tool(annotations=READING, structured_output=False)
async def picture() -> list[Any]:
    """Show something."""
    return ["look:", Image(data=PIXEL, format="png")]


@server.tool(annotations=READING, structured_output=False)
async def environment() -> str:
    """Tell what it was given."""
    told = {"environment": dict(os.environ), "pid": os.getpid(), "folder": str(Path.cwd())}
    return json.dumps(told)


@server.tool(structured_output=False)
async def grow(name: str, context: Context[Any, Any]) -> str:
    """Have one tool more."""

    async def grown() -> str:
        return name

    server.add_tool(grown, name=name, description=f"Grown as {name}.")
    await context.session.send_tool_list_changed()
    return "grown"


class Guarded:
    """Lets in whoever brings the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != self.token:
            await PlainTextResponse("no", 401)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def main() -> None:
    if sys.argv[1] == "stdio":
        server.run("stdio")
        return
    import uvicorn

    app: Any = server.streamable_http_app()
    if len(sys.argv) > 3:
        app = Guarded(app, sys.argv[3])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")


if __name__ == "__main__":
    main()
