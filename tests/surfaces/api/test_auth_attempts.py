"""Wrong keys are limited for each address; whoever has a good one is not locked out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from parley import audit
from parley.config.settings import GatewayConfig
from parley.surfaces.api import auth_attempts
from parley.surfaces.webhook.hub import WebhookHub
from tests.audit.logs import records_of
from tests.gateway.house import House
from tests.servers.api_server import an_api
from tests.surfaces.api.served import Got, Served, a_key, served_api

PROXIED = GatewayConfig(trusted_proxies=["127.0.0.0/8"])
FREE = 10
WRONG = "sk-parley-default-00000000-" + "x" * 43


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that attempts see, in its only item."""
    now = [1000.0]
    init = auth_attempts.AuthAttempts.__init__

    def patched(self: auth_attempts.AuthAttempts, proxies: object = (), **more: Any) -> None:
        init(self, proxies, clock=lambda: now[0], **more)  # type: ignore[arg-type]

    monkeypatch.setattr(auth_attempts.AuthAttempts, "__init__", patched)
    return now


async def ask(served: Served, key: str, client: str | None = None, path: str = "/v1/models") -> Got:
    forwarded = {} if client is None else {"X-Forwarded-For": client}
    return await served.get(path, key=key, **forwarded)


async def statuses(served: Served, client: str | None, count: int, key: str = WRONG) -> list[int]:
    return [(await ask(served, key, client)).status for _ in range(count)]


async def test_an_address_with_too_many_wrong_keys_has_to_wait_longer_and_longer(
    house: House, clock: list[float]
) -> None:
    async with served_api(house, network=PROXIED) as served:
        assert await statuses(served, "198.51.100.7", FREE) == [401] * FREE
        waits = []
        for _ in range(9):
            refused = await ask(served, WRONG, "198.51.100.7")
            assert refused.status == 429
            assert json.loads(refused.body)["error"]["code"] == "rate_limit_exceeded"
            waits.append(int(refused.headers["Retry-After"]))
            clock[0] += waits[-1]
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_while_it_waits_a_good_key_gets_the_same_answer_and_works_afterwards(
    house: House, clock: list[float]
) -> None:
    key = a_key(house.profile)
    async with served_api(house, network=PROXIED) as served:
        await statuses(served, "198.51.100.7", FREE + 1)
        good, bad = await ask(served, key, "198.51.100.7"), await ask(served, WRONG, "198.51.100.7")
        assert (good.status, good.body) == (bad.status, bad.body) == (429, good.body)
        clock[0] += 1.5
        assert (await ask(served, key, "198.51.100.7")).status == 200


async def test_trying_on_while_it_waits_makes_it_no_longer(
    house: House, clock: list[float]
) -> None:
    key = a_key(house.profile)
    async with served_api(house, network=PROXIED) as served:
        assert await statuses(served, "198.51.100.7", FREE + 30) == [401] * FREE + [429] * 30
        clock[0] += 1.5
        assert (await ask(served, key, "198.51.100.7")).status == 200


async def test_a_key_that_worked_from_there_before_goes_on_working(
    house: House, clock: list[float]
) -> None:
    known, other = a_key(house.profile, "known"), a_key(house.profile, "other")
    async with served_api(house, network=PROXIED) as served:
        assert (await ask(served, known, "198.51.100.7")).status == 200
        await statuses(served, "198.51.100.7", FREE + 5)
        assert (await ask(served, known, "198.51.100.7")).status == 200
        assert (await ask(served, other, "198.51.100.7")).status == 429


async def test_other_addresses_are_not_held_up(house: House, clock: list[float]) -> None:
    key = a_key(house.profile)
    async with served_api(house, network=PROXIED) as served:
        await statuses(served, "2001:db8:1:2::1", FREE + 1)
        assert (await ask(served, key, "2001:db8:1:2::ffff")).status == 429  # the same network
        assert (await ask(served, key, "2001:db8:1:3::1")).status == 200
        assert (await ask(served, key, "198.51.100.7")).status == 200


async def test_old_failures_are_forgotten(house: House, clock: list[float]) -> None:
    async with served_api(house, network=PROXIED) as served:
        await statuses(served, "198.51.100.7", FREE)
        clock[0] += 601
        assert await statuses(served, "198.51.100.7", FREE) == [401] * FREE


async def test_on_this_machine_a_good_key_is_never_refused_for_wrong_ones(
    served: Served, clock: list[float]
) -> None:
    assert await statuses(served, None, FREE + 5) == [401] * FREE + [429] * 5
    assert (await ask(served, served.key)).status == 200


async def test_nobody_chooses_an_address_without_a_trusted_proxy(
    served: Served, clock: list[float]
) -> None:
    tried = [(await ask(served, WRONG, f"198.51.100.{n}")).status for n in range(FREE + 3)]
    assert tried == [401] * FREE + [429] * 3


