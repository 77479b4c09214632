"""The page for people, made of the same document that programs read. Pure."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from parley.surfaces.api.openapi import BELOW_PROFILE

__all__ = ["render_page"]

_Document: TypeAlias = Mapping[str, Any]
_ADDRESS: Final = "http://127.0.0.1:8642"
_KEY: Final = "sk-parley-YOUR-KEY"


class _Html(str):
    """Text that is HTML already. All else is escaped."""

    __slots__ = ()


def render_page(document: _Document) -> str:
    """The whole page: no script, and nothing that is loaded from elsewhere."""
    info = document["info"]
    groups = _groups(document)
    content = [
        _el(
            "header",
            _el("h1", info["title"], " ", _el("small", info["version"])),
            _el("p", _prose(info["description"])),
            _el("p", _link("openapi.json", "openapi.json"), " is the same for programs."),
        ),
        _contents(groups),
        *(_group(document, tag, operations) for tag, operations in groups),
        _errors(document),
        _objects(document),
    ]
    head = _el(
        "head",
        _Html('<meta charset="utf-8">'),
        _Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        _Html('<meta name="color-scheme" content="light dark">'),
        _el("title", f"{info['title']}: the API"),
        _el("style", _Html(_style())),
    )
    return "<!doctype html>\n" + _el("html", head, _el("body", _el("main", *content)), lang="en")


@cache
def _style() -> str:
    return files("parley.surfaces.api").joinpath("page.css").read_text("utf-8")


# ── HTML ──────────────────────────────────────────────────────────────────────────────────────


def _el(name: str, *children: str, **attributes: str) -> _Html:
    """An element. `class_` is the attribute `class`."""
    given = "".join(
        f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    inner = "".join(child if isinstance(child, _Html) else html.escape(child) for child in children)
    return _Html(f"<{name}{given}>{inner}</{name}>")


def _join(parts: Iterable[str], between: str = "") -> _Html:
    escaped = (part if isinstance(part, _Html) else html.escape(part) for part in parts)
    return _Html(html.escape(between).join(escaped))


def _prose(text: str) -> _Html:
    """A sentence in which `this` is code."""
    return _Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text)))


def _link(to: str, text: str) -> _Html:
    return _el("a", text, href=to)


def _chip(text: str, kind: str = "") -> _Html:
    return _el("span", text, class_=f"chip {kind}".strip())


# ── routes ────────────────────────────────────────────────────────────────────────────────────

_Operation: TypeAlias = tuple[str, str, Mapping[str, Any]]


def _groups(document: _Document) -> list[tuple[Mapping[str, str], list[_Operation]]]:
    """The operations of each tag; those below a profile are the same again."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        if not path.startswith(BELOW_PROFILE)
        for method, operation in methods.items()
    ]
    return [
        (tag, [each for each in operations if tag["name"] in each[2]["tags"]])
        for tag in document["tags"]
    ]


def _contents(groups: list[tuple[Mapping[str, str], list[_Operation]]]) -> _Html:
    lines = [
        _el(
            "li",
            _el("a", _method(method), " ", _path(path), href=f"#{operation['operationId']}"),
        )
        for _, operations in groups
        for method, path, operation in operations
    ]
    return _el("nav", _el("ul", *lines), class_="routes")


def _group(document: _Document, tag: Mapping[str, str], operations: list[_Operation]) -> _Html:
    told = [_operation(document, *operation) for operation in operations]
    return _el("section", _el("h2", tag["name"]), _el("p", _prose(tag["description"])), *told)


def _operation(document: _Document, method: str, path: str, operation: Mapping[str, Any]) -> _Html:
    scopes = [scope for each in operation["security"] for scope in each["key"]]
    needs = _join((_chip(scope, "scope") for scope in scopes), " or ") if scopes else "none"
    parts = [
        _el("h3", _method(method), " ", _path(path)),
        _el("p", _prose(operation["summary"])),
        _el("p", "Scope: ", needs, class_="scopes"),
    ]
    takes = [_resolve(document, each) for each in operation["parameters"]]
    if takes:
        parts += [_el("h4", "Parameters"), _fields(map(_taken, takes))]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body is not None:
        model = _resolve(document, body["schema"])
        parts += [
            _el("h4", "Body"),
            _el("p", _prose(model.get("description", ""))),
            _el("details", _el("summary", "Fields"), _fields(_properties(model))),
        ]
    parts += [
        _el("h4", "Example"),
        _el("pre", _el("code", _curl(document, method, path, operation)), tabindex="0"),
        _el("h4", "Answers"),
        _answers(operation["responses"]),
    ]
    return _el("article", *parts, id=operation["operationId"])


def _method(method: str) -> _Html:
    return _el("span", method, class_=f"method {method.lower()}")


def _path(path: str) -> _Html:
    """A path, which may break behind any of its slashes."""
    return _el("code", _Html(html.escape(path).replace("/", "/<wbr>")), class_="path")


