"""What the model is sent: stable, small, trimmed between turns, and always well-formed."""

from __future__ import annotations

import itertools
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.person import Soul
from parley.agent.prompt import (
    DEFAULT_SOUL,
    build_system,
    first_kept,
    mend,
    unanswered_calls,
)
from parley.agent.tokens import estimate_tokens
from parley.config.settings import DEFAULT_TOOLS
from parley.protocol import ChatMessage, SessionSource, ToolCall
from tests.agent.builders import numbered
from tests.gateway.desk import Desk
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.waiting import until

# ── the beginning ──


def test_the_system_prompt_names_place_and_person() -> None:
    source = SessionSource("terminal", "main", user_id="owner", user_name="Ann")
    assert build_system("Be kind.\n", source) == (
        "Be kind.\n\nYou are talking in a terminal with Ann."
    )


def test_a_group_is_named() -> None:
    source = SessionSource("matrix", "r1", chat_type="group", chat_name="Garden")
    assert build_system("Be kind.", source).endswith("in Matrix in the group Garden.")
    unnamed = SessionSource("matrix", "r1", chat_type="group")
    assert build_system("Be kind.", unnamed).endswith("in Matrix in a group.")


@pytest.mark.parametrize("soul", ["", "  \n\t"])
def test_a_blank_soul_is_the_usual_one(soul: str) -> None:
    assert build_system(soul, SessionSource("terminal")).startswith(DEFAULT_SOUL)


def test_what_a_person_wishes_comes_last_is_theirs_and_is_bounded() -> None:
    source = SessionSource("terminal", "main", user_name="Ann")
    plain = build_system("Be kind.", source, skills="Skills: none.")
    assert build_system("Be kind.", source, skills="Skills: none.", person=Soul(" ", "\n")) == plain
    wished = build_system(
        "Be kind.", source, skills="Skills: none.", person=Soul("Max\nIgnore", "Rhyme.")
    )
    assert wished == (
        f"{plain}\n\nThis person calls you Max Ignore.\nThey wish, within what you may do:\nRhyme."
    )
    endless = build_system("Be kind.", source, person=Soul("x" * 9_000, "y" * 90_000))
    assert len(endless) < 2_300
    small = build_system("Be kind.", source, brief=True, person=Soul("Max"))
    assert small == "Be kind.\n\nThis person calls you Max."


def test_what_is_remembered_and_a_summary_come_last_of_all() -> None:
    source = SessionSource("terminal", "main", user_name="Ann")
    plain = build_system("Be kind.", source, person=Soul("Max"), instructions="Rhyme.")
    assert plain.endswith("This person calls you Max.\n\nRhyme.")
    whole = build_system(
        "Be kind.",
        source,
        person=Soul("Max"),
        instructions="Rhyme.",
        memory="Notes:\n- [1] likes tea\n",
        summary=" They spoke of tea.\n",
    )
    assert whole == (
        f"{plain}\n\nNotes:\n- [1] likes tea\n\nEarlier in this conversation (a summary; "
        "session_search finds the messages themselves):\nThey spoke of tea."
    )
    assert build_system("Be kind.", source, memory=" \n", summary="\n") == build_system(
        "Be kind.", source
    )


def test_a_very_small_model_is_told_neither() -> None:
    source = SessionSource("terminal", "main")
    told = build_system("Be kind.", source, brief=True, memory="Notes", summary="Tea.")
    assert told == "Be kind."
    asked = build_system("Be kind.", source, brief=True, instructions="Rhyme.")
    assert asked == "Be kind.\n\nRhyme."


async def test_the_soul_is_used_and_a_change_is_seen(house: House) -> None:
    desk = await house.open()

    def system() -> str:
        return str(house.model.requests[-1].json["messages"][0]["content"])

    await desk.ask("hello")
    assert system().startswith(DEFAULT_SOUL)
    house.profile.soul_file.write_text("You are a pirate.")
    await desk.ask("hello")
    assert system().startswith("You are a pirate.")
    house.profile.soul_file.write_text("You are a polite pirate.")
    await desk.ask("hello")
    assert system().startswith("You are a polite pirate.")
    house.profile.soul_file.unlink()
    await desk.ask("hello")
    assert system().startswith(DEFAULT_SOUL)


async def test_a_soul_that_is_not_utf_8_does_not_stop_the_agent(house: House) -> None:
    house.profile.soul_file.write_bytes(b"You are \xff kind.")
    desk = await house.open()
    assert await desk.ask("hello") == "echo: hello"


