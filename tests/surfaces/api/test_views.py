"""What a key has stored and planned, read over the API; and Hermes' names of things."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.protocol import InboundMessage, SessionSource
from parley.storage.hands import Job
from tests.gateway.house import House
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.served import Served, a_key
from tests.waiting import until_true


async def _read(served: Served, path: str, **more: Any) -> Any:
    got = await served.get(path, **more)
    assert got.status == 200, got.body
    return json.loads(got.body)


async def _talk(served: Served, name: str, key: str | None = None) -> None:
    body = {"messages": [user(f"hello in {name}")]}
    headers = {"X-Parley-Session-Id": name}
    got = await served.post("/v1/chat/completions", body, key=key, headers=headers)
    assert got.status == 200, got.body


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/healthz"])
async def test_the_process_lives_under_each_of_its_names(served: Served, path: str) -> None:
    assert await _read(served, path) == {"status": "ok"}


async def test_a_key_sees_its_own_conversations_page_by_page(served: Served, house: House) -> None:
    mine, other = a_key(house.profile, "mine"), a_key(house.profile, "mine-too")
    for name in ("a", "b:1", "c", "d", "e"):
        await _talk(served, name, mine)
    await _talk(served, "theirs", other)
    names, path, pages = [], "/api/sessions?limit=2", 0
    while True:
        page = await _read(served, path, key=mine)
        names += [each["session_id"] for each in page["data"]]
        pages += 1
        if not page["has_more"]:
            break
        path = f"/api/sessions?limit=2&after={page['next']}"
    assert names == ["e", "d", "c", "b:1", "a"]
    assert pages == 3
    [one] = (await _read(served, "/api/sessions", key=other))["data"]
    assert (one["session_id"], one["turns"], one["platform"]) == ("theirs", 1, "api")


async def test_everybodys_conversations_take_the_scope_admin(served: Served, house: House) -> None:
    plain, admin = a_key(house.profile, "plain"), a_key(house.profile, "boss", "admin")
    await _talk(served, "one", plain)
    assert (await served.get("/api/sessions?all=true", key=plain)).status == 403
    assert (await _read(served, "/api/sessions", key=admin))["data"] == []
    [one] = (await _read(served, "/api/sessions?all=true", key=admin))["data"]
    assert (one["session_id"], one["platform"]) == (None, "api")
    assert (await served.get("/api/sessions", key="sk-wrong")).status == 401
    assert (await served.get("/p/nobody/api/sessions", key=admin)).status == 404


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "limit=0050" + "9" * 30, "after=x", "all=maybe"],
)
async def test_a_page_that_makes_no_sense_is_refused(served: Served, query: str) -> None:
    for path in ("/api/sessions", "/api/jobs"):
        assert (await served.get(f"{path}?{query}")).status == 400


async def test_what_is_planned_is_seen_by_who_may(served: Served, house: House) -> None:
    plain = a_key(house.profile, "plain")
    admin = a_key(house.profile, "boss", "admin")
    store = house.store
    assert store is not None
    for number in range(3):
        source = SessionSource("telegram", chat_id="9", user_id="9")
        message = InboundMessage(source, f"job {number}", event_id=f"e{number}", internal=True)
        lane = "agent:main:telegram:dm:9"
        await store.schedule(Job(f"j{number}", lane, message, at=4e9 + number))
    assert (await _read(served, "/api/jobs", key=plain))["data"] == []
    page = await _read(served, "/api/jobs?all=true&limit=2", key=admin)
    assert [each["text"] for each in page["data"]] == ["job 0", "job 1"]
    assert page["data"][0]["next_at"] == 4_000_000_000
    rest = await _read(served, f"/api/jobs?all=true&limit=2&after={page['next']}", key=admin)
    assert [each["id"] for each in rest["data"]] == ["j2"]


async def test_a_run_has_hermes_names_for_who_asks_for_them(
    served: Served, stage: Stage, model: ScriptedModel
) -> None:
    stage.then(Reply(tool_calls=(("now", {}),)), Reply(text="It is late.", chunks=2))
    history = [user("I am Ann."), {"role": "assistant", "content": "Hello, Ann."}]
    body = {"input": "How late is it?", "conversation_history": history}
    got = await served.post("/v1/runs", body)
    assert got.status == 202, got.body
    run = json.loads(got.body)["run_id"]

    async def is_over() -> bool:
        return bool((await _read(served, f"/v1/runs/{run}"))["status"] == "completed")

    await until_true(is_over)
    roles = [m["role"] for m in model.requests[0].json["messages"] if m["role"] != "system"]
    assert roles == ["user", "assistant", "user"]
    plain = await served.get(f"/v1/runs/{run}/events")
    assert b"text.delta" in plain.body
    by_query = await served.get(f"/v1/runs/{run}/events?names=hermes")
    by_header = await served.get(f"/v1/runs/{run}/events", **{"X-Parley-Names": "hermes"})
    assert by_query.body == by_header.body
    lines = [line for line in by_query.body.decode().splitlines() if line.startswith("data: ")]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert {event["run_id"] for event in events} == {run}
    told = {event["event"]: event for event in events}
    assert "".join(e["delta"] for e in events if e["event"] == "message.delta") == "It is late."
    assert told["tool.started"]["tool"] == told["tool.completed"]["tool"] == "now"
    assert told["tool.completed"]["error"] is False
    assert told["run.completed"]["output"] == "It is late."
    assert (await served.get(f"/v1/runs/{run}/events?names=other")).status == 400
