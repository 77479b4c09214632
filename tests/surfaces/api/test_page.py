"""The page for people: all of the description, nothing foreign in it, and nothing that runs."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

from aiohttp import web

from parley.surfaces.api import page
from parley.surfaces.api.openapi import openapi_document
from parley.surfaces.api.readable import render_page
from parley.surfaces.api.routes import ROUTES
from tests.surfaces.api.raw import Answer, Handler, Raw, a_site

HOSTILE = """<script>alert("1")</script><img src=x onerror='alert(1)'> `<b>` & "quoted" </style>"""


class Reader(HTMLParser):
    """The elements of a page, and whether each that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.tags.append((tag, told))
        if (name := told.get("id")) is not None:
            self.ids.append(name)
        if tag not in {"meta", "wbr"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [str(attrs["href"]) for _, attrs in self.tags if "href" in attrs]


def served(path: str) -> tuple[str, str, Handler]:
    answer = {route.path: route.answer for route in ROUTES}[path]

    async def handle(request: web.Request) -> web.StreamResponse:
        return await answer(None, request, None)

    return "GET", path, handle


async def got(path: str) -> Answer:
    async with a_site(served(path)) as site, Raw(site) as raw:
        return await raw.get(path)


async def test_the_description_is_served() -> None:
    answer = await got("/openapi.json")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    assert answer.headers["Cache-Control"] == "public, max-age=60"
    assert answer.json == openapi_document(ROUTES, server=None)


async def test_the_page_is_served_with_a_policy_of_its_own() -> None:
    answer = await got("/docs")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"].split("; ")
    assert policy[:2] == ["default-src 'none'", "style-src 'unsafe-inline'"]
    assert "frame-ancestors 'none'" in policy
    Reader(answer.body.decode())


async def test_the_examples_name_the_address_by_which_the_page_was_asked_for() -> None:
    async with a_site(served("/docs")) as site, Raw(site) as raw:
        text = Reader((await raw.get("/docs", Host="127.0.0.1:9321")).body.decode()).text
        assert "curl http://127.0.0.1:9321/v1/models" in text
        assert "8642" not in text
        odd = Reader((await raw.get("/docs", Host="a'; rm -rf b")).body.decode()).text
        assert "rm -rf" not in odd


async def test_the_root_leads_to_the_page() -> None:
    async with a_site(("GET", "/", page.root)) as site, Raw(site) as raw:
        answer = await raw.get("/")
        assert (answer.status, answer.headers["Location"]) == (302, "/docs")


def test_what_was_made_once_is_kept() -> None:
    assert page._json() is page._json()
    assert page._html() is page._html()


def test_nothing_on_the_page_runs_or_comes_from_elsewhere() -> None:
    read = Reader(render_page(openapi_document(ROUTES, server=None)))
    assert not {tag for tag, _ in read.tags} & {"script", "link", "img", "iframe", "form", "base"}
    for _, attrs in read.tags:
        assert not [name for name in attrs if name.startswith("on") or name in {"src", "style"}]
    assert {link for link in read.links if not link.startswith("#")} == {"openapi.json"}
    style = render_page(openapi_document([], server=None)).split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_every_link_leads_somewhere_and_every_place_is_one() -> None:
    read = Reader(render_page(openapi_document(ROUTES, server=None)))
    assert len(read.ids) == len(set(read.ids))
    assert {link[1:] for link in read.links if link.startswith("#")} <= set(read.ids)


def test_every_route_and_every_field_of_a_request_is_on_the_page() -> None:
    read = Reader(render_page(openapi_document(ROUTES, server=None)))
    for route in ROUTES:
        assert route.path in read.text
        assert route.summary.replace("`", "") in read.text
        for name in route.body.model_fields if route.body else ():
            assert name in read.text
    assert "1 to 256 characters" in read.text
    assert "0 to 2" in read.text


def test_every_example_is_a_command_with_a_body_that_is_taken() -> None:
    document = openapi_document(ROUTES, server="https://parley.example/")
    shown = re.findall(r"curl .*?(?=\nAnswers|Answers)", Reader(render_page(document)).text, re.S)
    assert len(shown) == len(ROUTES)
    for route, text in zip(ROUTES, shown, strict=True):
        words = shlex.split(text.replace("\\\n", " "))
        assert (
            f"https://parley.example{re.sub(r'{(.*?)}', lambda m: m[1].upper(), route.path)}"
            in words
        )
        assert ("Authorization: Bearer sk-parley-YOUR-KEY" in words) == bool(route.scopes)
        if route.body is not None:
            route.body.model_validate(json.loads(words[words.index("-d") + 1]))


def test_whatever_a_summary_says_it_is_only_text() -> None:
    route = replace(ROUTES[0], summary=HOSTILE, path="/<i>/{a\"b}/'")
    made = render_page(openapi_document([route], server="javascript:alert(1)//<u>"))
    read = Reader(made)
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "img", "b", "i", "u"}
    assert HOSTILE.replace("`", "") in read.text
