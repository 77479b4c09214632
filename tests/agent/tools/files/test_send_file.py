"""The tool `send_file`: a file of the workspace goes out with the answer, and nothing else does."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from parley.agent.tools import ToolResult
from parley.agent.tools.files.sending import send_file_tool
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.agent.tools.files.conftest import SECRET, Files

_PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"


async def _send(files: Files, path: str) -> ToolResult:
    kept = files.workspace.parent / "attachments"
    sending = send_file_tool(files.hand, kept)
    return await sending.run(ToolCall("c1", "send_file", {"path": path}), context(files.workspace))


async def test_a_file_goes_out_as_it_was_when_it_was_sent(files: Files) -> None:
    (files.workspace / "charts").mkdir()
    chart = files.workspace / "charts" / "sales.png"
    chart.write_bytes(_PNG)

    result = await _send(files, "charts/sales.png")
    chart.write_bytes(b"changed since")

    assert result.ok
    [sent] = result.attachments
    assert (sent.name, sent.media_type, sent.size) == ("sales.png", "image/png", len(_PNG))
    assert Path(sent.path).read_bytes() == _PNG
    assert Path(sent.path).name == hashlib.sha256(_PNG).hexdigest()
    assert Path(sent.path).stat().st_mode & 0o077 == 0


async def test_a_file_of_the_largest_size_goes_out(files: Files) -> None:
    whole = bytes(20 * 1024 * 1024)
    (files.workspace / "video.mp4").write_bytes(whole)
    result = await _send(files, "video.mp4")
    assert result.ok, result.text
    [sent] = result.attachments
    assert Path(sent.path).read_bytes() == whole


@pytest.mark.parametrize("how", ["link", "folder_link", "dots", "absolute"])
async def test_nothing_outside_of_the_workspace_is_sent(files: Files, how: str) -> None:
    secret = files.workspace.parent / "secret.txt"
    (files.workspace / "link").symlink_to(secret)
    (files.workspace / "out").symlink_to(secret.parent)
    path = {
        "link": "link",
        "folder_link": "out/secret.txt",
        "dots": "../secret.txt",
        "absolute": str(secret),
    }[how]

    result = await _send(files, path)

    assert not result.ok
    assert result.attachments == ()
    assert SECRET not in result.text


@pytest.mark.parametrize("what", ["missing", "folder", "empty", "large", "pipe"])
async def test_what_cannot_be_sent_is_told_in_a_sentence(files: Files, what: str) -> None:
    there = files.workspace / what
    if what == "folder":
        there.mkdir()
    elif what == "empty":
        there.touch()
    elif what == "large":
        with there.open("wb") as file:
            file.truncate(20 * 1024 * 1024 + 1)
    elif what == "pipe":
        os.mkfifo(there)

    result = await _send(files, what)

    assert not result.ok
    assert result.attachments == ()
    assert result.text.endswith(".")