async def test_a_soul_that_cannot_be_read_is_one_sentence(house: House) -> None:
    house.profile.soul_file.mkdir(parents=True)
    desk = await house.open(access={"owners": ["desk:ann"]})
    answer = await desk.ask("hello")
    assert "SOUL.md" in answer
    assert "inside Parley" not in answer


async def test_each_request_begins_with_the_one_before_byte_for_byte(
    house: House, stage: Stage, model: ScriptedModel
) -> None:
    desk = await house.open()
    await desk.ask("hello")
    await desk.ask("[[tool now {}]] and ünïcode 🎈?")
    stage.then(Reply(text="broken", status=400, body="{}"))
    await desk.ask("this fails")
    stage.then(Reply(text="one two", chunks=2, chunk_delay=30))
    await desk.say("this is stopped")
    await until(lambda: "one" in desk.streamed())
    await desk.ask("/stop")
    await desk.ask("and on")
    await house.close()
    desk = await house.open()
    await desk.ask("after a restart")
    assert model.total == 7
    bodies = [_messages_json(request.body) for request in model.requests]
    for earlier, later in itertools.pairwise(bodies):
        assert later.startswith(earlier.removesuffix("]"))
    tools = {json.dumps(request.json["tools"]) for request in model.requests}
    assert len(tools) == 1


def _messages_json(body: bytes) -> str:
    """The bytes of `messages` as they went over the wire."""
    text = body.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text[start:].lstrip())
    return text[start:].lstrip()[:end]


class _DeskWithFiles(Desk):
    sends_files = True


_NOT_SET_UP = {"mcp", "read_skill", "web_search"}


async def test_a_greeting_with_the_usual_tools_is_a_small_request(
    house: House, model: ScriptedModel
) -> None:
    desk = await house.open()
    await desk.ask("hi")
    assert len(model.requests[0].body) <= 8192
    offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
    assert offered == sorted(set(DEFAULT_TOOLS) - _NOT_SET_UP - {"send_file"})


async def test_where_files_go_out_the_agent_may_send_them_in_as_small_a_request(
    house: House, model: ScriptedModel
) -> None:
    house.desk_type = _DeskWithFiles
    desk = await house.open()
    await desk.ask("hi")
    assert len(model.requests[0].body) <= 8192
    offered = [tool["function"]["name"] for tool in model.requests[0].json["tools"]]
    assert offered == sorted(set(DEFAULT_TOOLS) - _NOT_SET_UP)


# ── trimming ──

TEXTS = st.text(max_size=60)


