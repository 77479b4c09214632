"""Messages and their answers over a real socket, with a real gateway and a scripted model."""

from __future__ import annotations

import pytest

from tests.servers.scripted_reply import Reply
from tests.servers.stage import Stage
from tests.surfaces.agent_ws.line import ALL, DirectHouse, text_of
from tests.waiting import until


async def test_a_plain_client_is_told_the_answer_as_it_is_made(direct: DirectHouse) -> None:
    async with direct.line() as line:
        status = line.seen[0]
        assert (status["protocol"], status["profile"]) == (1, "default")
        assert set(status["capabilities"]) == set(ALL)
        frames = await line.exchange("hello [[chunks 4]]")
        assert [each["type"] for each in frames[:-1]] == ["AGENT_EVENT_TEXT_CHUNK"] * 4
        assert text_of(frames) == "echo: hello [[chunks 4]]"
        assert frames[-1] == {"type": "AGENT_EVENT_END", "tokens_used": 10}


async def test_messages_of_one_connection_are_answered_one_after_the_other(
    direct: DirectHouse,
) -> None:
    async with direct.line() as line:
        for number in range(3):
            await line.send("USER_MESSAGE", text=f"say {number} [[delay 0.05]]")
        for number in range(3):
            before = len(line.seen)
            await line.until("AGENT_EVENT_END")
            assert text_of(line.seen[before:]) == f"echo: say {number} [[delay 0.05]]"
    [said] = (await direct.lanes()).values()
    assert [role for role, _ in said] == ["user", "assistant"] * 3


async def test_more_messages_than_may_wait_are_refused_and_the_others_are_answered(
    direct: DirectHouse,
) -> None:
    async with direct.line(knows=ALL) as line:
        for number in range(12):
            await line.send("USER_MESSAGE", text=f"say {number} [[delay 0.3]]", id=f"m{number}")
        refused: list[str] = []
        answered: list[str] = []
        for _ in range(12):
            frame = await line.until("ERROR", "AGENT_EVENT_END")
            (refused if frame["type"] == "ERROR" else answered).append(frame["id"])
            if frame["type"] == "ERROR":
                assert frame["code"] == "BUSY"
    assert len(answered) in {8, 9}
    assert [*answered, *refused] == [f"m{number}" for number in range(12)]


async def test_a_failed_turn_is_an_error_with_its_sentence_and_the_connection_stays(
    direct: DirectHouse, stage: Stage
) -> None:
    async with direct.line() as line:
        stage.then(Reply(status=401, body="{}"))
        [error] = await line.exchange("hello")
        assert (error["type"], error["code"]) == ("ERROR", "auth")
        assert error["details"].endswith(".")
        assert (await line.ask("again")).endswith("again")


async def test_a_reply_that_begins_again_is_an_error_for_a_client_that_cannot_take_back(
    direct: DirectHouse, stage: Stage
) -> None:
    async with direct.line() as line:
        stage.then(Reply("Paris is the capi", chunks=2, cut_after=2), Reply("It is Paris."))
        frames = await line.exchange("What is the capital of France?")
        assert (frames[-1]["type"], frames[-1]["code"]) == ("ERROR", "broken")
        assert "Paris is the capi".startswith(text_of(frames[:-1]))
        assert (await line.ask("again")).endswith("again")


async def test_a_reply_that_begins_again_the_same_way_is_one_answer(
    direct: DirectHouse, stage: Stage
) -> None:
    async with direct.line() as line:
        stage.then(
            Reply("Paris is the capi", chunks=2, cut_after=2), Reply("Paris is the capital.")
        )
        frames = await line.exchange("What is the capital of France?")
        assert text_of(frames) == "Paris is the capital."
        assert frames[-1]["type"] == "AGENT_EVENT_END"


async def test_a_reply_that_begins_again_is_reset_for_a_client_that_can(
    direct: DirectHouse, stage: Stage
) -> None:
    async with direct.line(knows=ALL) as line:
        stage.then(Reply("Paris is the capi", chunks=2, cut_after=2), Reply("It is Paris."))
        frames = await line.exchange("What is the capital of France?")
        assert frames[-1]["type"] == "AGENT_EVENT_END"
        kinds = [each["type"] for each in frames]
        assert text_of(frames[kinds.index("AGENT_EVENT_RESET") :]) == "It is Paris."


@pytest.mark.parametrize("knows", [None, ALL], ids=["plain", "knows-all"])
async def test_what_is_said_before_a_tool_is_used_stands_apart(
    direct: DirectHouse, stage: Stage, knows: tuple[str, ...] | None
) -> None:
    stage.then(Reply("Let me look.", tool_calls=(("now", {}),)), Reply("It is late."))
    async with direct.line(knows=knows) as line:
        frames = await line.exchange("What time is it?")
    if knows is None:
        assert text_of(frames) == "Let me look.\n\nIt is late."
        assert {each["type"] for each in frames} == {"AGENT_EVENT_TEXT_CHUNK", "AGENT_EVENT_END"}
        return
    tools = [each for each in frames if each["type"] == "AGENT_EVENT_TOOL"]
    assert [(each["name"], each["state"]) for each in tools] == [
        ("now", "started"),
        ("now", "finished"),
    ]
    assert tools[1]["ok"] is True
    assert text_of(frames[frames.index(tools[0]) :]) == "It is late."


async def test_instructions_are_in_the_system_prompt(direct: DirectHouse) -> None:
    async with direct.line(knows=ALL) as line:
        await line.ask("hi", instructions="Speak like a sailor.")
    system = direct.house.model.requests[-1].json["messages"][0]
    assert system["role"] == "system"
    assert "Speak like a sailor." in system["content"]


async def test_who_leaves_without_an_id_is_no_longer_answered(direct: DirectHouse) -> None:
    async with direct.line() as line:
        await line.send("USER_MESSAGE", text="count [[chunks 50]][[pace 0.1]]")
        await line.until("AGENT_EVENT_TEXT_CHUNK")
        line.drop()
    store = direct.house.store
    assert store is not None
    await until(lambda: not direct.direct._open)
    async with direct.line() as line:
        assert "echo: next" in await line.ask("next")
    [said] = (await direct.lanes()).values()
    assert [role for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert len(said[1][1]) < len("echo: count [[chunks 50]][[pace 0.1]]")


async def test_a_message_that_was_handed_on_too_often_is_not_handed_on_again(
    direct: DirectHouse,
) -> None:
    async with direct.line() as line:
        [error] = await line.exchange("hello", hops=6)
        assert error["code"] == "agent_loop"
        assert await line.ask("hello", hops=5) == "echo: hello"
    async with direct.line(headers={"X-Parley-Hops": "5"}) as line:
        assert await line.ask("hello") == "echo: hello"


async def test_an_empty_message_is_refused_and_the_connection_stays(direct: DirectHouse) -> None:
    async with direct.line() as line:
        [error] = await line.exchange("  ")
        assert error["code"] == "empty"
        assert await line.ask("hello") == "echo: hello"
    assert len(direct.house.model.requests) == 1
