"""Conversations over the API: which one a request belongs to, and what is remembered in it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from parley.agent.tools import TOOLS, Tool, ToolContext
from parley.config.api_keys import KeyFile
from parley.sessions.context import async_delivery_supported, get_session_env
from tests.gateway.house import House
from tests.servers.scripted_model import Reply
from tests.servers.stage import Stage
from tests.surfaces.api.asking import say, user
from tests.surfaces.api.served import Got, Served, a_key, served_api

CHAT = "/v1/chat/completions"
IDS = ("X-Hermes-Session-Id", "X-Parley-Session-Id")
KEYS = ("X-Hermes-Session-Key", "X-Parley-Session-Key")


def assistant(text: str) -> Any:
    return {"role": "assistant", "content": text}


async def post(served: Served, *texts: str, key: str | None = None, **headers: str) -> Got:
    """Ask with what was said so far: user, assistant, user, …"""
    messages = [assistant(t) if n % 2 else user(t) for n, t in enumerate(texts)]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await served.post(CHAT, {"messages": messages}, key=key, headers=named)


# ── which conversation ──


@pytest.mark.parametrize("name", IDS)
async def test_a_header_continues_a_stored_conversation(
    served: Served, house: House, name: str
) -> None:
    await post(served, "one", **{name: "trip"})
    got = await post(served, "two", **{name: "trip"})
    assert house.words() == ["one", "echo: one", "two"]
    assert [got.headers[each] for each in IDS] == ["trip", "trip"]


async def test_both_names_of_the_header_mean_the_same_conversation(
    served: Served, house: House
) -> None:
    await post(served, "one", **{IDS[0]: "trip"})
    await post(served, "two", **{IDS[1]: "trip"})
    await post(served, "three", **{IDS[0]: "trip", IDS[1]: "trip"})
    assert house.words() == ["one", "echo: one", "two", "echo: two", "three"]


async def test_two_names_that_differ_are_refused(served: Served, house: House) -> None:
    got = await post(served, "one", **{IDS[0]: "trip", IDS[1]: "home"})
    assert got.status == 400
    assert house.model.total == 0


async def test_one_name_with_two_values_is_refused(served: Served, house: House) -> None:
    body = json.dumps({"messages": [user("hi")]}).encode()
    got = await served.speak(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Authorization: Bearer %b\r\nX-Hermes-Session-Id: a\r\nX-Hermes-Session-Id: b\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (served.key.encode(), len(body), body)
    )
    assert got.startswith(b"HTTP/1.1 400 ")
    assert house.model.total == 0


async def test_a_conversation_goes_on_after_a_restart(served: Served, house: House) -> None:
    await post(served, "one", **{IDS[0]: "trip"})
    await served.restart()
    await post(served, "two", **{IDS[0]: "trip"})
    assert house.words() == ["one", "echo: one", "two"]


async def test_strangers_who_open_alike_never_share(served: Served, house: House) -> None:
    got = await asyncio.gather(*(post(served, "hi") for _ in range(8)))
    assert len({one.session for one in got}) == 8
    assert all(house.words(number) == ["hi"] for number in range(8))
    assert min(len(one.session) for one in got) >= 32
    for one in got[:2]:
        await post(served, "again", **{IDS[0]: one.session})
        assert house.words() == ["hi", "echo: hi", "again"]


async def test_a_stream_tells_its_session_too(served: Served, house: House) -> None:
    body = {"messages": [user("one")], "stream": True}
    got = await served.post(CHAT, body)
    assert got.session == got.headers[IDS[0]]
    await post(served, "two", **{IDS[0]: got.session})
    assert house.words() == ["one", "echo: one", "two"]


async def test_two_keys_with_the_same_session_never_share(served: Served, house: House) -> None:
    ann, ben = a_key(house.profile, "ann"), a_key(house.profile, "ben")
    await post(served, "ann's secret", key=ann, **{IDS[0]: "trip"})
    await post(served, "ben asks", key=ben, **{IDS[0]: "trip"})
    assert house.words() == ["ben asks"]
    await post(served, "ann asks", key=ann, **{IDS[0]: "trip"})
    assert house.words() == ["ann's secret", "echo: ann's secret", "ann asks"]


async def test_a_key_that_replaces_another_of_its_name_goes_on(
    served: Served, house: House
) -> None:
    old = a_key(house.profile, "ann")
    a_key(house.profile, "ben")
    await post(served, "one", key=old, **{IDS[0]: "trip"})
    KeyFile(house.profile).revoke("ann")
    new = a_key(house.profile, "ann")
    await post(served, "two", key=new, **{IDS[0]: "trip"})
    assert house.words() == ["one", "echo: one", "two"]


async def test_the_owner_at_the_desk_is_in_another_conversation(
    served: Served, house: House
) -> None:
    await post(served, "from the api", **{IDS[0]: "one"})
    await house.desk.ask("from the desk", chat="one")
    assert house.words() == ["from the desk"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x" * 257,
        "..",
        ".",
        "../up",
        "a..b",
        "a/b",
        "a\\b",
        "caf\u00e9",
        "tab\tin it",
    ],
)
@pytest.mark.parametrize("name", [*IDS, KEYS[0]])
async def test_a_name_that_could_mean_something_else_is_refused(
    served: Served, house: House, name: str, given: str
) -> None:
    got = await post(served, "hi", **{name: given})
    assert got.status == 400
    assert json.loads(got.body)["error"]["type"] == "invalid_request_error"
    assert house.model.total == 0


@pytest.mark.parametrize(
    "given", ["x" * 256, "user@example.org", "a b", "%2e%2e%2f", "agent:main:x"]
)
async def test_a_name_that_is_odd_but_harmless_is_taken_as_it_is(
    served: Served, house: House, given: str
) -> None:
    await post(served, "one", **{IDS[0]: given})
    got = await post(served, "two", **{IDS[0]: given})
    assert got.session == given
    assert house.words() == ["one", "echo: one", "two"]


async def test_names_that_look_alike_are_not_the_same(served: Served, house: House) -> None:
    for number, name in enumerate(["trip", "Trip", "trip:1", "trip%3A1", "%74rip"]):
        await post(served, f"hello {number}", **{IDS[0]: name})
        assert house.words() == [f"hello {number}"]


# ── what was said before: stored, and told ──


STORED = ("one", "echo: one", "two", "echo: two")
GIVEN = {
    "nothing": ((), STORED),
    "all of it": (STORED, STORED),
    "the end of it": (STORED[2:], STORED),
    "less, for something was taken back": (STORED[:2], STORED[:2]),
    "another past": (("eins", "zwei"), ("eins", "zwei")),
    "more than there is": ((*STORED, "x", "y"), (*STORED, "x", "y")),
}


@pytest.mark.parametrize("case", GIVEN)
async def test_what_a_client_tells_of_the_past_is_believed(
    served: Served, house: House, case: str
) -> None:
    told, seen = GIVEN[case]
    for text in ("one", "two"):
        await post(served, text, **{IDS[0]: "trip"})
    await post(served, *told, "three", **{IDS[0]: "trip"})
    assert house.words() == [*seen, "three"]


async def test_a_session_that_begins_with_a_past_keeps_it(served: Served, house: House) -> None:
    await post(served, *STORED, "three", **{IDS[0]: "trip"})
    assert house.words() == [*STORED, "three"]
    await post(served, "four", **{IDS[0]: "trip"})
    assert house.words() == [*STORED, "three", "echo: three", "four"]


async def test_what_tools_found_is_remembered_though_the_client_tells_only_words(
    served: Served, house: House, stage: Stage
) -> None:
    stage.then(Reply(tool_calls=(("now", {}),)), Reply(text="noon"))
    await post(served, "time?", **{IDS[0]: "trip"})
    await post(served, "time?", "noon", "sure?", **{IDS[0]: "trip"})
    roles = [message["role"] for message in house.asked()]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_requests_of_one_session_are_answered_one_after_the_other(
    served: Served, house: House
) -> None:
    texts = [f"[[delay 0.02]] {number}" for number in range(4)]
    await asyncio.gather(*(post(served, text, **{IDS[0]: "trip"}) for text in texts))
    assert house.model.max_open_streams == 1
    assert [len(house.asked(number)) for number in range(4)] == [1, 3, 5, 7]


async def test_requests_of_different_sessions_are_answered_side_by_side(
    served: Served, house: House
) -> None:
    await asyncio.gather(*(post(served, f"[[delay 0.2]] {number}") for number in range(4)))
    assert house.model.max_open_streams > 1


async def test_a_word_that_looks_like_a_command_is_a_question(served: Served, house: House) -> None:
    got = await post(served, "/stop", **{IDS[0]: "trip"})
    assert json.loads(got.body)["choices"][0]["message"]["content"] == "echo: /stop"
    assert house.words() == ["/stop"]


# ── what a turn knows of where it runs ──


class Nothing(BaseModel):
    pass


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """The platform, the memory's key and whether something can come later, as a tool sees them."""
    noted: list[tuple[str, str, bool]] = []

    async def look(arguments: Nothing, context: ToolContext) -> str:
        where, key = get_session_env("platform"), get_session_env("memory_key")
        noted.append((where, key, async_delivery_supported()))
        return "seen"

    monkeypatch.setitem(TOOLS, "look", Tool("look", "Looks around.", Nothing, look))
    return noted


