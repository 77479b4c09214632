"""What a person is told when the far end is away, restarts, refuses or fails."""

from __future__ import annotations

import asyncio

import pytest

from parley.config.api_keys import KeyFile
from tests.proxy.houses import Pair
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.waiting import until

HI = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """One for each time that the near end waits to ask again; they are long."""
    begun: list[float] = []

    def long() -> float:
        begun.append(0.95)
        return begun[-1]

    monkeypatch.setattr("parley.backends.proxy.client.random.random", long)
    return begun


async def test_a_far_end_that_is_away_is_named(pair: Pair) -> None:
    desk = await pair.open()
    await pair.far.close()
    said = await desk.ask("hi")
    assert said.startswith(f"Proxy connection error: nothing answers at {pair.far.url};")
    await pair.far.open()
    assert await desk.ask("again") == "echo: hi | again"


async def test_a_far_end_that_comes_back_in_time_is_asked_again(
    pair: Pair, pauses: list[float]
) -> None:
    desk = await pair.open()
    assert await desk.ask("one") == "echo: one"
    await pair.far.close()
    await desk.say("two", event_id="e2")
    await until(lambda: pauses)
    await pair.far.open()
    await until(lambda: desk.answer_to("e2"))
    assert desk.texts() == ["echo: one", "echo: two"]
    assert pair.far.words() == ["one", "echo: one", "two"]


