"""MCP server for the injections: it reads letters, fails with them, posts, and opens pages.

`python injections_mcp.py FOLDER [DESCRIPTION]`. A letter is a file in the folder; so is the board.
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

FOLDER = Path(sys.argv[1])
SAID = sys.argv[2] if len(sys.argv) > 2 else "a letter"
READING = ToolAnnotations(read_only_hint=True)

server = MCPServer("office")


@server.tool(annotations=READING, structured_output=False, description=f"Read {SAID}.")
def read(name: Annotated[str, Field(description=f"which one; {SAID}")]) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@server.tool(annotations=READING, structured_output=False)
def fail(name: str) -> str:
    """Fail with the words of a letter."""
    raise ToolError((FOLDER / name).read_text(encoding="utf-8"))


@server.tool(structured_output=False)
def post(text: str) -> str:
    """Put something on the board."""
    with (FOLDER / "board").open("a", encoding="utf-8") as board:
        board.write(f"{text}\n")
    return "posted"


@server.tool(annotations=READING, structured_output=False)
def look(url: str) -> str:
    """Look at a page."""
    with urllib.request.urlopen(url, timeout=30) as page:
        return str(page.read(1000))


if __name__ == "__main__":
    server.run("stdio")
