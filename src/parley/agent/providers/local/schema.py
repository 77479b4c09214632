"""Tool calls by constrained output: one JSON object that names a tool, `reply` being one of them.

A small model left to itself writes calls that nobody can parse; held to a schema it does well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parley.agent.providers.base import ToolSpec
from parley.agent.providers.calls import new_call_id
from parley.agent.providers.local.jsontext import REPLY
from parley.protocol import ToolCall

__all__ = [
    "describe_tools",
    "read_call",
    "read_reply",
    "union_schema",
    "written_call",
    "written_reply",
]

_EXAMPLES = 3
_RULES = (
    "Answer with one JSON object: reply to the person, or call a tool and get its result.",
    f"Use {REPLY} for everything you know and for what you can write, translate or work out "
    "yourself.",
    "Use another tool only if the person asks about this computer, its files or clock, or asks you "
    "to do something. Never guess what a tool can tell you.",
    "One call is one step: write a script before you run it, read a file before you change it.",
    f"After a result, call the tool for the next step, or {REPLY} with the answer itself.",
    "Tools:",
)
_TALK = (
    ("Who painted the Mona Lisa?", "Leonardo da Vinci painted the Mona Lisa."),
    ("How much is 3/4 of 60?", "3/4 of 60 is 45."),
)
_KEPT = ("type", "enum", "const", "required")
_TEXT = {"type": "string", "minLength": 1}
_DEFINITIONS = ("$defs", "definitions")
_REPLY_BEGINS = re.compile(
    rf'\s*\{{\s*"tool"\s*:\s*"{REPLY}"\s*,\s*"args"\s*:\s*\{{\s*"text"\s*:\s*'
)


def union_schema(
    tools: Sequence[ToolSpec], *, may_reply: bool = True, text: Mapping[str, Any] = _TEXT
) -> dict[str, Any]:
    """The schema of an answer: a reply that keeps to `text`, or a call of one of `tools`."""
    offers = [(tool.name, _narrow_object(tool.parameters)) for tool in _callable(tools)]
    # References are looked up from the top.
    defined = {name: text[name] for name in _DEFINITIONS if name in text}
    if may_reply:
        within = {name: value for name, value in text.items() if name not in defined}
        args = {
            "type": "object",
            "properties": {"text": within},
            "required": ["text"],
            "additionalProperties": False,
        }
        offers.insert(0, (REPLY, args))
    return defined | {
        "anyOf": [
            {
                "type": "object",
                "properties": {"tool": {"const": name}, "args": args},
                "required": ["tool", "args"],
                "additionalProperties": False,
            }
            for name, args in offers
        ]
    }


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """What the model is told: the form of an answer, the tools, a few worked examples."""
    tools = _callable(tools)
    lines = [*_RULES, f"- {REPLY}(text): say something to the person"]
    lines += [f"- {tool.name}({_signature(tool)}): {_one_line(tool.description)}" for tool in tools]
    lines.append("Examples:")
    lines += [line for says, text in _TALK for line in (f"Person: {says}", written_reply(text))]
    shown = [tool for tool in tools if tool.example is not None][:_EXAMPLES]
    for tool in shown or tools[:_EXAMPLES]:
        if tool.example is not None:
            lines.append(f"Person: {tool.example.says}")
        args = _example(tool.parameters) if tool.example is None else tool.example.arguments
        lines.append(written_call(ToolCall("", tool.name, args)))
    return "\n".join(lines)


def written_reply(text: str) -> str:
    """A reply as the model would have written it."""
    return json.dumps({"tool": REPLY, "args": {"text": text}}, ensure_ascii=False)


def written_call(call: ToolCall) -> str:
    """A call as the model would have written it."""
    answer = {"tool": call.name, "args": dict(call.arguments)}
    return json.dumps(answer, ensure_ascii=False, default=str)


def read_call(answer: str) -> ToolCall | None:
    """The call in a whole answer; None when it is a reply or was cut short."""
    try:
        value = json.loads(answer, strict=False)
        name, args = value["tool"], value["args"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(name, str) or not isinstance(args, dict) or name == REPLY:
        return None
    return ToolCall(new_call_id(), name, args)


def read_reply(answer: str) -> str:
    """The JSON that a reply holds in place of text, as far as it was written."""
    try:
        value = json.loads(answer, strict=False)["args"]["text"]
    except (ValueError, LookupError, TypeError, RecursionError):
        begins = _REPLY_BEGINS.match(answer)
        return answer[begins.end() :] if begins else ""
    return json.dumps(value, ensure_ascii=False)


def _callable(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    return [tool for tool in tools if tool.name != REPLY]


def _narrow_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    narrowed = _narrow(schema)
    if narrowed.get("type") != "object":
        narrowed = {"type": "object", "properties": {}}
    properties: dict[str, Any] = narrowed.setdefault("properties", {})
    # A name that is required but nowhere described would make the grammar impossible.
    required = [name for name in narrowed.get("required", ()) if name in properties]
    return narrowed | {"required": required, "additionalProperties": False}


def _narrow(schema: object) -> dict[str, Any]:
    """Keep what llama.cpp can turn into a grammar; the tool checks the rest itself."""
    if not isinstance(schema, Mapping):
        return {}
    kept: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list) and schema[union]:
            return {"anyOf": [_narrow(option) for option in schema[union]]}
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        kept["type"] = "object"
        kept["properties"] = {str(name): _narrow(inner) for name, inner in properties.items()}
        required = kept.get("required")
        names = required if isinstance(required, list) else []
        kept["required"] = [name for name in names if name in kept["properties"]]
        kept["additionalProperties"] = False
    else:
        kept.pop("required", None)
    if isinstance(schema.get("items"), Mapping):
        kept["items"] = _narrow(schema["items"])
    return kept


def _signature(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required", ())
    if not isinstance(properties, Mapping):
        return ""
    return ", ".join(name if name in required else f"{name}?" for name in properties)


def _example(parameters: Mapping[str, Any]) -> dict[str, Any]:
    properties = parameters.get("properties")
    required = parameters.get("required", ())
    if not isinstance(properties, Mapping):
        return {}
    return {name: _example_value(name, properties[name]) for name in required if name in properties}


def _example_value(name: str, schema: object) -> object:
    known = schema if isinstance(schema, Mapping) else {}
    for source in ("examples", "enum"):
        if isinstance(known.get(source), list) and known[source]:
            return known[source][0]
    if "default" in known:
        return known["default"]
    plain: dict[object, object] = {
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": [],
        "object": {},
    }
    return plain.get(known.get("type"), f"some {name}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
