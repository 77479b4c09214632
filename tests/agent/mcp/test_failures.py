"""A server that hangs, floods or dies harms only itself, and comes back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
import time
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

from parley.agent.mcp import McpLimits
from parley.profiles import Profile, scoped_profile
from parley.protocol import ToolCall
from tests.agent.builders import context
from tests.agent.mcp.house import QUICK, alive, call, raw, real, running, starts, tool_of
from tests.waiting import until


async def test_one_that_hangs_at_the_start_delays_nobody(tmp_path: Path) -> None:
    settings = {"hangs": raw("hang"), "well": raw("well")}
    began = time.monotonic()
    async with running(tmp_path, settings, wait=0.5) as servers:
        assert time.monotonic() - began < QUICK.begin
        await until(servers.tools)
        assert [tool.name for tool in servers.tools()] == ["well__echo"]
        assert servers.waiting() == ("hangs",)
        with pytest.raises(StopIteration):  # it waits for nothing
            servers.ready(0.5).send(None)


async def test_one_that_hangs_at_the_start_is_begun_again(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    limits = replace(QUICK, begin=2.5, end_within=0.1)
    async with running(tmp_path, {"hangs": raw("hang", file)}, limits=limits) as servers:
        await until(lambda: len(starts(file)) >= 2)
        assert "did not answer within 2.5 s" in servers.health()["hangs"]
    assert not any(alive(pid) for pid in starts(file))


async def test_a_slow_one_comes_later(tmp_path: Path) -> None:
    async with running(tmp_path, {"slow": raw("late")}, wait=0.1) as servers:
        assert servers.tools() == ()
        await until(servers.tools)
        assert (await call(servers, "slow__echo", text="here")).text == "here"


async def test_one_that_dies_in_a_call_says_so_and_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real(), "well": raw("well")}) as servers:
        lost = await call(servers, "t__die", status=3)
        assert not lost.ok
        assert "lost during the call" in lost.text
        assert "exit status 3" in lost.text
        down = await call(servers, "t__echo", text="x")
        assert not down.ok
        assert "is not there now" in down.text
        assert (await call(servers, "well__echo", text="on")).text == "on"
        assert any(tool.name == "t__echo" for tool in servers.tools())
        await until(lambda: not servers.health())
        assert (await call(servers, "t__echo", text="back")).text == "back"


async def test_a_call_to_one_that_is_down_fails_at_once(tmp_path: Path) -> None:
    limits = replace(QUICK, first_wait=60.0, longest_wait=60.0)
    async with running(tmp_path, {"t": real()}, limits=limits) as servers:
        await call(servers, "t__die")
        await until(servers.health)
        began = time.monotonic()
        down = await call(servers, "t__echo", text="x")
        assert time.monotonic() - began < 30
        assert "is not there now. It ended with exit status 3." in down.text


async def test_one_that_cannot_stay_is_tried_less_and_less_often(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    limits = replace(QUICK, first_wait=0.1, longest_wait=60.0)
    async with running(tmp_path, {"t": raw("ends at once", file)}, limits=limits) as servers:
        await until(lambda: len(starts(file)) >= 4)
        times = [float(line.split()[1]) for line in file.read_text().splitlines()]
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert gaps[2] > gaps[0]
        told = servers.health()["t"]
        assert told.startswith("It ended with exit status 7. It is started again by itself.")
        assert "mcp-t.log" in told


def test_the_wait_grows_to_a_bound_and_is_never_quite_the_same() -> None:
    limits = McpLimits()
    waits = [[limits.wait(failures) for _ in range(20)] for failures in range(30)]
    assert all(0.375 <= wait <= 0.625 for wait in waits[0])
    assert len(set(waits[0])) > 1
    assert all(wait <= 60.0 for some in waits for wait in some)
    assert min(waits[29]) == 60.0


async def test_noise_between_messages_is_passed_over(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": raw("well")}) as servers:
        assert (await call(servers, "t__echo", text="noise")).text == "noise"
        assert (await call(servers, "t__echo", text="on")).text == "on"
        log = tmp_path / "logs" / "mcp-t.log"
        await until(lambda: log.exists() and "this is no message" in log.read_text())


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("one line", "more than 4096 KiB"),
        ("messages", "messages without end"),
        ("lines", "messages without end"),
        ("requests", "messages without end"),
    ],
)
async def test_a_flood_ends_the_connection_and_takes_no_memory(
    tmp_path: Path, kind: str, why: str
) -> None:
    async with running(tmp_path, {"t": raw("well"), "well": raw("well")}) as servers:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        flooded = await call(servers, "t__echo", text=kind)
        assert not flooded.ok
        assert why in flooded.text
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000
        assert (await call(servers, "well__echo", text="on")).text == "on"
        await until(lambda: not servers.health())
        assert (await call(servers, "t__echo", text="back")).text == "back"


async def test_a_large_result_goes_to_a_file_and_a_giant_one_ends_the_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        call_ = ToolCall("c1", "t__giant", {"size": 2_000_000})
        large = await tool_of(servers, "t__giant").run(call_, context(tmp_path / "workspace"))
        assert large.ok
        assert len(large.text) < 40_000
        giant = await call(servers, "t__giant", size=5_000_000)
        assert not giant.ok
        assert "more than 4096 KiB" in giant.text
        await until(lambda: not servers.health())
        assert (await call(servers, "t__echo", text="back")).text == "back"


async def test_much_on_the_error_stream_is_kept_in_bounds(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        assert (await call(servers, "t__flood", lines=3_000)).text == "flooded"
        logs = tmp_path / "logs"
        await until((logs / "mcp-t.log.1").exists)
    kept = list(logs.glob("mcp-t.log*"))
    assert {log.name for log in kept} == {"mcp-t.log", "mcp-t.log.1"}
    assert all(log.stat().st_size < 1_200_000 for log in kept)
    assert all(log.stat().st_mode & 0o077 == 0 for log in kept)


async def test_one_that_does_not_answer_a_ping_is_begun_again(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    limits = replace(QUICK, look_every=0.1, look_within=0.3)
    async with running(tmp_path, {"t": raw("no ping", file)}, limits=limits):
        await until(lambda: len(starts(file)) >= 2)


async def test_one_that_answers_its_pings_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    limits = replace(QUICK, look_every=0.02, look_within=60.0)
    async with running(tmp_path, {"t": raw("well", file)}, limits=limits) as servers:
        for _ in range(20):
            assert (await call(servers, "t__echo", text="on")).ok
            await asyncio.sleep(0.02)
        assert len(starts(file)) == 1


async def test_one_that_leaves_calls_unanswered_is_begun_again(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    settings = {"t": raw("silent calls", file, timeout_seconds=0.1)}
    async with running(tmp_path, settings) as servers:
        for _ in range(3):
            assert "took longer than 0.1 s" in (await call(servers, "t__echo", text="x")).text
        await until(lambda: len(starts(file)) >= 2)


async def test_an_evil_schema_does_not_hold_up_the_event_loop(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": raw("evil pattern", timeout_seconds=60)}) as servers:
        result = await call(servers, "t__echo", text="x")
        assert result.ok
        assert "aaaa" in result.text


async def test_a_result_that_cannot_be_understood_is_an_error(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": raw("strange result")}) as servers:
        strange = await call(servers, "t__echo", text="x")
        assert not strange.ok
        assert "cannot be understood" in strange.text
        assert servers.health() == {}


async def test_a_call_that_is_cancelled_is_let_go_of_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, {"t": real()}) as servers:
        task = asyncio.create_task(call(servers, "t__sleep", seconds=60))
        await asyncio.sleep(0)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 30
        assert (await call(servers, "t__echo", text="on")).text == "on"


async def test_a_server_works_for_the_profile_and_not_for_the_turn_that_started_it(
    tmp_path: Path,
) -> None:
    turn: ContextVar[str] = ContextVar("turn", default="none")
    seen: list[tuple[str, Profile | None]] = []

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((turn.get(), scoped_profile()))

    logger, watch = logging.getLogger("parley.agent.mcp.server"), Watch()
    logger.addHandler(watch)
    token = turn.set("of alice")
    try:
        async with running(tmp_path, {"t": raw("ends at once")}) as servers:
            await until(servers.health)
    finally:
        turn.reset(token)
        logger.removeHandler(watch)
    assert seen[0] == ("none", Profile("default", tmp_path))