def _answers(responses: Mapping[str, Any]) -> _Html:
    good: list[str] = []
    for status, told in responses.items():
        for media, each in told.get("content", {}).items():
            schema = each["schema"]
            what = [_kind(schema)] if "$ref" in schema or "anyOf" in schema else []
            more = [_prose(schema["description"])] if "description" in schema else []
            line = _join([_chip(status), _el("code", media), *what, *more], " ")
            good.append(_el("li", line))
    bad = [
        _link(f"#error-{status}", status) for status, told in responses.items() if "$ref" in told
    ]
    errors = _el("p", "Errors: ", _join(bad, " "), class_="errors")
    return _join([_el("ul", *good, class_="answers"), errors])


def _curl(document: _Document, method: str, path: str, operation: Mapping[str, Any]) -> str:
    server = document["servers"][0]["url"]
    address = (server if "://" in server else _ADDRESS).rstrip("/") + path
    words = ["curl", *(["-X", method] if method not in {"GET", "POST"} else [])]
    lines = [" ".join([*words, shlex.quote(_filled(address))])]
    if operation["security"]:
        lines.append(f'-H "Authorization: Bearer {_KEY}"')
    body = operation.get("requestBody")
    if body is not None:
        example = body["content"]["application/json"].get("example", {})
        lines.append("-H 'Content-Type: application/json'")
        lines.append(f"-d {shlex.quote(json.dumps(example, ensure_ascii=False))}")
    elif method == "POST":
        lines[0] = lines[0].replace("curl", "curl -X POST", 1)
    return " \\\n  ".join(lines)


def _filled(path: str) -> str:
    """With something plain where something is to be put in."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), path)


# ── fields ────────────────────────────────────────────────────────────────────────────────────

_Field: TypeAlias = tuple[str, bool, Mapping[str, Any], str]


def _properties(schema: Mapping[str, Any]) -> Iterator[_Field]:
    required = schema.get("required", ())
    for name, told in schema.get("properties", {}).items():
        yield name, name in required, told, told.get("description", "")


def _taken(parameter: Mapping[str, Any]) -> _Field:
    needed = parameter.get("required", False)
    return parameter["name"], needed, parameter["schema"], parameter.get("description", "")


def _fields(fields: Iterable[_Field]) -> _Html:
    lines: list[str] = []
    for name, needed, schema, description in fields:
        marks = [_el("code", name, class_="name"), _el("span", _kind(schema), class_="kind")]
        marks += [_chip("required", "required")] if needed else []
        lines.append(_el("dt", _join(marks, " ")))
        told = [_prose(description)] if description else []
        bounds = ", ".join(_bounds(schema))
        told += [_el("span", bounds, class_="bounds")] if bounds else []
        lines.append(_el("dd", _join(told, " ")))
    return _el("dl", *lines)


def _kind(schema: Mapping[str, Any]) -> _Html:
    """What a value is, in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _link(f"#object-{name}", name)
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"] if each != {"type": "null"}]
        return _join(dict.fromkeys(kinds), " or ")
    if "const" in schema:
        return _el("code", json.dumps(schema["const"], ensure_ascii=False))
    if "enum" in schema:
        return _join((_el("code", str(each)) for each in schema["enum"]), " or ")
    if schema.get("type") == "array":
        return _join(["list of ", _kind(schema.get("items", {}))])
    return _join([str(schema.get("type", "anything"))])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for each in schema.get("anyOf", ()):
        yield from _bounds(each)
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " entries"),
    ):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            yield f"{least} to {most}{unit}" if least != most else f"exactly {most}{unit}"
        elif least:
            yield f"at least {least}{unit}"
        elif most is not None:
            yield f"at most {most}{unit}"


# ── at the end ────────────────────────────────────────────────────────────────────────────────


def _errors(document: _Document) -> _Html:
    told = document["components"]["responses"]
    statuses = {
        status: each["$ref"].rpartition("/")[2]
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, each in operation["responses"].items()
        if "$ref" in each
    }
    lines: list[str] = []
    for status, name in sorted(statuses.items()):
        lines.append(_el("dt", _chip(status), id=f"error-{status}"))
        lines.append(_el("dd", _prose(told[name]["description"])))
    shape = {"error": {"message": "…", "type": "…", "param": None, "code": "…"}}
    return _el(
        "section",
        _el("h2", "Errors"),
        _el("p", "Each has one shape, and a sentence that says what to do:"),
        _el("pre", _el("code", json.dumps(shape, ensure_ascii=False))),
        _el("dl", *lines, class_="statuses"),
    )


def _objects(document: _Document) -> _Html:
    told = [
        _el(
            "article",
            _el("h3", _el("code", name)),
            _el("p", _prose(schema.get("description", ""))),
            _fields(_properties(schema)),
            id=f"object-{name}",
        )
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return _el("section", _el("h2", "Objects"), *told)


def _resolve(document: _Document, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = document
    for step in schema["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    resolved: Mapping[str, Any] = found
    return resolved
