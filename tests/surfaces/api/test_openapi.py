"""The description for programs: whole, valid, and true of what is really answered."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import aiohttp
import jsonschema_rs
import pytest
import schemathesis
from hypothesis import example, given
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.definitions import OPENAPI_31

from parley.config.api_keys import KeyRing
from parley.profiles import PROFILE_NAME
from parley.protocol import Failed, Final, ToolCall, Usage
from parley.surfaces.api.described import ERRORS, IN_PATH, MORE, PARAMETERS
from parley.surfaces.api.errors import _KINDS, failed_to_error
from parley.surfaces.api.openapi import BELOW_PROFILE, openapi_document
from parley.surfaces.api.routes import ROUTES
from parley.surfaces.api.schemas import ANSWERS
from parley.surfaces.api.surface import ApiSurface
from parley.surfaces.api.wire.chat_out import chat_completion
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.ids import check_idempotency_key, check_session_id
from parley.surfaces.api.wire.responses_out import call_item
from tests.gateway.house import House

DOCUMENT = openapi_document(ROUTES, server=None)
CALL = ToolCall("call_1", "weather", {"city": "Bern"})


def walk(value: object) -> Iterator[dict[str, Any]]:
    """Every object in it."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from walk(each)
    elif isinstance(value, list):
        for each in value:
            yield from walk(each)


