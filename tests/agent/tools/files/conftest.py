"""A workspace with a secret beside it, and a hand for it: sandboxed where that works, and not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from parley.agent.sandbox import Sandbox, SandboxMode, find_sandbox
from parley.agent.tools import ToolResult
from parley.agent.tools.files import FileHand, file_tools
from parley.protocol import ToolCall
from tests.agent.builders import context

SECRET = "the secret"


@dataclass(frozen=True, slots=True)
class Files:
    """The tools for a workspace's files, as the model has them."""

    workspace: Path
    hand: FileHand
    sandboxed: bool
    own: Path | None = None

    async def __call__(self, name: str, **arguments: Any) -> ToolResult:
        tools = {tool.name: tool for tool in file_tools(self.hand)}
        here = replace(context(self.workspace), private=self.own)
        return await tools[name].run(ToolCall("c1", name, arguments), here)

    async def read(self, path: str, **more: Any) -> ToolResult:
        return await self("read_file", path=path, **more)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "MY_TOKEN": SECRET}


def make_hand(workspace: Path, mode: SandboxMode, **more: Any) -> FileHand:
    def sandbox() -> Sandbox:
        return find_sandbox(mode)

    return FileHand(workspace, sandbox=sandbox, environment=environment(), **more)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture(params=["auto", "off"], ids=["sandboxed", "restricted"])
def mode(request: pytest.FixtureRequest) -> SandboxMode:
    chosen: SandboxMode = request.param
    if chosen == "auto" and not find_sandbox("auto").contains:
        pytest.skip("bubblewrap does not work on this machine")
    return chosen


@pytest.fixture
async def files(workspace: Path, mode: SandboxMode) -> AsyncIterator[Files]:
    hand = make_hand(workspace, mode)
    yield Files(workspace, hand, sandboxed=mode == "auto")
    await hand.close()