@pytest.mark.parametrize(
    "network",
    [GatewayConfig(trusted_proxies=["10.1.2.3"]), GatewayConfig(trusted_proxies=["::1/128"])],
)
async def test_another_proxy_than_the_trusted_one_is_not_believed(
    house: House, clock: list[float], network: GatewayConfig
) -> None:
    async with served_api(house, network=network) as served:
        tried = [(await ask(served, WRONG, f"198.51.100.{n}")).status for n in range(FREE + 3)]
        assert tried[-3:] == [429] * 3


async def test_what_the_client_itself_wrote_before_the_proxy_is_not_believed(
    house: House, clock: list[float]
) -> None:
    async with served_api(house, network=PROXIED) as served:
        written = [f"203.0.113.{n}, 198.51.100.7, 127.0.0.9" for n in range(FREE + 3)]
        tried = [(await ask(served, WRONG, each)).status for each in written]
        assert tried == [401] * FREE + [429] * 3
        # What is no address counts as the proxy itself, not as somebody new.
        tried = [(await ask(served, WRONG, f"x{n}")).status for n in range(FREE + 3)]
        assert tried == [401] * FREE + [429] * 3


async def test_no_key_at_all_is_no_attempt(house: House, clock: list[float]) -> None:
    async with served_api(house, network=PROXIED) as served:
        where = served.api.where + "/v1/models"
        for _ in range(FREE + 5):
            async with served.http.get(where, headers={"X-Forwarded-For": "198.51.100.7"}) as got:
                assert got.status == 401
        assert (await ask(served, WRONG, "198.51.100.7")).status == 401


async def test_open_addresses_are_no_way_to_try_keys(house: House, clock: list[float]) -> None:
    key = a_key(house.profile, "watch", "admin")
    async with served_api(house, network=PROXIED) as served:
        assert b"degraded" in (await ask(served, key, "198.51.100.8", "/readyz")).body
        for _ in range(FREE + 2):
            got = await ask(served, WRONG, "198.51.100.7", "/readyz")
            assert (got.status, json.loads(got.body)) == (200, {"ready": True})
        # It is not told whether this one is good; a health check goes on all the same.
        got = await ask(served, key, "198.51.100.7", "/readyz")
        assert (got.status, json.loads(got.body)) == (200, {"ready": True})
        assert (await ask(served, WRONG, "198.51.100.7")).status == 429


async def test_tokens_of_the_webhook_are_counted_with_the_keys(
    house: House, clock: list[float]
) -> None:
    hub = WebhookHub()
    hub.enrol("default", "t" * 32)
    api = an_api(house.profile, network=PROXIED, mounted=[hub])
    house.more_surfaces = [api]
    await house.open()
    async with aiohttp.ClientSession() as http:
        served = Served(house, http)
        served.api = api
        sent = {"X-Forwarded-For": "198.51.100.7"}
        tried = [
            (await served.post("/webhook", {}, key="w" * 32, headers=sent)) for _ in range(FREE + 1)
        ]
        assert [got.status for got in tried] == [401] * FREE + [429]
        assert set(json.loads(tried[-1].body)) == {"error"}
        assert tried[-1].headers["Retry-After"] == "1"
        assert (await ask(served, WRONG, "198.51.100.7")).status == 429
        clock[0] += 2
        good = await served.post("/webhook", {}, key="t" * 32, headers=sent)
        assert good.status == 503  # its surface is not started: the token was taken


async def test_the_table_is_bounded(house: House, clock: list[float]) -> None:
    attempts = auth_attempts.AuthAttempts()
    for number in range(5000):
        group = f"10.{number >> 8}.{number & 255}.1"
        attempts._note_failure(group)
    assert len(attempts._failures) == 4096


async def test_the_audit_log_has_the_first_use_of_a_key_and_counts_wrong_ones(
    house: House, clock: list[float]
) -> None:
    async with served_api(house, network=PROXIED) as served:
        key = a_key(house.profile)
        for client in ("198.51.100.7", "198.51.100.7", "198.51.100.8"):
            assert (await ask(served, key, client)).status == 200
        await statuses(served, "203.0.113.9", 60)
    await asyncio.to_thread(audit.flush)
    folder = audit.audit_folder(house.profile)
    found = [record for record in records_of(folder) if record.kind in ("key.used", "key.refused")]
    used = [record for record in found if record.kind == "key.used"]
    assert [record.fields["from"] for record in used] == ["198.51.100.7", "198.51.100.8"]
    assert {record.fields["who"] for record in used} == {f"key:default:{key.split('-')[3]}"}
    refused = [record for record in found if record.kind == "key.refused"]
    assert [record.fields["from"] for record in refused] == ["203.0.113.9"] * 2
    assert sum(record.data.get("times", 1) for record in refused) == 60
    text = (folder / "audit.jsonl").read_text()
    assert key not in text
    assert WRONG not in text
