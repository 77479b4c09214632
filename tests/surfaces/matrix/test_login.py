"""Finding a homeserver and getting in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from parley.protocol import ParleyError
from parley.surfaces.matrix.connection import MatrixFault
from parley.surfaces.matrix.homeserver import Homeserver
from parley.surfaces.matrix.login import (
    by_access_token,
    by_password,
    find_homeserver,
    is_user_id,
    log_out,
    ways_in,
    who_is,
)
from parley.surfaces.matrix.sso import landing, sso_link, token_in
from tests.servers.ports import free_port
from tests.servers.synapse import Synapse


@asynccontextmanager
async def well_known(status: int, body: object, **headers: str) -> AsyncIterator[str]:
    """A server whose name leads elsewhere; yields the name."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    app = web.Application()
    app.router.add_get("/.well-known/matrix/client", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_homeserver_is_found_by_address_by_name_and_by_its_users(synapse: Synapse) -> None:
    there = Homeserver(synapse.url)
    told = {"m.homeserver": {"base_url": synapse.url + "/"}}
    async with well_known(200, told) as name:
        assert await find_homeserver(synapse.url + "/") == there
        assert await find_homeserver(synapse.url.removeprefix("http://")) == there
        assert await find_homeserver(name) == there
        assert await find_homeserver(f"@bot:{name}") == there
        assert await find_homeserver(f"http://{name}") == there
        async with well_known(302, {}, Location=f"http://{name}/.well-known/matrix/client") as on:
            assert await find_homeserver(on) == there
    assert "m.login.password" in await ways_in(there)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("http://matrix.example.org", "Plain http is for this machine alone"),
        ("ftp://example.org", "https://… is wanted"),
        ("https://user:secret@example.org", "https://… is wanted"),
        ("not a name", "is no homeserver"),
        ("", "is no homeserver"),
        ("@bot", "is no homeserver"),
    ],
    ids=["http", "ftp", "credentials", "words", "nothing", "no-server"],
)
async def test_an_address_that_cannot_be_meant_is_refused(said: str, words: str) -> None:
    with pytest.raises(ParleyError, match=words):
        await find_homeserver(said)


async def test_a_name_that_leads_to_an_unsafe_place_or_to_nothing_is_refused() -> None:
    told = {"m.homeserver": {"base_url": "http://matrix.example.org"}}
    async with well_known(200, told) as name:
        with pytest.raises(ParleyError, match="Plain http"):
            await find_homeserver(name)
    async with well_known(404, {}) as name:
        with pytest.raises(ParleyError, match="No Matrix homeserver answers"):
            await find_homeserver(name)
    with pytest.raises(MatrixFault, match="cannot be reached"):
        await find_homeserver(f"127.0.0.1:{free_port()}")


async def test_an_answer_that_comes_in_pieces_is_read_whole() -> None:
    padding = "x" * 1_000_000
    async with well_known(200, {"padding": padding, "last": "here"}) as name:
        answer = await Homeserver(f"http://{name}").ask("GET", "/.well-known/matrix/client")
    assert answer.told["last"] == "here"


async def test_a_device_comes_back_by_its_id_and_ends_for_good(synapse: Synapse) -> None:
    server, who = Homeserver(synapse.url), synapse.register()
    first = await by_password(
        server, who.user_id, who.password, device_id=None, device_name="Parley"
    )
    again = await by_password(
        server, who.user_id, who.password, device_id=first.device_id, device_name="Parley"
    )
    assert (again.user_id, again.device_id) == (who.user_id, first.device_id)
    assert again.access_token not in repr(again)
    assert await by_access_token(server, again.access_token) == again
    devices = synapse.call("GET", "/_matrix/client/v3/devices", token=again.access_token)
    assert {d["device_id"]: d["display_name"] for d in devices["devices"]}[
        first.device_id
    ] == "Parley"
    assert await log_out(server, again.access_token)
    assert not await log_out(server, again.access_token)
    with pytest.raises(MatrixFault, match="does not accept the access token"):
        await who_is(server, again.access_token)
    with pytest.raises(MatrixFault, match="does not accept this password") as refused:
        await by_password(server, who.user_id, "wrong pass", device_id=None, device_name="Parley")
    assert "wrong pass" not in str(refused.value)


async def test_only_who_knows_the_path_brings_a_login_token() -> None:
    async with landing() as place, aiohttp.ClientSession() as browser:
        root = place.url.rpartition("/")[0]
        for address in (root, f"{root}/?loginToken=of-a-stranger", f"{root}/x?loginToken=12345678"):
            async with browser.get(address) as answer:
                assert answer.status == 404
        async with browser.get(place.url) as answer:
            assert answer.status == 400
        assert not place.token.done()
        async with browser.get(f"{place.url}?loginToken=syl_one%2Btwo") as answer:
            assert answer.status == 200
            assert "syl_one" not in await answer.text()
        assert await place.token == "syl_one+two"
        link = sso_link(Homeserver("https://example.org"), place.url)
        assert link.startswith("https://example.org/_matrix/client/v3/login/sso/redirect?")


@pytest.mark.parametrize(
    ("pasted", "token"),
    [
        ("syl_abcdefgh\n", "syl_abcdefgh"),
        ("http://127.0.0.1:9/x?loginToken=syl_abc%2Bdef", "syl_abc+def"),
        ("?loginToken=syl_abcdefgh", "syl_abcdefgh"),
        ("http://127.0.0.1:9/x", None),
        ("http://127.0.0.1:9/x?loginToken=", None),
        ("two words", None),
        ("", None),
    ],
    ids=["bare", "address", "query", "no-token", "empty-token", "words", "nothing"],
)
def test_a_login_token_is_found_in_what_is_pasted(pasted: str, token: str | None) -> None:
    assert token_in(pasted) == token


@given(st.text(max_size=60))
def test_whatever_is_pasted_is_a_token_or_nothing(pasted: str) -> None:
    token = token_in(pasted)
    assert token is None or (token.isascii() and " " not in token)


@pytest.mark.parametrize(
    "text", ["@a:b.org", "@a.b-c=_/+:localhost:8008", "@x:[::1]"], ids=["plain", "odd", "six"]
)
def test_ids_of_users_are_known(text: str) -> None:
    assert is_user_id(text)


@pytest.mark.parametrize(
    "text", ["a:b", "@a", "@:b", "@a b:c", "@a:", "@a:b\n", "@" + "a" * 260 + ":b"], ids=repr
)
def test_what_is_no_id_of_a_user_is_refused(text: str) -> None:
    assert not is_user_id(text)
