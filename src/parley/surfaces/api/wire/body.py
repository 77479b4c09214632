"""The JSON of a request: parsed, bounded, checked against a model; every fault a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from parley.surfaces.api.wire.errors import BadRequest

__all__ = ["check", "tame"]

_DEEPEST = 100
_MOST_VALUES = 200_000
_WIDEST_NUMBER = 256
_SHOWN_OF_A_NAME = 64

_Model = TypeVar("_Model", bound=BaseModel)


def tame(body: object, *, param: str | None = None) -> dict[str, Any]:
    """The same object with nothing in it that could not be stored or written again as JSON.

    It is the whole body, or what was written in the field `param`.
    """
    if not isinstance(body, dict):
        raise BadRequest("The body must be one JSON object in UTF-8.")
    walk = _Walk()
    return {
        _clean(str(name)): walk.through(value, param=param or _shown(name))
        for name, value in body.items()
    }


class _Walk:
    def __init__(self) -> None:
        self._values = 0

    def through(self, value: Any, *, param: str, depth: int = 1) -> Any:
        self._values += 1
        if isinstance(value, str):
            return _clean(value)
        if isinstance(value, dict | list):
            if depth >= _DEEPEST:
                raise BadRequest(
                    f"`{param}` is nested more than {_DEEPEST} levels deep.", param=param
                )
            if self._values + len(value) > _MOST_VALUES:
                raise BadRequest(f"The request holds more than {_MOST_VALUES} values.", param=param)
            depth += 1
            if isinstance(value, list):
                return [self.through(item, param=param, depth=depth) for item in value]
            return {
                _clean(str(name)): self.through(item, param=param, depth=depth)
                for name, item in value.items()
            }
        if isinstance(value, float) and not math.isfinite(value):
            raise BadRequest(f"`{param}` holds a number that is not finite.", param=param)
        if isinstance(value, int) and value.bit_length() > _WIDEST_NUMBER:
            raise BadRequest(f"`{param}` holds a number that is too large.", param=param)
        return value


def _clean(text: str) -> str:
    """Without lone surrogates and NULs, which no database takes."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def check(model: type[_Model], body: dict[str, Any], *, param: str = "") -> _Model:
    """The body, or the part of it in the field `param`, as a value of the model.

    Raises `BadRequest` with the field and what it must be.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise _explain(found, body, param) from None


def _explain(found: Sequence[ErrorDetails], body: dict[str, Any], within: str) -> BadRequest:
    """The most particular of the faults; of a field that may be several things, all of them."""
    paths = [_path(fault, body) for fault in found]
    deepest = max(paths, key=len)
    faults = [fault for path, fault in zip(paths, found, strict=True) if path == deepest]
    param = (within + "".join(deepest)).removeprefix(".")
    wanted = [_wanted(fault) for fault in faults]
    if None in wanted:
        sentence = f"`{param}` {_said(faults[wanted.index(None)])}."
    else:
        sentence = f"`{param}` must be {' or '.join(dict.fromkeys(filter(None, wanted)))}."
    return BadRequest(sentence, param=param)


def _path(fault: ErrorDetails, body: dict[str, Any]) -> tuple[str, ...]:
    """Where the fault is, as `.messages`, `[0]`, `.content`; the members of a union have no name
    in the body, and so none here.
    """
    path: list[str] = []
    at: Any = body
    ends = len(fault["loc"]) - 1
    for index, step in enumerate(fault["loc"]):
        if isinstance(step, int):
            if isinstance(at, list) and step < len(at):
                at = at[step]
                path.append(f"[{step}]")
        elif isinstance(at, dict) and (
            step in at or (index == ends and fault["type"] == "missing")
        ):
            at = at.get(step)
            path.append(f".{_shown(step)}")
    return tuple(path)


_KINDS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _wanted(fault: ErrorDetails) -> str | None:
    context: dict[str, Any] = fault.get("ctx", {})
    match fault["type"]:
        case "literal_error":
            return f"one of {context['expected']}".replace("'", "`")
        case "greater_than_equal":
            return f"at least {context['ge']:g}"
        case "less_than_equal":
            return f"at most {context['le']:g}"
        case kind:
            return _KINDS.get(kind)


def _said(fault: ErrorDetails) -> str:
    context: dict[str, Any] = fault.get("ctx", {})
    match fault["type"]:
        case "missing":
            return "is missing"
        case "string_too_long":
            return f"may have {context['max_length']} characters at most"
        case "too_long":
            return f"may have {context['max_length']} entries at most"
        case "string_too_short" | "too_short":
            return "is empty"
        case "string_pattern_mismatch":
            return "may only hold letters, digits, `_` and `-`"
        case _:
            return "is not what it should be"


def _shown(name: object) -> str:
    """A field's name, which may be anything at all, as it can be repeated."""
    text = str(name)
    if len(text) > _SHOWN_OF_A_NAME:
        text = f"{text[:_SHOWN_OF_A_NAME]}…"
    return text if text.isprintable() else ascii(text)[1:-1]
