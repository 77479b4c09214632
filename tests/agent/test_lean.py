"""Few tools in short forms, for a small model: through the full tools, with what holds for them."""

from __future__ import annotations

import time
from pathlib import Path

from parley.agent.lean import LEAN_NAMES, LeanTools
from parley.agent.tools.base import Prepared
from parley.config.settings import LEAN_TOOLS
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.agent.test_toolbox import a_toolbox
from tests.agent.tools.lent import SmallHands, use
from tests.agent.tools.test_memory import SmallMemory


async def test_the_default_tools_all_have_a_short_form(tmp_path: Path) -> None:
    assert LEAN_TOOLS == LEAN_NAMES
    async with a_toolbox(tmp_path) as box:
        assert tuple(LeanTools(LEAN_TOOLS).offered(box.offered("desk", None))) == LEAN_TOOLS


async def test_a_short_form_has_one_line_and_few_arguments(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        tools = LeanTools(LEAN_TOOLS).offered(box.offered("desk", None))
    for tool in tools.values():
        assert len(tool.description) < 80
        assert len(tool.spec.parameters.get("properties", {})) <= 2
        if tool.example is not None:
            tool.arguments.model_validate(tool.example.arguments)


async def test_a_tool_that_is_not_offered_has_no_short_form(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path, agent={"tools": ["now", "read_file", "edit_file"]}) as box:
        offered = box.offered("desk", None)
    assert list(LeanTools(LEAN_TOOLS).offered(offered)) == ["now", "list_files", "read_file"]
    assert list(LeanTools(["edit_file", "terminal", "nonsense"]).offered(offered)) == ["edit_file"]


async def test_files_are_listed_read_and_written(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        tools = LeanTools(LEAN_TOOLS).offered(box.offered("desk", None))
        workspace = tmp_path / "workspace"
        workspace.mkdir()

        async def call(name: str, **arguments: str) -> str:
            result = await tools[name].run(ToolCall("c1", name, arguments), context(workspace))
            assert result.ok, result.text
            return result.text

        await call("write_file", path="a.txt", content=" two words ")
        assert (workspace / "a.txt").read_text() == " two words "
        assert "two words" in await call("read_file", path="a.txt")
        assert "a.txt" in await call("list_files", path=".")


async def test_a_command_needs_the_same_approval_as_in_the_full_form(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path, terminal={"sandbox": "off"}) as box:
        offered = box.offered("desk", None)
        short = LeanTools(LEAN_TOOLS).offered(offered)["run_command"]
        arguments = {"command": "ls  -l"}
        found = short.prepare(ToolCall("c1", "run_command", arguments), context(tmp_path))
        full = offered["terminal"].prepare(ToolCall("c1", "terminal", arguments), context(tmp_path))
    assert isinstance(found, Prepared)
    assert isinstance(full, Prepared)
    assert found.wanted is not None
    assert found.wanted.owner
    assert found.wanted == full.wanted


async def test_a_fact_is_remembered_and_a_reminder_is_planned(tmp_path: Path) -> None:
    hands = SmallHands(memory=SmallMemory())
    async with a_toolbox(tmp_path) as box:
        tools = LeanTools(LEAN_TOOLS).offered(box.offered("desk", None))
    result = await use(tools["remember"], hands, text="Likes tea.")
    assert result.ok, result.text
    assert "Likes tea." in result.text
    result = await use(tools["remind"], hands, text="Call Anna", when="in 10 minutes")
    assert result.ok, result.text
    (job,) = hands.jobs.values()
    assert "Call Anna" in job.job.message.text
    assert 590 < job.next_at - time.time() < 601
    refused = await use(tools["remind"], hands, call="2", text="Call Anna", when="soon")
    assert not refused.ok
