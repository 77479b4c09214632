"""Which tools a turn is offered, and what the model is told of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.agent.person import TOOLS_OF_SKILLS, UserSettings
from parley.agent.toolbox import Toolbox
from parley.config import Settings
from parley.config.settings import DEFAULT_TOOLS
from parley.profiles import Profile
from parley.protocol import Behalf, ChatMessage, ParleyError, Request, ToolCall
from tests.agent.builders import context
from tests.agent.mcp.house import raw

SEARCHED = {"search": {"provider": "searxng", "url": "http://127.0.0.1:9/"}}
_NEVER_IN_A_TASK = {"clarify", "delegate_task", "memory", "schedule", "send_message"}


@asynccontextmanager
async def a_toolbox(home: Path, **settings: Any) -> AsyncIterator[Toolbox]:
    made = make(home, settings)
    try:
        yield made
    finally:
        await made.close()


def make(home: Path, settings: Mapping[str, Any]) -> Toolbox:
    checked = Settings.model_validate(settings)
    profile = Profile("default", home)
    return Toolbox(profile, checked, secret=lambda _: None, environment={})


def a_task(platform: str = "desk", allowed: tuple[str, ...] | None = None) -> Request:
    behalf = Behalf("desk:ann", "s1", platform)
    return Request("r1", (ChatMessage("user", "go"),), allowed=allowed, behalf=behalf)


async def test_every_tool_of_the_default_is_there_in_a_stable_order(tmp_path: Path) -> None:
    (tmp_path / "skills" / "tea").mkdir(parents=True)
    (tmp_path / "skills" / "tea" / "SKILL.md").write_text("---\ndescription: tea\n---\nHot water.")
    async with a_toolbox(tmp_path, web=SEARCHED) as box:
        assert list(box.offered("desk", None)) == sorted(set(DEFAULT_TOOLS) - {"mcp"})


@pytest.mark.parametrize(
    ("search", "is_offered"),
    [
        ({}, False),
        ({"provider": "searxng"}, False),
        ({"provider": "brave", "key_env": "BRAVE_KEY"}, False),
        ({"provider": "searxng", "url": "http://127.0.0.1:9/"}, True),
    ],
    ids=["nobody", "no address", "no key", "set up"],
)
async def test_a_search_that_is_not_set_up_is_not_offered(
    tmp_path: Path, search: dict[str, str], is_offered: bool
) -> None:
    async with a_toolbox(tmp_path, web={"search": search}) as box:
        assert ("web_search" in box.offered("desk", None)) is is_offered


async def test_without_a_skill_there_is_no_tool_to_read_one(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        assert "read_skill" not in box.offered("desk", None)


async def test_where_memory_is_off_there_is_no_tool_for_it(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path, memory={"enabled": False}) as box:
        assert "memory" not in box.offered("desk", None)


async def test_the_model_is_told_little_of_all_of_them(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        told = [tool.spec.to_dict() for tool in box.offered("desk", None).values()]
    assert len(json.dumps(told)) < 7_250


async def test_a_tools_schema_is_a_plain_object(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        tools = box.offered("desk", None)
    for name, tool in tools.items():
        spec = tool.spec
        assert spec.name == name
        assert spec.description
        assert spec.parameters["type"] == "object"
        assert spec.parameters["additionalProperties"] is False
        assert '"title"' not in json.dumps(spec.parameters)
        assert "$ref" not in json.dumps(spec.parameters)


async def test_an_argument_nobody_knows_is_named(tmp_path: Path) -> None:
    async with a_toolbox(tmp_path) as box:
        tools = box.offered("desk", None)
    for name, tool in tools.items():
        result = await tool.run(ToolCall("c1", name, {"nonsense": 1}), context())
        assert not result.ok
        assert "`nonsense`" in result.text


async def test_a_surface_has_its_own_tools(tmp_path: Path) -> None:
    agent = {"tools": ["now", "todo"], "surfaces": {"webhook": ["now"]}}
    async with a_toolbox(tmp_path, agent=agent) as box:
        assert list(box.offered("desk", None)) == ["now", "todo"]
        assert list(box.offered("webhook", None)) == ["now"]


async def test_a_task_may_use_no_tool_that_its_parent_is_not_offered(tmp_path: Path) -> None:
    agent = {"surfaces": {"webhook": ["now", "delegate_task"], "task": list(DEFAULT_TOOLS)}}
    async with a_toolbox(tmp_path, agent=agent) as box:
        assert list(box.offered("task", a_task("webhook"))) == ["now"]
        assert not _NEVER_IN_A_TASK & set(box.offered("task", a_task("desk")))
        assert list(box.offered("task", a_task("desk", ("now", "clarify")))) == ["now"]


@pytest.mark.parametrize("where", ["tools", "surfaces"])
def test_a_tool_that_is_not_there_is_named_with_the_nearest(tmp_path: Path, where: str) -> None:
    names = ["read_fil"]
    agent = {"tools": names} if where == "tools" else {"surfaces": {"webhook": names}}
    with pytest.raises(ParleyError, match=r"no tool `read_fil` .* did you mean `read_file`\?"):
        make(tmp_path, {"agent": agent})


async def test_what_a_person_has_turned_off_is_not_offered_to_them(tmp_path: Path) -> None:
    files = {"read_file", "write_file", "edit_file", "search_files"}
    async with a_toolbox(tmp_path) as box:
        everything = set(box.offered("desk", None))
        for skill, tools in {**TOOLS_OF_SKILLS, "email": (), "unheard-of": ()}.items():
            person = UserSettings.read({f"skills.{skill}": "off"})
            assert set(box.offered("desk", None, person)) == everything - set(tools)
        person = UserSettings.read({"skills.files": "off"})
        assert not files & set(box.offered("task", a_task(), person))
        assert set(box.offered("desk", None)) == everything


async def test_mcp_servers_are_offered_by_their_skill_and_by_their_name(tmp_path: Path) -> None:
    servers = {
        "mail": raw("well", skill="email"),
        "garden": raw("well", skill="gardening"),
        "plain": raw("well"),
    }
    mcp = {name: each.model_dump() for name, each in servers.items()}
    async with a_toolbox(tmp_path, mcp=mcp, agent={"tools": ["mcp", "now"]}) as box:
        box.start()
        await box.ready()

        def offered(**rows: str) -> list[str]:
            person = UserSettings.read({name.replace("_", "."): on for name, on in rows.items()})
            return list(box.offered("desk", None, person))

        assert offered() == ["now", "garden__echo", "plain__echo"]
        assert offered(skills_email="on") == ["now", "garden__echo", "mail__echo", "plain__echo"]
        assert offered(skills_gardening="off") == ["now", "plain__echo"]
        assert offered(connectors_plain="off") == ["now", "garden__echo"]
        assert offered(skills_email="on", connectors_mail="off") == offered()
