"""Who may ask: keys, what they may do, and from where."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from parley.config.api_keys import KeyFile
from parley.config.settings import ApiConfig, GatewayConfig
from tests.gateway.house import House
from tests.servers.api_server import an_api
from tests.servers.scripted_model import Reply, ScriptedModel
from tests.servers.stage import Stage
from tests.surfaces.api.asking import user
from tests.surfaces.api.served import Got, Served, a_key, served_api

CHAT = "/v1/chat/completions"
BODY = {"messages": [user("hi")]}
OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs")
CLOSED = ("/v1/models", "/v1/models/default", "/v1/capabilities", "/metrics", "/v1/responses/x")


async def chat(served: Served, key: str | None = None, **headers: str) -> Got:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await served.post(CHAT, BODY, key=key, headers=named)


def code_of(got: Got) -> str:
    return str(json.loads(got.body)["error"]["code"])


async def bare(served: Served, path: str, **headers: str) -> Got:
    """Without any key but the one in `headers`."""
    async with served.http.get(served.api.where + path, headers=headers) as answer:
        return Got(answer.status, answer.headers, await answer.read())


# ── a key ──


@pytest.mark.parametrize("path", CLOSED)
async def test_without_a_key_nothing_is_told(served: Served, path: str) -> None:
    got = await bare(served, path)
    assert (got.status, code_of(got)) == (401, "invalid_api_key")
    assert got.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", OPEN)
async def test_what_needs_no_key_is_open(served: Served, path: str) -> None:
    assert (await bare(served, path)).status == 200


@pytest.mark.parametrize(
    "given",
    ["Basic {key}", "{key}", "Bearer", "Bearer ", "Bearer {key}x", "Token {key}", "Bearer x"],
)
async def test_only_a_bearer_with_the_very_key_counts(served: Served, given: str) -> None:
    header = given.format(key=served.key)
    got = await bare(served, "/v1/models", Authorization=header)
    assert got.status == 401
    assert served.key not in got.body.decode()


async def test_the_name_of_the_scheme_may_be_written_in_any_case(served: Served) -> None:
    got = await bare(served, "/v1/models", Authorization=f"bearer {served.key}")
    assert got.status == 200


async def test_a_wrong_secret_is_told_like_a_wrong_name(served: Served, house: House) -> None:
    token = a_key(house.profile, "ann")
    wrong = token[:-4] + ("aaaa" if not token.endswith("aaaa") else "bbbb")
    nobody = token.replace("sk-parley-default", "sk-parley-nobody")
    answers = [await chat(served, key) for key in (wrong, nobody, "sk-other")]
    assert [got.status for got in answers] == [401] * 3
    assert len({got.body for got in answers}) == 1


SCOPES = [
    ("chat", "POST", CHAT, 200),
    ("runs", "POST", CHAT, 403),
    ("admin", "POST", CHAT, 403),
    ("chat", "GET", "/metrics", 403),
    ("admin", "GET", "/metrics", 200),
    ("chat", "GET", "/v1/models", 200),
    ("runs", "GET", "/v1/models", 200),
    ("admin", "GET", "/v1/models", 403),
    ("runs", "GET", "/v1/responses/x", 403),
    ("chat", "POST", "/v1/runs", 403),
]


@pytest.mark.parametrize(("scope", "method", "path", "status"), SCOPES)
async def test_a_key_may_do_what_its_scopes_say(
    served: Served, house: House, scope: str, method: str, path: str, status: int
) -> None:
    key = a_key(house.profile, scopes=scope)
    body = BODY if path == CHAT else {"input": "hi"}
    got = await (
        served.post(path, body, key=key) if method == "POST" else served.get(path, key=key)
    )
    assert got.status == status
    if status == 403:
        assert json.loads(got.body)["error"]["type"] == "permission_error"


async def test_a_key_that_has_expired_is_none(served: Served, house: House) -> None:
    key = a_key(house.profile, expires_at=time.time() + 3600)
    assert (await chat(served, key)).status == 200
    file = KeyFile(house.profile).path
    told = json.loads(file.read_text())
    told["keys"][0]["expires_at"] = time.time() - 1
    told["keys"][0]["created_at"] = time.time() - 9
    file.write_text(json.dumps(told))
    assert (await chat(served, key)).status == 401


async def test_a_revoked_key_is_refused_at_once_on_an_open_connection(
    served: Served, house: House
) -> None:
    key = a_key(house.profile, "ann")
    a_key(house.profile, "ben")
    request = (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % key.encode()
    )
    reader, writer = await served.connect()
    writer.write(request + b"\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    await reader.readuntil(b"}]}")
    KeyFile(house.profile).revoke("ann")
    writer.write(request + b"Connection: close\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


async def test_a_new_key_counts_at_once(served: Served, house: House) -> None:
    assert (await chat(served)).status == 200
    assert (await chat(served, a_key(house.profile))).status == 200


async def test_a_damaged_file_of_keys_lets_nobody_in(served: Served, house: House) -> None:
    key = a_key(house.profile)
    file = KeyFile(house.profile).path
    whole = file.read_text()
    file.write_text(whole[:-20])
    assert (await chat(served, key)).status == 401
    assert (await chat(served, served.key)).status == 401
    file.write_text(whole)
    assert (await chat(served, key)).status == 200


# ── the key of this machine ──


async def test_the_local_key_counts_only_while_there_is_no_other(
    served: Served, house: House
) -> None:
    local = served.key
    a_key(house.profile, "ann")
    async with asyncio.timeout(60):
        while (await chat(served, local)).status != 401:
            await asyncio.sleep(0.02)
    KeyFile(house.profile).revoke("ann")
    await served.restart()
    assert (await chat(served, local)).status == 200


async def test_the_local_key_is_readable_by_its_owner_only(served: Served, house: House) -> None:
    file = house.profile.home / "api.key"
    assert file.stat().st_mode & 0o077 == 0


async def test_another_address_is_not_opened_without_a_key(house: House) -> None:
    api = an_api(house.profile, host="0.0.0.0")
    house.more_surfaces = [api]
    await house.open()
    assert house.gateway is not None
    places = (await house.gateway.status()).profiles[0].surfaces
    [told] = [one for one in places if one.platform == "api"]
    assert told.fault is not None
    assert "without a key: make one with `parley keys create`" in told.fault
    assert api.where.endswith(":0")
    assert not (house.profile.home / "api.key").exists()


async def test_on_another_address_the_local_key_does_not_count(house: House) -> None:
    made = an_api(house.profile)
    house.more_surfaces = [made]
    await house.open()
    local = (house.profile.home / "api.key").read_text().strip()
    await house.close()
    key = a_key(house.profile)
    behind = GatewayConfig(public_url="https://agent.example.org")
    async with served_api(house, host="0.0.0.0", network=behind) as served:
        assert (await chat(served, key)).status == 200
        KeyFile(house.profile).revoke(KeyFile(house.profile).keys()[0].id)
        assert (await chat(served, key)).status == 401
        assert (await chat(served, local)).status == 401


# ── how often ──


async def test_a_key_has_its_own_rate_and_others_are_not_held_up(
    served: Served, house: House
) -> None:
    slow, free = a_key(house.profile, "slow", per_minute=2), a_key(house.profile, "free")
    got = [await chat(served, slow) for _ in range(3)]
    assert [each.status for each in got] == [200, 200, 429]
    assert code_of(got[-1]) == "rate_limit_exceeded"
    assert 1 <= int(got[-1].headers["Retry-After"]) <= 60
    assert (await chat(served, free)).status == 200


async def test_the_settings_give_the_rate_of_every_other_key(house: House) -> None:
    async with served_api(house, config=ApiConfig(requests_per_minute=1)) as served:
        statuses = [(await chat(served)).status for _ in range(2)]
        own = a_key(house.profile, per_minute=3)
        statuses += [(await chat(served, own)).status for _ in range(4)]
    assert statuses == [200, 429, 200, 200, 200, 429]


# ── pages ──


PAGE = "https://chat.example.org"


async def test_a_page_of_another_site_is_refused(served: Served, model: ScriptedModel) -> None:
    got = await chat(served, Origin=PAGE)
    assert (got.status, code_of(got)) == (403, "origin_not_allowed")
    assert "Access-Control-Allow-Origin" not in got.headers
    assert model.total == 0


@pytest.mark.parametrize(
    "origin", ["null", "https://chat.example.org.evil.org", "http://localhost"]
)
async def test_a_page_that_only_looks_allowed_is_refused(house: House, origin: str) -> None:
    async with served_api(house, config=ApiConfig(origins=[PAGE])) as served:
        assert (await chat(served, Origin=origin)).status == 403


async def test_an_allowed_page_may_ask_and_read_its_session(house: House) -> None:
    async with served_api(house, config=ApiConfig(origins=[PAGE])) as served:
        asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        async with served.http.options(served.api.where + CHAT, headers=asked) as before:
            assert before.status == 204
            allowed = before.headers["Access-Control-Allow-Headers"].lower()
        got = await chat(served, Origin=PAGE)
    for name in ("authorization", "idempotency-key", "x-hermes-session-id", "x-parley-session-key"):
        assert name in allowed
    assert got.status == 200
    assert got.headers["Access-Control-Allow-Origin"] == PAGE
    assert "X-Parley-Session-Id" in got.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in got.headers


# ── what is written down ──


async def test_no_secret_is_ever_logged(house: House, stage: Stage, tmp_path: Path) -> None:
    secret = "a-word-for-the-model-alone"
    async with served_api(house) as served:
        log = tmp_path / "log.txt"
        handler = logging.FileHandler(log)
        root = logging.getLogger()
        before = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            tokens = [served.key, "sk-parley-default-0badc0de-" + "x" * 43]
            for token in (*tokens, made := a_key(house.profile, "ann")):
                stage.then(Reply(status=401, body=json.dumps({"error": {"message": secret}})))
                await chat(served, token, X_Hermes_Session_Id="../" + secret)
                await chat(served, token, Idempotency_Key=secret * 99)
                await served.post(CHAT, {"messages": [user(secret)], "n": 9}, key=token)
                await served.post(CHAT, {"messages": [user(secret)], "model": secret}, key=token)
                await served.get(f"/v1/responses/{secret}?key={token}", key=token)
                await served.post(CHAT, {"messages": [user(secret)]}, key=token)
            stage.clear()
            await served.speak(b"NONSENSE %b\r\n\r\n" % tokens[0].encode())
        finally:
            root.removeHandler(handler)
            root.setLevel(before)
            handler.close()
    text = log.read_text()
    assert "turn_failed" in text
    for token in (*tokens, made):
        assert token not in text
        assert token[-20:] not in text
    assert secret not in text
