"""Who may ask, what every response says, and what is told of what goes wrong."""

from __future__ import annotations

import asyncio
import re

import pytest
from aiohttp import web

from parley.gateway.intake import Stopping
from parley.gateway.routing import NobodyThere
from parley.protocol import ParleyError
from parley.storage.contract import StoreUnavailable
from parley.surfaces.api.edge import EdgeRules, request_id
from parley.surfaces.api.errors import ApiError, ClientGone
from tests.surfaces.api.raw import Answer, Handler, Raw, a_site

PAGE = "https://chat.example.org"
ALLOWED = EdgeRules.of([PAGE + "/"])


async def ok(request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


async def docs(request: web.Request) -> web.StreamResponse:
    headers = {"Content-Security-Policy": "default-src 'self'", "Cache-Control": "max-age=60"}
    return web.Response(text="<p>", content_type="text/html", headers=headers)


def raises(error: Exception) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise error

    return handler


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", ok),
    ("POST", "/say", ok),
    ("GET", "/docs", docs),
)


async def asked(
    method: str = "GET", path: str = "/", rules: EdgeRules | None = None, **headers: str
) -> Answer:
    async with a_site(*ROUTES, rules=rules) as site, Raw(site) as raw:
        return await raw.ask(method, path, **headers)


async def told(error: Exception) -> Answer:
    async with a_site(("GET", "/", raises(error))) as site, Raw(site) as raw:
        return await raw.get()


# ── what every response says ──


@pytest.mark.parametrize("path", ["/", "/nowhere", "/say", "/docs"])
async def test_every_response_says_what_a_browser_may_not_do(path: str) -> None:
    headers = (await asked(path=path)).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Server" not in headers
    assert not any(name.startswith("Access-Control") for name in headers)
    if path != "/docs":
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["Cache-Control"] == "no-store"


async def test_a_page_may_have_a_policy_of_its_own() -> None:
    headers = (await asked(path="/docs")).headers
    assert headers["Content-Security-Policy"] == "default-src 'self'"
    assert headers["Cache-Control"] == "max-age=60"


async def test_every_request_has_an_id_of_its_own() -> None:
    one, two = (await asked()).headers["X-Request-Id"], (await asked()).headers["X-Request-Id"]
    assert re.fullmatch(r"req_[0-9a-f]{18}", one)
    assert one != two


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("abc-123_4.5", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("a b", False),
        ("<script>", False),
        ("é", False),
        ("", False),
    ],
)
async def test_a_clients_own_id_is_kept_where_it_is_short_and_plain(given: str, kept: bool) -> None:
    got = (await asked(X_Request_Id=given)).headers["X-Request-Id"]
    assert (got == given) is kept


# ── who may ask ──


@pytest.mark.parametrize("rules", [EdgeRules(), ALLOWED], ids=["closed", "open to one"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1",
        "https://chat.example.org.evil.example",
        "http://chat.example.org",
        "https://chat.example.org:444",
        "*",
    ],
)
async def test_a_page_of_another_site_is_refused_everywhere(
    rules: EdgeRules, method: str, origin: str
) -> None:
    path = "/say" if method == "POST" else "/"
    answer = await asked(method, path, rules, Origin=origin, Access_Control_Request_Method="POST")
    assert answer.status == 403
    assert "Access-Control-Allow-Origin" not in answer.headers
    if method != "HEAD":
        assert answer.code == "origin_not_allowed"


async def test_a_page_that_is_not_found_is_refused_to_other_sites_too() -> None:
    assert (await asked(path="/nowhere", Origin="https://evil.example")).status == 403


async def test_two_origins_are_one_too_many() -> None:
    async with a_site(*ROUTES, rules=ALLOWED) as site, Raw(site) as raw:
        line = f"Origin: {PAGE}\r\n"
        await raw.send(f"GET / HTTP/1.1\r\nHost: x\r\n{line}{line}\r\n".encode())
        assert (await raw.answer()).status in {400, 403}


async def test_our_own_page_may_ask() -> None:
    async with a_site(*ROUTES) as site, Raw(site) as raw:
        own = f"http://127.0.0.1:{site.port}"
        answer = await raw.get(Origin=own)
        assert answer.status == 200
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_page_that_is_allowed_may_read_the_answer() -> None:
    headers = (await asked(rules=ALLOWED, Origin=PAGE)).headers
    assert headers["Access-Control-Allow-Origin"] == PAGE
    assert headers["Vary"] == "Origin"
    assert "X-Parley-Session-Id" in headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in headers


async def test_it_may_read_an_error_too() -> None:
    answer = await asked(path="/nowhere", rules=ALLOWED, Origin=PAGE)
    assert answer.status == 404
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE


async def test_what_is_kept_between_is_not_given_to_another_page() -> None:
    assert (await asked(rules=ALLOWED)).headers["Vary"] == "Origin"


