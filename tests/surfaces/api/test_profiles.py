"""Several profiles behind one API: a key of one reaches that one, and learns of no other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from parley.agent.tools import TOOLS
from parley.protocol import ParleyError
from parley.surfaces.api.surface import ApiSurface
from tests.gateway.asking_tool import AskingTool
from tests.gateway.family import Family
from tests.servers.api_server import an_api, local_key
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import say, user
from tests.surfaces.api.served import a_key

CHAT = "/v1/chat/completions"
BODY = {"messages": [user("hi")]}


class Village:
    """`default`, `coder` and `writer` behind one API, and a key for each of them."""

    def __init__(self, family: Family, api: ApiSurface, http: aiohttp.ClientSession) -> None:
        self.family = family
        self.api = api
        self._http = http
        self._clients = AsyncExitStack()
        profiles = family.profiles
        self.keys = {name: a_key(profile, "app") for name, profile in profiles.items()}
        self.keys["all"] = a_key(
            profiles["default"], "everywhere", "chat,runs,admin", all_profiles=True
        )

    async def client(self, key: str, prefix: str = "") -> AsyncOpenAI:
        made = AsyncOpenAI(
            base_url=f"{self.api.where}{prefix}/v1", api_key=self.keys[key], max_retries=0
        )
        return await self._clients.enter_async_context(made)

    async def post(
        self, key: str, path: str, body: object, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        named = {"Authorization": f"Bearer {self.keys[key]}", **headers}
        async with self._http.post(self.api.where + path, json=body, headers=named) as got:
            return got.status, await got.json()

    async def get(self, key: str, path: str) -> tuple[int, bytes]:
        named = {"Authorization": f"Bearer {self.keys[key]}"}
        async with self._http.get(self.api.where + path, headers=named) as got:
            return got.status, await got.read()

    async def turns(self, name: str) -> int:
        return sum(one.turns for one in await self.family.sessions(name))

    async def close(self) -> None:
        await self._clients.aclose()


@pytest.fixture
async def village(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Village]:
    family = Family(tmp_path / "home", model, "coder", "writer")
    api = an_api(*family.profiles.values())
    async with aiohttp.ClientSession() as http:
        made = Village(family, api, http)
        await family.open(surfaces=[api])
        yield made
        await made.close()
        await family.close()


async def test_a_key_speaks_to_its_own_profile(village: Village) -> None:
    for name in ("default", "coder", "writer"):
        client = await village.client(name)
        got = await client.chat.completions.create(model="parley", messages=[user("hi")])
        assert got.model == name
        assert await village.turns(name) == 1


async def test_a_key_sees_its_own_profile_and_the_key_of_the_house_all(village: Village) -> None:
    seen = {}
    for key in village.keys:
        seen[key] = sorted([one.id async for one in (await village.client(key)).models.list()])
    assert seen == {
        "default": ["default"],
        "coder": ["coder"],
        "writer": ["writer"],
        "all": ["coder", "default", "writer"],
    }


async def test_another_profile_is_told_like_none_at_all(village: Village) -> None:
    for path, body in (
        (CHAT, BODY | {"model": "{}"}),
        ("/p/{}" + CHAT, BODY),
        ("/p/{}/v1/responses", {"input": "hi"}),
        ("/p/{}/v1/runs", {"input": "hi"}),
        ("/v1/responses", {"input": "hi", "model": "{}"}),
    ):
        told = []
        for name in ("writer", "nobody"):
            asked = json.loads(json.dumps(body).replace("{}", name))
            status, answer = await village.post("coder", path.replace("{}", name), asked)
            assert status == 404
            told.append(json.dumps(answer).replace(name, "X"))
        assert told[0] == told[1]
    assert await village.turns("writer") == 0
    assert await village.turns("coder") == 0


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/{}", "/v1/capabilities", "/v1/responses/x", "/v1/runs/x"]
)
async def test_nothing_below_the_path_of_another_tells_that_it_exists(
    village: Village, path: str
) -> None:
    told = []
    for name in ("writer", "nobody"):
        status, body = await village.get("coder", f"/p/{name}{path.replace('{}', name)}")
        assert status == 404
        told.append(body.decode().replace(name, "X"))
    assert told[0] == told[1]


async def test_a_path_chooses_the_profile_for_a_key_of_the_house(village: Village) -> None:
    client = await village.client("all", "/p/writer")
    got = await client.chat.completions.create(model="hermes-agent", messages=[user("hi")])
    assert got.model == "writer"
    assert [one.id async for one in client.models.list()] == ["writer"]
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="coder", messages=[user("hi")])
    assert caught.value.code == "model_not_found"
    assert (await village.turns("writer"), await village.turns("coder")) == (1, 0)


async def test_the_model_chooses_the_profile_for_a_key_of_the_house(village: Village) -> None:
    client = await village.client("all")
    got = await client.chat.completions.create(model="coder", messages=[user("hi")])
    assert got.model == "coder"
    await client.responses.create(model="writer", input="hi")
    assert [await village.turns(name) for name in ("default", "coder", "writer")] == [0, 1, 1]


async def test_keys_of_one_name_in_two_profiles_share_nothing(village: Village) -> None:
    session = {"X-Hermes-Session-Id": "trip", "Idempotency-Key": "k1"}
    ids = {(await village.post(name, CHAT, BODY, **session))[1]["id"] for name in village.keys}
    assert len(ids) == 4
    got = await (await village.client("coder")).responses.create(model="coder", input="secret")
    for other in ("writer", "default", "all"):
        client = await village.client(other)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(got.id)


async def test_a_key_of_the_house_finds_its_response_in_whichever_profile(
    village: Village,
) -> None:
    client = await village.client("all")
    got = await client.responses.create(model="writer", input="one")
    assert (await client.responses.retrieve(got.id)).model == "writer"
    below = await village.client("all", "/p/coder")
    with pytest.raises(openai.NotFoundError):
        await below.responses.retrieve(got.id)
    await client.responses.create(model="writer", input="two", previous_response_id=got.id)
    assert village.family.words() == ["one", "echo: one", "two"]


async def test_a_key_for_all_profiles_in_the_file_of_one_is_no_key(village: Village) -> None:
    file = village.family.profiles["coder"].home / "api_keys.json"
    told = json.loads(file.read_text())
    told["keys"][0]["all_profiles"] = True
    file.write_text(json.dumps(told))
    status, _ = await village.post("coder", CHAT, BODY)
    assert status == 401


async def test_a_key_copied_to_another_profile_is_no_key_there(village: Village) -> None:
    profiles = village.family.profiles
    copied = (profiles["coder"].home / "api_keys.json").read_text()
    (profiles["writer"].home / "api_keys.json").write_text(copied)
    village.keys["forged"] = village.keys["coder"].replace("-coder-", "-writer-")
    status, _ = await village.post("forged", CHAT, BODY)
    assert status == 401


async def test_the_key_of_this_machine_does_not_count_where_any_profile_has_one(
    village: Village,
) -> None:
    village.keys["local"] = local_key(village.family.profiles["default"])
    status, _ = await village.post("local", CHAT, BODY)
    assert status == 401


async def test_a_profile_that_cannot_be_served_just_now_is_told_so(
    tmp_path: Path, model: ScriptedModel
) -> None:
    family = Family(tmp_path / "home", model, "coder")
    family.troubles["coder"] = ParleyError("It is broken.")
    api = an_api(*family.profiles.values())
    async with aiohttp.ClientSession() as http:
        village = Village(family, api, http)
        await family.open(surfaces=[api])
        try:
            status, told = await village.post("coder", CHAT, BODY)
            assert (status, told["error"]["type"]) == (503, "server_error")
            assert (await village.post("default", CHAT, BODY))[0] == 200
            # Whether there is such a run, nobody can tell just now.
            for path in ("/v1/runs/run_x", "/v1/runs/run_x/events", "/v1/responses/resp_x"):
                assert (await village.get("coder", path))[0] == 503
                assert (await village.get("default", path))[0] == 404
        finally:
            await family.close()


async def test_turns_of_two_profiles_go_on_side_by_side(village: Village) -> None:
    coder, writer = await village.client("coder"), await village.client("writer")
    for client, name in ((coder, "coder"), (writer, "writer")):
        assert await say(client, f"for {name}", extra_body={"model": name}) == f"echo: for {name}"
    assert await village.turns("coder") == await village.turns("writer") == 1


async def test_a_key_of_the_same_name_elsewhere_cannot_allow_anything(
    tmp_path: Path, model: ScriptedModel, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    deed = AskingTool()
    monkeypatch.setitem(TOOLS, "deed", deed.tool)
    family = Family(tmp_path / "home", model, "coder")
    family.configure("coder", agent={"tools": ["deed"]})
    api = an_api(*family.profiles.values())
    stage.then(Reply(tool_calls=(("deed", {"word": "a"}),)))
    async with aiohttp.ClientSession() as http:
        village = Village(family, api, http)
        await family.open(surfaces=[api])
        headers = {"Authorization": f"Bearer {village.keys['coder']}", "X-Parley-Events": "1"}
        body = BODY | {"stream": True}
        async with http.post(api.where + CHAT, json=body, headers=headers) as answer:
            told = ""
            while "parley.approval" not in told or not told.endswith("\n\n"):
                told += (await answer.content.readany()).decode()
            lines = [line[6:] for line in told.splitlines() if line.startswith("data: ")]
            run, question = json.loads(lines[0])["id"], json.loads(lines[-1])["id"]
            decision = {"approval_id": question, "decision": "approve"}
            path = f"/v1/runs/{run}/approval"
            assert (await village.post("default", path, decision))[0] == 404
            assert (await village.post("all", f"/p/default{path}", decision))[0] == 404
            assert deed.done == []
            assert (await village.post("coder", path, decision))[0] == 200
            await answer.read()
        assert len(deed.done) == 1
        await family.close()
