"""Messages with an id: answered once, however often they come and whoever breaks in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.servers.api_server import local_key
from tests.servers.gateway_process import GatewayProcess, ModelProcess, write_config
from tests.servers.ports import free_port
from tests.servers.scripted_reply import Reply
from tests.servers.stage import Stage
from tests.surfaces.agent_ws.line import ALL, DirectHouse, Line, connect, text_of
from tests.waiting import until

SLOW = "count [[chunks 10]][[pace 0.05]]"


async def _begun(line: Line, text: str = SLOW, id: str = "m1") -> None:
    await line.send("USER_MESSAGE", text=text, id=id)
    await line.until("AGENT_EVENT_TEXT_CHUNK")


async def test_whoever_comes_back_hears_the_whole_answer_and_it_was_made_once(
    direct: DirectHouse,
) -> None:
    async with direct.line(knows=ALL) as line:
        await _begun(line)
        line.drop()
    await until(lambda: not direct.direct._open)
    async with direct.line(knows=ALL) as line:
        frames = await line.exchange(SLOW, id="m1")
        assert text_of(frames) == f"echo: {SLOW}"
        assert frames[-1] == {
            "type": "AGENT_EVENT_END",
            "tokens_used": 10,
            "id": "m1",
            "pending": 0,
        }
        assert await line.exchange(SLOW, id="m1") == [
            {"type": "AGENT_EVENT_TEXT_CHUNK", "text": f"echo: {SLOW}"},
            frames[-1],
        ]
    assert len(direct.house.model.requests) == 1
    await until(lambda: len(direct.direct._turns or ()) == 0)


async def test_two_connections_hear_the_same_answer(direct: DirectHouse) -> None:
    async with direct.line(knows=ALL) as one, direct.line(knows=ALL) as two:
        await _begun(one)
        frames = await two.exchange(SLOW, id="m1")
        await one.until("AGENT_EVENT_END")
        assert text_of(one.seen) == text_of(frames) == f"echo: {SLOW}"
    assert len(direct.house.model.requests) == 1


async def test_the_steps_before_are_told_again_too(direct: DirectHouse, stage: Stage) -> None:
    later = Reply("It is late, very late.", chunks=10, chunk_delay=0.05)
    stage.then(Reply("Let me look.", tool_calls=(("now", {}),)), later)
    async with direct.line(knows=ALL) as one, direct.line(knows=ALL) as two:
        await one.send("USER_MESSAGE", text="What time is it?", id="m1")
        await one.until("AGENT_EVENT_TOOL")
        await one.until("AGENT_EVENT_TEXT_CHUNK")
        frames = await two.exchange("What time is it?", id="m1")
    assert text_of(frames) == "Let me look.It is late, very late."
    assert [each["state"] for each in frames if each["type"] == "AGENT_EVENT_TOOL"] == [
        "started",
        "finished",
    ]


@pytest.mark.parametrize("how", ["CANCEL", "closed"])
async def test_what_nobody_wants_any_more_is_stopped_and_stays_so(
    direct: DirectHouse, how: str
) -> None:
    text = "count [[chunks 100]][[pace 0.1]]"
    async with direct.line(knows=ALL) as line:
        await _begun(line, text)
        if how == "CANCEL":
            await line.send("CANCEL", id="m1")
            error = await line.until("ERROR")
            assert (error["code"], error["id"]) == ("stopped", "m1")
        else:
            await line.socket.close()
    async with direct.line(knows=ALL) as line:
        frames = await line.exchange(text, id="m1")
        assert (frames[-1]["type"], frames[-1]["code"]) == ("ERROR", "stopped")
        assert (await line.ask("next")).endswith("next")
    assert len(direct.house.model.requests) == 2


async def test_a_client_that_goes_away_for_a_while_finds_its_answer(direct: DirectHouse) -> None:
    async with direct.line(knows=ALL) as line:
        await _begun(line)
        await line.socket.close(code=1001)
    async with direct.line(knows=ALL) as line:
        assert await line.ask(SLOW, id="m1") == f"echo: {SLOW}"
    assert len(direct.house.model.requests) == 1


async def test_what_waits_behind_another_message_can_be_cancelled(direct: DirectHouse) -> None:
    async with direct.line(knows=ALL) as line:
        await _begun(line)
        await line.send("USER_MESSAGE", text="never", id="m2")
        await line.send("CANCEL", id="m2")
        assert (await line.until("AGENT_EVENT_END"))["id"] == "m1"
        error = await line.until("ERROR")
        assert (error["code"], error["id"]) == ("stopped", "m2")
    async with direct.line(knows=ALL) as one, direct.line(knows=ALL) as two:
        await _begun(one, id="m3")
        await two.send("USER_MESSAGE", text="never", id="m4")
        await _until_taken(direct, 2)
        await one.send("CANCEL", id="m4")  # from another connection of the thread
        assert (await two.until("ERROR"))["id"] == "m4"
        await one.until("AGENT_EVENT_END")
    assert len(direct.house.model.requests) == 2


async def _until_taken(direct: DirectHouse, number: int) -> None:
    """Wait until so many turns are followed."""
    await until(lambda: len(direct.direct._turns or ()) == number)
    store = direct.house.store
    assert store is not None
    async with asyncio.timeout(60):
        while (await store.health()).queued == 0:
            await asyncio.sleep(0.005)


async def test_the_same_id_in_another_thread_is_another_message(direct: DirectHouse) -> None:
    async with direct.line("t1", knows=ALL) as one, direct.line("t2", knows=ALL) as two:
        assert await one.ask("first", id="m1") == "echo: first"
        assert await two.ask("second", id="m1") == "echo: second"


async def test_a_failure_is_told_again_and_nothing_is_tried_again(
    direct: DirectHouse, stage: Stage
) -> None:
    stage.then(Reply(status=401, body="{}"))
    async with direct.line(knows=ALL) as line:
        [error] = await line.exchange("hello", id="m1")
        [again] = await line.exchange("hello", id="m1")
        assert again["details"] == error["details"]
    assert len(direct.house.model.requests) == 1


async def test_a_gateway_that_stops_says_so_and_the_next_one_answers(direct: DirectHouse) -> None:
    text = "count [[chunks 40]][[pace 0.05]]"
    async with direct.line(knows=ALL) as line, direct.line("t2") as idle:
        await _begun(line, text)
        closing = asyncio.create_task(direct.house.close())
        await asyncio.gather(*(each.until("GRACEFUL_DISCONNECT") for each in (line, idle)))
        assert [*await asyncio.gather(line.closed(), idle.closed())] == [1001, 1001]
        await closing
    assert not [frame for frame in line.seen if frame["type"] == "ERROR"]
    await direct.open()
    async with direct.line(knows=ALL) as line:
        assert await line.ask(text, id="m1") == f"echo: {text}"
    [said] = (await direct.lanes()).values()
    assert said == [("user", text), ("assistant", f"echo: {text}")]


@pytest.mark.timeout(120)
async def test_killed_in_the_middle_of_an_answer_it_is_answered_once_after_all(
    tmp_path: Path,
) -> None:
    home, port = tmp_path / "home", free_port()
    text = "count [[chunks 10]][[pace 0.1]]"
    with ModelProcess() as model, GatewayProcess(home) as gateway:
        profile = write_config(home, model_url=model.base_url, gateway={"port": port})
        gateway.start()
        await gateway.until_ready()
        where = f"http://127.0.0.1:{port}"
        key = local_key(profile)
        async with connect(where, key, knows=ALL) as line:
            await _begun(line, text)
            gateway.kill()
        gateway.start()
        await gateway.until_ready()
        async with connect(where, key, knows=ALL) as line:
            assert await line.ask(text, id="m1") == f"echo: {text}"
            assert await line.ask(text, id="m1") == f"echo: {text}"
        assert await gateway.stop() == 0
