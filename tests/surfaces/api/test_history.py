"""What a program sends of a conversation: what is new is kept, what came before is not lost."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseFunctionToolCall

from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.api.asking import WEATHER, say, user
from tests.surfaces.api.served import Served

TOOL: Any = {"type": "function", "strict": False, **WEATHER["function"]}
BOTH = Reply(tool_calls=(("weather", {"town": "Oslo"}), ("weather", {"town": "Rome"})))
SESSION = "X-Parley-Session-Id"


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


def results(house: House) -> list[str]:
    """What the model was told that its calls gave."""
    return [m["content"] for m in house.asked() if m["role"] == "tool"]


# ── results of several calls ──


async def test_results_of_parallel_calls_all_reach_the_model(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(BOTH)
    first = await client.responses.create(model="default", input="both?", tools=[TOOL])
    calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    given: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{n} degrees"}
        for n, call in enumerate(calls)
    ]
    second = await client.responses.create(
        model="default", input=given, tools=[TOOL], previous_response_id=first.id
    )
    assert results(house) == ["0 degrees", "1 degrees"]
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "tool"]
    await client.responses.create(
        model="default", input="and?", tools=[TOOL], previous_response_id=second.id
    )
    assert results(house) == ["0 degrees", "1 degrees"], "they are kept for later turns"


async def test_results_and_a_further_question_go_together(
    client: AsyncOpenAI, stage: Stage, house: House
) -> None:
    stage.then(BOTH)
    first = await client.responses.create(model="default", input="both?", tools=[TOOL])
    calls = [item for item in first.output if isinstance(item, ResponseFunctionToolCall)]
    given: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": call.call_id}
        for call in calls
    ]
    given.append({"role": "user", "content": "in Fahrenheit"})
    await client.responses.create(
        model="default", input=given, tools=[TOOL], previous_response_id=first.id
    )
    assert results(house) == [call.call_id for call in calls]
    assert house.words()[-1] == "in Fahrenheit"


async def test_a_named_session_takes_several_results_alone(
    served: Served, stage: Stage, house: House
) -> None:
    client = await served.client(**{SESSION: "trip"})
    stage.then(BOTH)
    got = await client.chat.completions.create(
        model="default", messages=[user("both?")], tools=[WEATHER]
    )
    calls = got.choices[0].message.tool_calls or []
    given: Any = [
        {"role": "tool", "tool_call_id": call.id, "content": f"{n} degrees"}
        for n, call in enumerate(calls)
    ]
    await client.chat.completions.create(model="default", messages=given, tools=[WEATHER])
    assert results(house) == ["0 degrees", "1 degrees"]
    assert [m["role"] for m in house.asked()] == ["user", "assistant", "tool", "tool"]


async def test_a_result_that_is_sent_again_after_a_failure_is_told_once(
    served: Served, stage: Stage, house: House
) -> None:
    client = await served.client(**{SESSION: "trip"})
    stage.then(BOTH)
    messages: list[Any] = [user("both?")]
    got = await client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    messages.append(got.choices[0].message)
    calls = got.choices[0].message.tool_calls or []
    for attempt in ("bad", "good"):
        told: Any = [
            {"role": "tool", "tool_call_id": call.id, "content": f"{attempt} {n}"}
            for n, call in enumerate(calls)
        ]
        if attempt == "bad":
            stage.then(Reply(status=401))
            with pytest.raises(Exception, match=r"\w"):
                await client.chat.completions.create(
                    model="default", messages=[*messages, *told], tools=[WEATHER]
                )
        else:
            await client.chat.completions.create(
                model="default", messages=[*messages, *told], tools=[WEATHER]
            )
    assert results(house) == ["good 0", "good 1"]


# ── several items at once ──


async def test_several_input_items_come_behind_the_earlier_conversation(
    client: AsyncOpenAI, house: House
) -> None:
    first = await client.responses.create(model="default", input="My name is Ann.")
    items: Any = [user("A note: I like tea."), user("Who am I?")]
    second = await client.responses.create(
        model="default", input=items, previous_response_id=first.id
    )
    before = ["My name is Ann.", "echo: My name is Ann.", "A note: I like tea.", "Who am I?"]
    assert house.words() == before
    await client.responses.create(model="default", input="Sure?", previous_response_id=second.id)
    assert house.words() == [*before, second.output_text, "Sure?"]


@pytest.mark.parametrize("branch", [False, True], ids=["last", "in the middle"])
async def test_an_exchange_in_the_input_is_new_too(
    client: AsyncOpenAI, house: House, branch: bool
) -> None:
    first = await client.responses.create(model="default", input="one")
    if branch:
        await client.responses.create(model="default", input="x", previous_response_id=first.id)
    items: Any = [user("two"), assistant("zwei"), user("three")]
    second = await client.responses.create(
        model="default", input=items, previous_response_id=first.id
    )
    assert house.words() == ["one", "echo: one", "two", "zwei", "three"]
    await client.responses.create(model="default", input="four", previous_response_id=second.id)
    assert house.words() == ["one", "echo: one", "two", "zwei", "three", "echo: three", "four"]


async def test_several_messages_come_behind_a_named_session(served: Served, house: House) -> None:
    client = await served.client(**{SESSION: "trip"})
    await say(client, "one")
    await client.chat.completions.create(model="default", messages=[user("two"), user("three")])
    assert house.words() == ["one", "echo: one", "two", "three"]
    await say(client, "four")
    assert house.words() == ["one", "echo: one", "two", "three", "echo: two | three", "four"]


async def test_a_run_keeps_every_item_of_its_input(served: Served, house: House) -> None:
    client = await served.client()
    first = await client.responses.create(model="default", input="one")
    body = {"input": [user("two"), user("three")], "previous_response_id": first.id}
    assert (await served.post("/v1/runs", body)).status == 202
    await house.model.until(lambda m: m.total == 2)
    assert house.words() == ["one", "echo: one", "two", "three"]


# ── a history that was edited ──

STORED = ("one", "echo: one", "two", "echo: two")
EDITED = {
    "an answer was edited": ("one", "echo: eins", "two", "echo: two"),
    "a question was edited": ("eins", "echo: one", "two", "echo: two"),
    "something was taken back": STORED[:2],
    "something was added": (*STORED, "x", "y"),
}


def told(*texts: str) -> list[Any]:
    return [assistant(t) if n % 2 else user(t) for n, t in enumerate(texts)]


@pytest.mark.parametrize("case", EDITED)
async def test_an_edited_history_is_what_later_turns_remember(
    served: Served, house: House, case: str
) -> None:
    client = await served.client(**{SESSION: "trip"})
    for text in STORED[::2]:
        await say(client, text)
    edited = EDITED[case]
    await client.chat.completions.create(model="default", messages=told(*edited, "three"))
    assert house.words() == [*edited, "three"]
    await say(client, "four")
    assert house.words() == [*edited, "three", "echo: three", "four"]
    await served.restart()
    await say(client, "five")
    assert house.words()[: len(edited)] == [*edited]


async def test_what_was_edited_away_stays_in_a_session_of_its_own(served: Served) -> None:
    client = await served.client(**{SESSION: "trip"})
    await say(client, "one")
    await client.chat.completions.create(model="default", messages=told("eins", "zwei", "drei"))
    texts = [[each.text for each in one] for one in await served.transcripts()]
    assert texts == [["one", "echo: one"], ["eins", "zwei", "drei", "echo: drei"]]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_tells_what_it_was_told_stays_in_its_session(
    served: Served, stage: Stage, house: House, stream: bool
) -> None:
    """The profile's own tools split an answer in steps that the client sees as one message."""
    client = await served.client(**{SESSION: "trip"})
    messages: list[Any] = []
    for text in ("time?", "sure?", "really?"):
        stage.then(Reply(text="I look.", tool_calls=(("now", {}),)), Reply(text=f"Noon. {text}"))
        messages.append(user(text))
        if stream:
            async with client.chat.completions.stream(model="default", messages=messages) as got:
                answer = (await got.get_final_completion()).choices[0].message.content
        else:
            whole = await client.chat.completions.create(model="default", messages=messages)
            answer = whole.choices[0].message.content
        messages.append(assistant(answer or ""))
    assert len(await served.transcripts()) == 1
    assert len(results(house)) == 3, "what the tools found is still known"


async def test_a_client_that_sends_its_last_messages_only_stays_in_its_session(
    served: Served, house: House
) -> None:
    client = await served.client(**{SESSION: "trip"})
    messages: list[Any] = []
    for number in range(6):
        messages = [*messages[-3:], user(f"{number}")]
        got = await client.chat.completions.create(model="default", messages=messages)
        messages.append(assistant(got.choices[0].message.content or ""))
    assert len(await served.transcripts()) == 1
    assert len(house.words()) == 11