async def test_a_preflight_of_an_allowed_page_is_answered() -> None:
    answer = await asked(
        "OPTIONS", "/say", ALLOWED, Origin=PAGE, Access_Control_Request_Method="POST"
    )
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in answer.headers["Access-Control-Allow-Methods"].split(", ")
    taken = answer.headers["Access-Control-Allow-Headers"].split(", ")
    assert {"Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"} <= set(taken)
    assert {"X-Hermes-Session-Id", "X-Parley-Session-Id", "X-Parley-Events"} <= set(taken)


def test_an_asterisk_allows_nobody() -> None:
    assert EdgeRules.of(["*", "null", " "]).origins == frozenset()


async def test_a_name_that_was_made_to_point_here_is_not_answered() -> None:
    rules = EdgeRules.of([], hosts=["127.0.0.1", "localhost", "[::1]"])
    for host in ("127.0.0.1:8642", "LOCALHOST", "[::1]:8642", "[::1]"):
        assert (await asked(rules=rules, Host=host)).status == 200
    for host in ("evil.example:8642", "evil.example", "", "127.0.0.1.evil.example"):
        assert (await asked(rules=rules, Host=host)).status == 421


# ── methods ──


async def test_a_head_is_a_get_without_its_body() -> None:
    async with a_site(*ROUTES) as site, Raw(site) as raw:
        answer = await raw.ask("HEAD", "/")
        assert (answer.status, answer.headers["Content-Length"]) == (200, "2")
        assert (await raw.get()).body == b"ok"  # nothing was left on the wire


async def test_options_tell_what_an_address_takes() -> None:
    answer = await asked("OPTIONS", "/say")
    assert (answer.status, answer.headers["Allow"]) == (204, "OPTIONS, POST")
    assert (await asked("OPTIONS", "/nowhere")).status == 404


@pytest.mark.parametrize(("method", "path"), [("GET", "/say"), ("PUT", "/say"), ("PURGE", "/")])
async def test_another_method_is_told_which_ones_are_taken(method: str, path: str) -> None:
    answer = await asked(method, path)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert "OPTIONS" in answer.headers["Allow"]


@pytest.mark.parametrize(
    "line", ["TRACE / HTTP/1.1", "CONNECT 127.0.0.1:80 HTTP/1.1", "CONNECT evil:80 HTTP/1.1"]
)
async def test_trace_and_connect_are_refused_and_the_connection_closed(line: str) -> None:
    async with a_site(("*", "/", ok)) as site, Raw(site) as raw:
        await raw.send(f"{line}\r\nHost: x\r\nX-Secret: s3cret\r\n\r\n".encode())
        wire = await raw.rest()
        assert b" 405 " in wire[:16]
        assert b"s3cret" not in wire
        assert b"\r\nConnection: close\r\n" in wire


# ── what goes wrong ──


async def test_an_unknown_address_is_told_in_openais_shape() -> None:
    answer = await asked(path="/nowhere")
    assert (answer.status, answer.code) == (404, "unknown_url")
    assert answer.json["error"]["type"] == "invalid_request_error"


async def test_an_error_that_nobody_foresaw_is_logged_and_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await told(LookupError("s3cret"))
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"s3cret" not in answer.body
    [record] = caplog.records
    assert record.exc_info is not None
    assert vars(record)["request_id"] == answer.headers["X-Request-Id"]
    assert answer.headers["X-Request-Id"] in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError.conflict("x"), 409),
        (Stopping("x"), 503),
        (NobodyThere("x"), 503),
        (StoreUnavailable("x"), 503),
        (ParleyError("x"), 400),
        (web.HTTPRequestEntityTooLarge(1, 2), 413),
        (web.HTTPForbidden(text="<b>"), 403),
        (TimeoutError("x"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_every_error_has_its_status(error: Exception, status: int) -> None:
    answer = await told(error)
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["Content-Type"].startswith("application/json")
    assert ("Retry-After" in answer.headers) == (status == 503)


async def test_who_asks_while_we_stop_is_told_to_connect_again() -> None:
    stopping = raises(Stopping("The gateway stops."))
    async with a_site(("GET", "/", stopping)) as site, Raw(site) as raw:
        answer = await raw.get()
        assert answer.headers["Connection"] == "close"
        assert answer.headers["Retry-After"] == "1"
        assert await raw.rest() == b""


async def test_a_redirection_is_no_error() -> None:
    answer = await told(web.HTTPFound("/docs"))
    assert (answer.status, answer.headers["Location"]) == (302, "/docs")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_nothing_is_said_to_a_client_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    async with a_site(("GET", "/", raises(ClientGone("gone")))) as site, Raw(site) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await raw.rest() == b""
    assert not caplog.records


async def test_an_expectation_that_we_do_not_know_is_refused_with_our_headers() -> None:
    answer = await asked("POST", "/say", Expect="200-maybe", Content_Length="0")
    assert answer.status == 417
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Server" not in answer.headers


async def test_the_handler_knows_the_id() -> None:
    async def say(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0)
        return web.Response(text=request_id(request))

    async with a_site(("GET", "/", say)) as site, Raw(site) as raw:
        answer = await raw.get()
        assert answer.body.decode() == answer.headers["X-Request-Id"]
