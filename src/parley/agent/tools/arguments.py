"""What the model writes for a tool of ours, and the little it is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Arguments"]

_UNTOLD = frozenset({"title", "minLength", "maxLength", "maxItems"})


class Arguments(BaseModel):
    """Unknown fields are refused; the schema is one plain object, without what costs tokens only.

    A field that may be None is told by the type that it has when given, a switch is off when it is
    not. How long a text or a list may be is told when it is too long.
    """

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        schema = super().model_json_schema(*args, **kwargs)
        known = schema.pop("$defs", {})
        plain: dict[str, Any] = _plain(schema, known)
        return plain


def _plain(value: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_plain(item, known) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        part = known[value["$ref"].rpartition("/")[2]]
        return _plain({**part, "additionalProperties": None}, known)
    kinds = [kind for kind in value.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        value = {**kinds[0], **{key: part for key, part in value.items() if key != "anyOf"}}
    return {
        key: {name: _plain(part, known) for name, part in item.items()}
        if key == "properties"
        else _plain(item, known)
        for key, item in value.items()
        if key not in _UNTOLD
        and item not in (None, "")
        and not (key == "default" and item is False)
    }