@st.composite
def turns(draw: st.DrawFn) -> list[ChatMessage]:
    """A transcript as turns leave it: questions, calls with results, steered words, answers."""
    messages: list[ChatMessage] = []
    number = 0
    for _ in range(draw(st.integers(0, 12))):
        messages.append(ChatMessage("user", draw(TEXTS)))
        for _ in range(draw(st.integers(0, 3))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                calls.append(ToolCall(f"c{number}", "hand", {"word": draw(TEXTS)}))
            messages.append(ChatMessage("assistant", draw(TEXTS), tool_calls=tuple(calls)))
            messages += [ChatMessage("tool", draw(TEXTS), tool_call_id=c.id) for c in calls]
            if draw(st.booleans()):
                messages.append(ChatMessage("user", draw(TEXTS)))
        messages.append(ChatMessage("assistant", draw(TEXTS)))
    return messages


def size(messages: list[ChatMessage]) -> int:
    return sum(estimate_tokens(message.size) for message in messages)


@given(turns(), st.integers(0, 1500))
def test_trimming_cuts_only_before_a_persons_message(
    messages: list[ChatMessage], budget: int
) -> None:
    index = first_kept(numbered(messages), budget=budget)
    kept = messages[index:]
    assert (index == 0) == (size(messages) <= budget or not messages)
    assert size(kept) <= budget
    if kept:
        assert kept[0].role == "user"
        calls = {call.id for message in kept for call in message.tool_calls}
        assert all(m.tool_call_id in calls for m in kept if m.role == "tool")


@given(turns(), st.integers(0, 1500), st.data())
def test_after_trimming_the_beginning_stays_for_as_long_as_half_is_free(
    messages: list[ChatMessage], budget: int, data: st.DataObject
) -> None:
    index = first_kept(numbered(messages), budget=budget)
    kept = messages[index:]
    if index == 0 or size(kept) > budget // 2:
        return
    more = data.draw(turns())
    while size(kept) + size(more) <= budget:
        assert first_kept(numbered([*kept, *more]), budget=budget) == 0
        more = [*more, ChatMessage("user", data.draw(TEXTS))]


@given(turns(), st.integers(0, 1500))
def test_what_does_not_fit_is_cut_to_half_where_a_turn_begins(
    messages: list[ChatMessage], budget: int
) -> None:
    if size(messages) <= budget:
        return
    begins = [
        index
        for index, message in enumerate(messages)
        if message.role == "user" and (index == 0 or messages[index - 1].role != "tool")
    ]
    fitting = [index for index in begins if size(messages[index:]) <= budget // 2]
    if fitting:
        assert first_kept(numbered(messages), budget=budget) == fitting[0]


def test_a_newest_turn_of_more_than_half_is_kept_while_it_fits() -> None:
    small = [ChatMessage("user", "x" * 700), ChatMessage("assistant", "y" * 700)]
    large = [ChatMessage("user", "question"), ChatMessage("assistant", "z" * 2000)]
    index = first_kept(numbered([*small, *small, *large]), budget=800)
    assert index == 4


def test_what_does_not_fit_at_all_is_left_out() -> None:
    assert first_kept(numbered([ChatMessage("user", "x" * 7000)]), budget=100) == 1


# ── mending ──

IDS = st.sampled_from(["a", "b", "c"])
ANY_MESSAGE = st.one_of(
    st.builds(ChatMessage, st.just("user"), TEXTS),
    st.builds(
        ChatMessage,
        st.just("assistant"),
        TEXTS,
        tool_calls=st.lists(IDS, max_size=3, unique=True).map(
            lambda ids: tuple(ToolCall(number, "hand") for number in ids)
        ),
        note=st.sampled_from([None, "failed", "interrupted"]),
    ),
    st.builds(ChatMessage, st.just("tool"), TEXTS, tool_call_id=IDS),
)


@given(st.lists(ANY_MESSAGE, max_size=25))
def test_a_mended_transcript_pleases_every_provider(messages: list[ChatMessage]) -> None:
    mended = list(mend(messages))
    said = [m.text for m in messages if m.role == "user"]
    assert [m.text for m in mended if m.role == "user"] == said
    while mended:
        message = mended.pop(0)
        assert message.role != "tool", "a result without its call"
        assert message.role == "user" or message.text or message.tool_calls
        wanted = sorted(call.id for call in message.tool_calls)
        found = [mended.pop(0) for _ in wanted]
        assert all(result.role == "tool" for result in found)
        assert sorted(result.tool_call_id or "" for result in found) == wanted


@given(turns())
def test_a_whole_transcript_is_left_as_it_is(messages: list[ChatMessage]) -> None:
    whole = [m for m in messages if m.role != "assistant" or m.text or m.tool_calls]
    assert list(mend(messages)) == whole


@given(st.lists(ANY_MESSAGE, max_size=25))
def test_mending_twice_is_mending_once(messages: list[ChatMessage]) -> None:
    plain = [m for m in messages if m.note is None]
    once = mend(plain)
    assert mend(once) == once


def test_a_call_that_was_never_answered_gets_an_unknown_outcome() -> None:
    call = ChatMessage("assistant", tool_calls=(ToolCall("a", "hand"),))
    _, _, result, _ = mend([ChatMessage("user", "1"), call, ChatMessage("user", "2")])
    assert (result.note, result.tool_call_id) == ("unknown-outcome", "a")


def test_an_id_used_again_is_a_call_of_its_own() -> None:
    call = ChatMessage("assistant", tool_calls=(ToolCall("a", "hand"),))
    result = ChatMessage("tool", "first", tool_call_id="a")
    assert unanswered_calls([call, result, call]) == call.tool_calls
    assert [m.note for m in mend([call, result, call])] == [None, None, None, "unknown-outcome"]


@given(turns())
def test_a_whole_turn_has_no_unanswered_call(messages: list[ChatMessage]) -> None:
    assert unanswered_calls(messages) == ()


async def test_a_pipe_in_the_place_of_the_soul_holds_nobody_up(house: House) -> None:
    desk = await house.open(access={"owners": ["desk:ann"]})
    os.mkfifo(house.profile.soul_file)
    assert "is not an ordinary file" in await desk.ask("hello")
    house.profile.soul_file.unlink()
    assert await desk.ask("again", chat="two") == "echo: again"
