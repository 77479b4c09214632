"""The tools of a real server: what the model is told of them, and what a call brings back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parley.agent.mcp import McpServers
from parley.agent.tools.base import Prepared, Wanted
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.agent.mcp.house import QUICK, call, raw, real, running, tool_of
from tests.waiting import until


def wanted(servers: McpServers, name: str, /, **arguments: Any) -> Wanted | None:
    prepared = tool_of(servers, name).prepare(ToolCall("c1", name, arguments), context())
    assert isinstance(prepared, Prepared)
    return prepared.wanted


async def test_tools_are_listed_by_server_and_name_and_always_in_the_same_order(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"mail": real(), "a-raw": raw("well")}) as servers:
        names = [tool.name for tool in servers.tools()]
        assert names[0] == "a-raw__echo"
        assert names == sorted(names)
        assert {"mail__echo", "mail__add", "mail__send_email"} <= set(names)
        assert servers.tools() == servers.tools()
        told = tool_of(servers, "mail__add").spec
        assert told.description == "Add two numbers."
        assert set(told.parameters["properties"]) == {"a", "b"}
        assert servers.health() == {}


async def test_a_call_brings_back_text_structure_and_the_names_of_pictures(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        assert (await call(servers, "t__echo", text="grüß dich")).text == "grüß dich"
        assert json.loads((await call(servers, "t__add", a=2, b=3)).text) == {"sum": 5}
        seen = await call(servers, "t__picture")
        assert seen.text == "look:\n[image image/png, 5 kB, not shown]"


async def test_an_error_of_the_tool_is_a_result_that_is_not_ok(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        failed = await call(servers, "t__fail", text="the mailbox is full")
        assert not failed.ok
        assert "the mailbox is full" in failed.text
        wrong = await call(servers, "t__add", a="many")
        assert not wrong.ok
        assert servers.health() == {}


async def test_a_call_that_takes_too_long_is_given_up_and_the_server_goes_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"t": real(timeout_seconds=0.2)}) as servers:
        late = await call(servers, "t__sleep", seconds=30)
        assert not late.ok
        assert "took longer than 0.2 s" in late.text
        assert (await call(servers, "t__echo", text="on")).text == "on"


async def test_only_the_tools_that_are_wanted_are_offered(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real(tools=["echo", "nothing"])}) as servers:
        assert [tool.name for tool in servers.tools()] == ["t__echo"]


async def test_a_server_that_is_switched_off_is_not_started(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real(enabled=False)}) as servers:
        assert servers.tools() == ()
        assert servers.health() == {}


async def test_a_list_that_changes_is_read_again(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        before = tool_of(servers, "t__echo")
        await call(servers, "t__grow", name="leaf")
        await until(lambda: any(tool.name == "t__leaf" for tool in servers.tools()))
        assert (await call(servers, "t__leaf")).text == "leaf"
        assert tool_of(servers, "t__echo").spec == before.spec


async def test_hints_say_what_may_be_repeated_and_run_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        echo, mail = tool_of(servers, "t__echo"), tool_of(servers, "t__send_email")
        fail = tool_of(servers, "t__fail")
        assert (echo.safe_to_repeat, echo.parallel) == (True, True)
        assert (mail.safe_to_repeat, mail.parallel) == (False, False)
        assert (fail.safe_to_repeat, fail.parallel) == (True, False)


async def test_a_person_is_asked_before_what_is_not_read_only(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        assert wanted(servers, "t__echo", text="x") is None
        asked = wanted(servers, "t__send_email", to="bob\u202e@x", text="ä\n")
        assert isinstance(asked, Wanted)
        assert asked.what == (
            "use `send_email` of the MCP server `t` with these arguments\n\n"
            '```\nto = "bob\\u202e@x"\ntext, 2 lines:\n1 | ä\n2 |\n```'
        )


@pytest.mark.parametrize(
    ("ask", "reading", "writing"),
    [("always", True, True), ("never", False, False), ("auto", False, True)],
)
async def test_the_owner_says_when_a_person_is_asked(
    tmp_path: Path, ask: str, reading: bool, writing: bool
) -> None:
    async with running(tmp_path, {"t": real(ask=ask)}) as servers:
        assert (wanted(servers, "t__echo", text="x") is not None) == reading
        assert (wanted(servers, "t__send_email", to="x") is not None) == writing


@pytest.mark.parametrize("ask", ["auto", "never"])
async def test_a_tool_with_a_safety_trigger_is_asked_by_it(tmp_path: Path, ask: str) -> None:
    settings = real(ask=ask, triggers={"send_email": "email-send"})
    async with running(tmp_path, {"t": settings}) as servers:
        asked = wanted(servers, "t__send_email", to="x")
        assert asked is not None
        assert asked.trigger == "email-send"


async def test_always_is_always_whatever_trigger_a_person_has_off(tmp_path: Path) -> None:
    settings = real(ask="always", triggers={"send_email": "email-send"})
    async with running(tmp_path, {"t": settings}) as servers:
        asked = wanted(servers, "t__send_email", to="x")
        assert asked is not None
        assert asked.trigger is None


async def test_foreign_words_are_short_and_hold_no_control_characters(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": raw("broken schemas")}) as servers:
        assert [tool.name for tool in servers.tools()] == ["t__echo"]
        told = tool_of(servers, "t__echo").description
        assert len(told) <= 500
        assert told.startswith("Say it [31m again. long")
        assert "array, long, strange" in servers.health()["t"]


async def test_a_server_that_knows_only_the_newer_way_is_spoken_to_in_it(tmp_path: Path) -> None:
    limits = replace(QUICK, look_every=0.1)
    async with running(tmp_path, {"t": raw("newer")}, limits=limits) as servers:
        assert servers.health() == {}
        assert (await call(servers, "t__echo", text="hello")).text == "hello"
        await until(lambda: len(servers.tools()) >= 4)


async def test_no_more_tools_are_taken_than_anyone_could_use(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": raw("endless pages")}) as servers:
        assert len(servers.tools()) == 128