async def test_a_restart_in_the_middle_keeps_what_arrived(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    stage.then(Reply(text="Once upon a time there was a hen.", chunks=3, chunk_delay=30))
    await desk.say("tell", event_id="e1")
    await until(desk.streamed)
    begun = desk.streamed()
    await pair.far.close()
    await until(lambda: desk.answer_to("e1"))
    [said] = desk.texts()
    assert said.startswith(begun)
    assert "incomplete" in said
    await pair.far.open()
    assert await desk.ask("go on") == "echo: go on"
    asked = pair.far.words()
    assert [asked[0], asked[2]] == ["tell", "go on"]
    assert asked[1].startswith(begun)
    assert len(asked) == 3


async def test_a_restart_before_the_first_word_is_told(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    stage.then(Reply(text="never", delay=30))
    await desk.say("tell", event_id="e1")
    await pair.model.until(lambda model: model.open_streams == 1)
    await pair.far.close()
    await until(lambda: desk.answer_to("e1"))
    [said] = desk.texts()
    assert said.startswith("Proxy")
    assert "\n" not in said


@pytest.mark.parametrize("before", [[], ["one"]])
async def test_a_restart_before_the_first_word_is_waited_for(
    pair: Pair, stage: Stage, before: list[str]
) -> None:
    desk = await pair.open()
    for text in before:
        await desk.ask(text)
    stage.then(Reply(text="never", delay=30))
    await desk.say("tell", event_id="e1")
    await pair.model.until(lambda model: model.open_streams == 1)
    await pair.far.close()
    await pair.far.open()
    await until(lambda: desk.answer_to("e1"))
    assert desk.texts()[-1] == "echo: tell"
    told = [word for text in before for word in (text, f"echo: {text}")]
    assert pair.far.words() == [*told, "tell"]


async def test_a_wrong_key_is_told_and_not_shown(pair: Pair) -> None:
    await pair.far.open()
    _, token = KeyFile(pair.far.profile).create("near", ["chat"])
    pair.near.far_key = token[:-4] + "wron"
    desk = await pair.near.open()
    said = await desk.ask("hi")
    assert said.startswith("Proxy error (401): ")
    assert said.endswith("check the key in GATEWAY_PROXY_KEY.")
    assert token[-20:-4] not in said
    assert pair.model.total == 0
    pair.near.far_key = token
    assert await desk.ask("now") == "echo: hi | now"


async def test_a_key_that_is_revoked_stops_the_conversation(pair: Pair) -> None:
    await pair.far.open()
    keys = KeyFile(pair.far.profile)
    key, pair.near.far_key = keys.create("near", ["chat"])
    desk = await pair.near.open()
    assert await desk.ask("hi") == "echo: hi"
    keys.revoke(key.id)
    assert (await desk.ask("hi")).startswith("Proxy error (401): ")


async def test_a_key_of_another_scope_is_told(pair: Pair) -> None:
    await pair.far.open()
    _, pair.near.far_key = KeyFile(pair.far.profile).create("near", ["admin"])
    desk = await pair.near.open()
    said = await desk.ask("hi")
    assert said.startswith("Proxy error (403): ")
    assert "scope" in said


async def test_a_far_end_that_drains_is_asked_again_after_its_restart(
    pair: Pair, stage: Stage, pauses: list[float]
) -> None:
    desk = await pair.open(gateway={"drain_seconds": 8})
    stage.then(Reply(text="slow", delay=30))
    await desk.say("first", chat="one", event_id="e1")
    await pair.model.until(lambda model: model.open_streams == 1)
    gateway = pair.far.gateway
    assert gateway is not None
    closing = asyncio.create_task(pair.far.close())
    while (await gateway.status()).state != "stopping":
        await asyncio.sleep(0.005)
    refused = await pair.far.post(HI)
    assert refused.status == 503
    await desk.say("second", chat="two", event_id="e2")
    await until(lambda: pauses)
    gateway.hurry()
    await closing
    await pair.far.open()
    await until(lambda: desk.answer_to("e1") and desk.answer_to("e2"))
    assert desk.texts("two") == ["echo: second"]


async def test_what_the_far_model_says_went_wrong_reaches_the_person(
    pair: Pair, stage: Stage
) -> None:
    desk = await pair.open()
    refusal = Reply(status=400, body='{"error": {"message": "no such stop word"}}')
    stage.then(refusal, refusal)
    there = await pair.far.desk.ask("hi")
    said = await desk.ask("hi")
    assert said.startswith("Proxy error (400): ")
    assert there.rstrip(".") in said


async def test_a_model_that_fails_after_its_first_words_is_told(pair: Pair, stage: Stage) -> None:
    desk = await pair.open()
    cut = Reply(text="Half of", chunks=2, cut_after=1)
    stage.then(*[cut] * 10)
    said = await desk.ask("hi")
    assert "closed the connection" in said
    stage.clear()
    await desk.ask("on")
    assert pair.far.words() == ["hi", "on"]


async def test_a_far_end_that_allows_no_more_says_for_how_long(pair: Pair) -> None:
    await pair.far.open()
    _, pair.near.far_key = KeyFile(pair.far.profile).create("near", ["chat"], per_minute=1)
    desk = await pair.near.open()
    assert await desk.ask("one") == "echo: one"
    said = await desk.ask("two")
    assert said.startswith("Proxy error (429): Too many requests")
    assert said.endswith(("try again in 60 s.", "try again in 59 s."))
    assert pair.model.total == 1


async def test_what_the_far_agent_tried_in_vain_is_not_tried_again_from_here(
    pair: Pair, stage: Stage
) -> None:
    desk = await pair.open()
    stage.then(*[Reply(status=503, body='{"error": {"message": "busy"}}')] * 40)
    there, said = await asyncio.gather(pair.far.desk.ask("hi"), desk.ask("hi"))
    assert said == f"Proxy error (503): {there}"
    first, second = await pair.far.said(), await pair.far.stored_words()
    assert first == second == [("user", "hi"), ("assistant", there)]


async def test_a_profile_that_is_not_there_is_told_with_its_setting(pair: Pair) -> None:
    await pair.far.open()
    desk = await pair.near.open(gateway={"proxy_model": "nobody"})
    said = await desk.ask("hi")
    assert said.startswith("Proxy error (404): There is no model `nobody` for this key;")
    assert said.endswith("; check `gateway.proxy_model`.")