def closed(value: Any) -> Any:
    """A schema that does not let pass any field it does not name."""
    if isinstance(value, list):
        return [closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {name: closed(each) for name, each in value.items()}
    return {**made, "additionalProperties": False} if "required" in value else made


def check(schema: dict[str, Any], value: object) -> None:
    """Fails unless the value is what the document says, and nothing more."""
    whole = {**closed(schema), "components": {"schemas": closed(ANSWERS)}}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


def named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


# ── whole and valid ──


def test_every_route_is_in_the_document_and_nothing_else() -> None:
    told = {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert told == {
        (route.method, prefix + route.path) for route in ROUTES for prefix in ("", BELOW_PROFILE)
    }
    assert set(MORE) == {(route.method, route.path) for route in ROUTES}


def test_the_document_is_openapi() -> None:
    jsonschema_rs.Draft202012Validator(OPENAPI_31).validate(DOCUMENT)
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_schemathesis_can_read_every_operation() -> None:
    found = schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
    assert [isinstance(each, Ok) for each in found] == [True] * 2 * len(ROUTES)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_every_schema_is_one(name: str) -> None:
    jsonschema_rs.meta.validate(DOCUMENT["components"]["schemas"][name])


def test_whatever_is_referred_to_is_there_and_whatever_is_there_is_referred_to() -> None:
    wanted = {each["$ref"] for each in walk(DOCUMENT) if isinstance(each.get("$ref"), str)}
    kinds = ("schemas", "responses", "parameters", "headers")
    there = {
        f"#/components/{kind}/{name}" for kind in kinds for name in DOCUMENT["components"][kind]
    }
    assert wanted == there


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert len(names) == len(set(names))


def test_no_answer_takes_the_name_of_a_request() -> None:
    bare = openapi_document([], server=None)["components"]["schemas"]
    asked = set(DOCUMENT["components"]["schemas"]) - set(bare)
    assert {route.body.__name__ for route in ROUTES if route.body} <= asked
    assert not asked & set(ANSWERS)


def test_who_may_ask_is_said() -> None:
    approval = DOCUMENT["paths"]["/v1/runs/{id}/approval"]["post"]
    assert approval["security"] == [{"key": ["runs"]}, {"key": ["chat"]}]
    assert DOCUMENT["paths"]["/healthz"]["get"]["security"] == []


def test_the_address_of_the_server_is_said_when_it_is_known() -> None:
    assert openapi_document(ROUTES, server="https://a.example")["servers"] == [
        {"url": "https://a.example"}
    ]


# ── bounds ──


def is_good(check: Any, text: str) -> bool:
    try:
        check(text)
    except BadRequest:
        return False
    return True


def fits(schema: dict[str, Any], text: str) -> bool:
    return jsonschema_rs.is_valid(schema, text)


near_ids = st.text(st.sampled_from("aB7-_~!. /\\\t\n\x7fé"), max_size=6)


@given(st.one_of(near_ids, st.text(max_size=300)))
@example(".")
@example("..")
@example(" a")
@example("a/b")
@example("a" * 256)
@example("a" * 257)
def test_a_session_id_is_taken_just_when_the_document_allows_it(text: str) -> None:
    for name in ("Session", "SessionKey"):
        assert fits(PARAMETERS[name]["schema"], text) == is_good(check_session_id, text)


@given(st.one_of(near_ids, st.text(max_size=300)))
@example("a" * 255)
@example("a" * 256)
def test_an_idempotency_key_is_taken_just_when_the_document_allows_it(text: str) -> None:
    schema = PARAMETERS["IdempotencyKey"]["schema"]
    assert fits(schema, text) == is_good(check_idempotency_key, text)


@given(st.one_of(st.text(st.sampled_from("ab1-_A/"), max_size=40), st.from_regex(PROFILE_NAME)))
def test_a_profile_is_named_as_profiles_are(text: str) -> None:
    assert fits(IN_PATH["profile"][1], text) == bool(PROFILE_NAME.fullmatch(text))


# ── what is sent ──


@pytest.mark.parametrize("usage", [None, Usage("p", "m", 3, 4, 1)])
@pytest.mark.parametrize(
    "reply", [Final("Hello."), Final("", calls=(CALL,)), Final("Hel", complete=False)]
)
def test_a_completion_is_as_described(reply: Final, usage: Usage | None) -> None:
    check(named("ChatCompletion"), chat_completion("chatcmpl_1", 1, "default", reply, usage))


def test_a_call_is_as_described() -> None:
    check(named("CallItem"), call_item("fc_1", CALL, "{}"))


@pytest.mark.parametrize("kind", [*_KINDS, "unheard of"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_whatever_a_turn_fails_of_is_described(kind: Any, path: str) -> None:
    error = failed_to_error(Failed("It failed.", kind=kind))
    assert str(error.status) in DOCUMENT["paths"][path]["post"]["responses"]
    assert error.status in ERRORS
    check(named("Error"), error.as_body())


def events_of(stream: str) -> list[dict[str, str]]:
    """The events, each with its fields."""
    return [
        dict(line.split(": ", 1) for line in lines.split("\n"))
        for lines in stream.strip().split("\n\n")
        if not lines.startswith(":")
    ]


class Api:
    """A program that holds every answer against the document."""

    def __init__(self, address: str, key: str) -> None:
        self._address = address
        self._http = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"})

    async def close(self) -> None:
        await self._http.close()

    async def ask(
        self, method: str, path: str, body: object = None, *, status: int = 200, **more: str
    ) -> Any:
        """`more` are headers."""
        url, headers = self._address + path, {k.replace("_", "-"): v for k, v in more.items()}
        async with self._http.request(method, url, json=body, headers=headers) as got:
            text = await got.text()
            assert got.status == status, text
            told = described(method, path)["responses"][str(status)]
            if "$ref" in told:
                told = DOCUMENT["components"]["responses"][told["$ref"].rpartition("/")[2]]
            schema = told["content"][got.content_type]["schema"]
            value = json.loads(text) if got.content_type == "application/json" else text
            for each in events_of(text) if got.content_type == "text/event-stream" else [value]:
                check(schema, each)
            return value


def described(method: str, path: str) -> dict[str, Any]:
    """The operation that a request is."""
    for template, methods in DOCUMENT["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in methods:
            return cast("dict[str, Any]", methods[method.lower()])
    raise AssertionError(f"{method} {path} is not described")


@pytest.fixture
async def api(house: House) -> AsyncIterator[Api]:
    """The API of a gateway whose model is scripted."""
    surface = ApiSurface("127.0.0.1", 0, home=house.profile, profiles=lambda: [house.profile])
    house.more_surfaces = [surface]
    await house.open()
    ring = KeyRing(lambda: [house.profile], house.profile, allow_local=True)
    program = Api(surface.where, ring.local_key())
    yield program
    await program.close()


@pytest.mark.parametrize("prefix", ["", "/p/default"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/models/default",
        "/v1/capabilities",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
    ],
)
async def test_what_is_told_of_the_server_is_as_described(api: Api, prefix: str, path: str) -> None:
    await api.ask("GET", prefix + path)


HELLO = [{"role": "user", "content": "hello"}]


async def test_chats_are_as_described(api: Api) -> None:
    path = "/v1/chat/completions"
    await api.ask("POST", path, {"messages": HELLO})
    await api.ask("POST", path, {"messages": HELLO, "stream": True})
    await api.ask("POST", path, {"messages": []}, status=400)
    await api.ask("POST", path, {"messages": HELLO, "model": "nobody"}, status=404)
    await api.ask("POST", path, {"messages": HELLO}, status=401, Authorization="Bearer nothing")
    await api.ask("POST", path, {"messages": HELLO}, status=403, Origin="https://x.example")
    await api.ask("POST", path, {"messages": HELLO}, status=415, Content_Type="text/plain")
    await api.ask("POST", path, {"messages": HELLO}, Idempotency_Key="one")
    await api.ask("POST", path, {"messages": [*HELLO, *HELLO]}, status=409, Idempotency_Key="one")


async def test_responses_are_as_described(api: Api) -> None:
    made = await api.ask("POST", "/v1/responses", {"input": "hello", "metadata": {"a": "b"}})
    await api.ask("POST", "/v1/responses", {"input": "hello", "stream": True})
    await api.ask("GET", f"/v1/responses/{made['id']}")
    await api.ask("DELETE", f"/v1/responses/{made['id']}")
    await api.ask("GET", f"/v1/responses/{made['id']}", status=404)


async def test_runs_are_as_described(api: Api) -> None:
    begun = await api.ask("POST", "/v1/runs", {"input": "hello"}, status=202)
    path = f"/v1/runs/{begun['id']}"
    assert "run.completed" in await api.ask("GET", f"{path}/events")
    await api.ask("GET", f"{path}/events", status=400, Last_Event_ID="x")
    assert (await api.ask("GET", path))["status"] == "completed"
    await api.ask("POST", f"{path}/stop")
    answer = {"approval_id": "none", "decision": "deny"}
    await api.ask("POST", f"{path}/approval", answer, status=409)
    await api.ask("POST", "/v1/runs/run_none/approval", answer, status=404)
