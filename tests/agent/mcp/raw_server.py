"""A program that speaks MCP by hand, and misbehaves as it is told: `raw_server.py <how> [<file>]`.

It needs nothing but the standard library, so it starts fast.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Say it\x1b[31m again.\n" + "long " * 400,
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
]
BROKEN: list[dict[str, Any]] = [
    {"name": "array", "inputSchema": {"type": "array"}},
    {
        "name": "long",
        "inputSchema": {"type": "object", "properties": {"a": {"enum": ["x" * 99999]}}},
    },
    {"name": "strange", "inputSchema": {"type": "object", "properties": [1]}},
]


NEWER: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], how: str) -> dict[str, Any] | None:
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if method == "ping":
        return None if how == "no ping" else {}
    if method == "tools/list":
        if how == "newer":
            TOOLS.append({**TOOLS[0], "name": f"t{len(TOOLS)}"})
        if how == "endless pages":
            return {"tools": numbered(100), "nextCursor": "more"}
        return {"tools": [*TOOLS, *(BROKEN if how == "broken schemas" else [])]}
    if method == "tools/call":
        flood(params["arguments"].get("text", ""))
        if how == "silent calls":
            return None
        if how == "evil pattern":
            return {"content": [], "structuredContent": {"a": "a" * 40 + "!"}}
        if how == "strange result":
            return {"content": "no list"}
        text = params["arguments"].get("text", "")
        return {"content": [{"type": "text", "text": text}]}
    return {}


def flood(kind: str) -> None:
    """Write to the output what does not belong there."""
    if kind == "one line":
        for _ in range(64):
            sys.stdout.write("x" * 1_000_000)
    elif kind == "messages":
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        for _ in range(200_000):
            sys.stdout.write(line + "\n")
    elif kind == "lines":
        for _ in range(2_000):
            sys.stdout.write("\n" * 10_000)
    elif kind == "requests":
        for number in range(200_000):
            say({"id": f"r{number}", "method": "sampling/createMessage", "params": {}})
    elif kind == "noise":
        sys.stdout.write("hello, this is no message\n{\n[]\n\n\x00\n" + "[" * 100_000 + "\n")
    elif kind == "errors":
        for _ in range(6_000):
            sys.stderr.write("e" * 500 + "\n")


def numbered(count: int) -> list[dict[str, Any]]:
    return [
        {"name": f"t{n}-{time.monotonic_ns()}", "inputSchema": {"type": "object"}}
        for n in range(count)
    ]


def main() -> None:
    how = sys.argv[1]
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open("a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")
    if how == "hang":
        time.sleep(600)
    if how == "ends at once":
        sys.exit(7)
    if how == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with Path(sys.argv[2]).open("a") as file:
            file.write(f"{grandchild.pid} 0\n")
    if how == "evil pattern":
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
        TOOLS[0]["outputSchema"] = schema
    if how == "late":
        time.sleep(3)
    while how == "gated" and not Path(f"{sys.argv[2]}.open").exists():
        time.sleep(0.02)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if how == "newer" and request["method"] in {"initialize", "ping"}:
            say({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
            continue
        result = answer(request, how)
        if result is not None:
            say({"id": request["id"], "result": result | (NEWER if how == "newer" else {})})
    if how in {"stubborn", "deaf"}:
        time.sleep(600)


if __name__ == "__main__":
    main()