LOOK = "[[tool look {}]]"


async def test_a_turn_over_the_api_cannot_deliver_later_and_one_at_the_desk_can(
    house: House, seen: list[tuple[str, str, bool]]
) -> None:
    async with served_api(house, agent={"tools": ["look"]}) as served:
        await post(served, LOOK)
        await house.desk.ask(LOOK)
        await asyncio.gather(post(served, LOOK), house.desk.ask(LOOK, chat="two"))
    assert seen[:2] == [("api", "", False), ("desk", "", True)]
    assert sorted(seen[2:]) == [("api", "", False), ("desk", "", True)]
    assert (get_session_env("platform"), async_delivery_supported()) == ("", True)


@pytest.mark.parametrize("name", KEYS)
async def test_the_key_of_the_memory_counts_for_its_turn_only(
    house: House, seen: list[tuple[str, str, bool]], name: str
) -> None:
    async with served_api(house, agent={"tools": ["look"]}) as served:
        got = await post(served, LOOK, **{name: "family", IDS[0]: "trip"})
        bare = await post(served, LOOK, **{IDS[0]: "trip"})
    assert [got.headers[each] for each in KEYS] == ["family", "family"]
    assert not any(each in bare.headers for each in KEYS)
    assert seen == [("api", "family", False), ("api", "", False)]


async def test_the_key_of_the_memory_does_not_choose_the_conversation(
    served: Served, house: House, client: AsyncOpenAI
) -> None:
    await say(client, "one", extra_headers={KEYS[0]: "family"})
    await say(client, "two", extra_headers={KEYS[0]: "family"})
    assert house.words() == ["two"]
