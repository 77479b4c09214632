"""What a key of one profile stored, no key of another reaches: by its id, its path or its name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from parley.config.settings import ApiConfig
from tests.gateway.family import Family
from tests.servers.api_server import an_api
from tests.servers.scripted_model import ScriptedModel
from tests.surfaces.api.asking import user
from tests.surfaces.api.test_profiles import Village

SECRET = "the heron flies at nine"


@dataclass(frozen=True)
class Stored:
    """What `coder` has: fields of paths and bodies name it."""

    village: Village
    ids: dict[str, str]

    def fill(self, text: str) -> str:
        for name, id in self.ids.items():
            text = text.replace(f"<{name}>", id)
        return text

    async def call(self, key: str, method: str, path: str, body: object = None) -> tuple[int, str]:
        village = self.village
        headers = {"Authorization": f"Bearer {village.keys[key]}"}
        told = None if body is None else json.loads(self.fill(json.dumps(body)))
        url = village.api.where + self.fill(path)
        async with aiohttp.request(method, url, json=told, headers=headers) as got:
            return got.status, await got.text()

    async def everything(self) -> list[tuple[int, str]]:
        """All that the owner can read of it."""
        return [await self.call("coder", "GET", path) for path in READ]


READ = (
    "/v1/responses/<response>",
    "/v1/responses/<response>?stream=true",
    "/v1/responses/<response>/input_items",
    "/v1/responses/<background>",
    "/v1/responses/<background>?stream=true",
    "/v1/responses/<background>/input_items",
    "/v1/conversations/<conversation>",
    "/v1/conversations/<conversation>/items",
    "/v1/conversations/<conversation>/items/<item>",
    "/v1/runs/<run>",
    "/v1/runs/<run>/events",
)
_MORE = {"items": [user("x")]}
CHANGE: tuple[tuple[str, str, Any], ...] = (
    ("DELETE", "/v1/responses/<response>", None),
    ("POST", "/v1/responses/<background>/cancel", {}),
    ("DELETE", "/v1/responses/<background>", None),
    ("POST", "/v1/conversations/<conversation>", {"metadata": {"mine": "now"}}),
    ("POST", "/v1/conversations/<conversation>/items", _MORE),
    ("DELETE", "/v1/conversations/<conversation>/items/<item>", None),
    ("DELETE", "/v1/conversations/<conversation>", None),
    ("POST", "/v1/runs/<run>/stop", {}),
    ("POST", "/v1/runs/<run>/approval", {"approval_id": "appr_x", "decision": "approve"}),
)
_NAMED = [{"type": "item_reference", "id": "<item>"}, user("and?")]
USE: tuple[tuple[str, Any], ...] = (
    ("/v1/responses", {"input": "and?", "previous_response_id": "<response>"}),
    ("/v1/responses", {"input": "and?", "previous_response_id": "<background>"}),
    ("/v1/responses", {"input": "and?", "conversation": "<conversation>"}),
    ("/v1/responses", {"input": "and?", "conversation": {"id": "<conversation>"}}),
    ("/v1/responses", {"input": "and?", "conversation": "<conversation>", "background": True}),
    (
        "/v1/responses",
        {"input": "and?", "conversation": "<conversation>", "previous_response_id": "<response>"},
    ),
    ("/v1/responses", {"input": _NAMED}),
    ("/v1/responses", {"input": [{"id": "<item>"}, user("and?")]}),
    ("/v1/responses", {"input": [{"id": "<output>"}, user("and?")]}),
    ("/v1/responses", {"input": _NAMED, "background": True}),
    ("/v1/conversations", {"items": [{"type": "item_reference", "id": "<item>"}]}),
    ("/v1/runs", {"input": "and?", "previous_response_id": "<response>"}),
    ("/v1/runs", {"input": _NAMED}),
)
STRANGERS = ("writer", "default", "all")


@pytest.fixture
async def stored(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Stored]:
    """Each profile has a key named `app`; that of `coder` stored one of each kind."""
    family = Family(tmp_path / "home", model, "coder", "writer")
    api = an_api(*family.profiles.values())
    async with aiohttp.ClientSession() as http:
        village = Village(family, api, http)
        await family.open(surfaces=[api])

        async def make(path: str, body: dict[str, Any]) -> dict[str, Any]:
            status, made = await village.post("coder", path, body)
            assert status < 300, made
            return made

        response = await make("/v1/responses", {"input": SECRET})
        background = await make("/v1/responses", {"input": SECRET, "background": True})
        conversation = await make("/v1/conversations", {"items": [user(SECRET)]})
        run = await make("/v1/runs", {"input": SECRET})
        listed = await village.get("coder", f"/v1/conversations/{conversation['id']}/items")
        ids = {
            "response": response["id"],
            "output": response["output"][0]["id"],
            "background": background["id"],
            "conversation": conversation["id"],
            "item": json.loads(listed[1])["data"][0]["id"],
            "run": run["id"],
        }
        made = Stored(village, ids)
        for path in ("/v1/responses/<background>?stream=true", "/v1/runs/<run>/events"):
            assert SECRET in (await made.call("coder", "GET", path))[1]  # they are over
        yield made
        await village.close()
        await family.close()


@pytest.mark.parametrize("prefix", ["", "/p/coder", "/p/writer", "/p/default"])
async def test_no_other_profile_reads_changes_or_goes_on_from_it(
    stored: Stored, model: ScriptedModel, prefix: str
) -> None:
    before = await stored.everything()
    assert all(status == 200 for status, _ in before)
    asked = model.total
    tries = (
        *(("GET", path, None) for path in READ),
        *CHANGE,
        *(("POST", path, body) for path, body in USE),
    )
    for key in STRANGERS:
        for method, path, body in tries:
            status, told = await stored.call(key, method, prefix + path, body)
            assert status == 404, (key, method, path, told)
            assert SECRET not in told
    assert model.total == asked
    assert await stored.everything() == before


@pytest.mark.parametrize("path", ["/api/sessions", "/api/jobs"])
async def test_lists_have_what_is_of_the_key_and_its_profile(stored: Stored, path: str) -> None:
    _, own = await stored.call("coder", "GET", path)
    assert len(json.loads(own)["data"]) == (4 if path == "/api/sessions" else 0)
    for key in STRANGERS:
        status, told = await stored.call(key, "GET", path)
        assert (status, json.loads(told)["data"]) == (200, [])
    for key in ("writer", "default"):
        for other in (f"/p/coder{path}", f"{path}?model=coder", f"{path}?model=coder&all=true"):
            assert (await stored.call(key, "GET", other))[0] == 404
        assert (await stored.call(key, "GET", f"{path}?all=true"))[0] == 403
    # The key of the house reads the others' by its scope, and only when it asks for them.
    for mine in (f"{path}?model=coder", f"/p/coder{path}"):
        assert json.loads((await stored.call("all", "GET", mine))[1])["data"] == []


async def test_another_name_of_a_profile_opens_it_to_no_other_key(
    tmp_path: Path, model: ScriptedModel
) -> None:
    family = Family(tmp_path / "home", model, "coder", "writer")
    config = ApiConfig(models={"gpt-4o": "coder"})
    api = an_api(*family.profiles.values(), config=config)
    async with aiohttp.ClientSession() as http:
        village = Village(family, api, http)
        await family.open(surfaces=[api])
        body = {"input": "hi", "model": "gpt-4o"}
        told = {}
        for key in village.keys:
            for prefix in ("", "/p/writer"):
                told[key, prefix] = (await village.post(key, f"{prefix}/v1/responses", body))[0]
            named = await village.get(key, "/v1/models/gpt-4o")
            assert (named[0] == 200) == (key in {"coder", "all"})
            listed = (await village.get(key, "/v1/models"))[1].decode()
            assert ("gpt-4o" in listed) == (key in {"coder", "all"})
            views = await village.get(key, "/api/sessions?model=gpt-4o")
            assert (views[0] == 200) == (key in {"coder", "all"})
        allowed = {place for place, status in told.items() if status == 200}
        assert allowed == {("coder", ""), ("all", "")}
        assert set(told.values()) == {200, 404}
        assert await village.turns("writer") == await village.turns("default") == 0
        await village.close()
        await family.close()
