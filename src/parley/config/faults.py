"""What the models found wrong, in words a person can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic_core import ErrorDetails

from parley.config.document import Document, SettingPath
from parley.config.env import looks_secret
from parley.config.errors import Fault
from parley.config.redact import Redactor
from parley.config.schema import nearest_setting

__all__ = ["describe_fault", "found", "unknown_setting", "wanted"]

_WANTED: Final = {
    "bool": "`true` or `false`",
    "clock": "a time of day like 04:00",
    "dict": "settings under it",
    "float": "a number",
    "host": "the name of a host, such as agent.example.org",
    "int": "a whole number",
    "list": "a list",
    "model": "settings under it",
    "network": "an address or a network, such as 127.0.0.1 or 10.0.0.0/8",
    "number": "a number",
    "origin": "an origin such as https://chat.example.org",
    "finite": "an ordinary number",
    "string": "text",
    "zone": "a time zone such as Europe/Paris",
}
_ADDRESSES: Final[Mapping[str, str]] = {
    "web_address": "an address that begins with http:// or https://, such as http://host:8642",
    "public_address": "an address that begins with https:// or http://, without a name, a "
    "password, `?` or `#` in it, such as https://agent.example.org",
    "bare_address": "an address without a name, a password, `?` or `#` in it; the key goes into "
    "`.env` as GATEWAY_PROXY_KEY",
    "socket_address": "an address that begins with ws:// or wss://, such as "
    "ws://host:8642/agent_ws/",
    "bare_socket": "an address without a name, a password or `#` in it; the key goes into `.env` "
    "as AGENT_WS_KEY",
}


def describe_fault(
    error: ErrorDetails, document: Document, origins: Mapping[SettingPath, str]
) -> Fault:
    """One error of the models as a fault of the file, or of the variable that gave the value."""
    path = tuple(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        given = error["input"]
        below = next(iter(given), None) if isinstance(given, dict) else None
        full = path if below is None else (*path, str(below))
        return document.fault(unknown_setting(full), path)
    setting = ".".join(path)
    sentence = f"`{setting}` wants {wanted(error)}, not {found(error['input'])}."
    if error["type"] == "string_pattern_mismatch":
        # What stands there may be the key itself: it is not repeated.
        sentence = f"`{setting}` wants the name of a variable, such as OPENAI_API_KEY, not a key."
    elif error["type"] in _ADDRESSES:
        # A password may stand there, or a key.
        sentence = f"`{setting}` wants {_ADDRESSES[error['type']]}."
    elif error["type"] == "missing":
        sentence = f"`{setting}` is missing."
    # An item of a list given by a variable has no path of its own there.
    for length in range(len(path), 0, -1):
        origin = origins.get(path[:length])
        if origin is not None:
            return Fault(f"{origin}: {sentence}", setting)
    return document.fault(sentence, path)


def unknown_setting(path: SettingPath) -> str:
    """That there is no such setting, and which one may have been meant."""
    setting = Redactor().text(".".join(path))
    if looks_secret(path[-1]):
        return f"unknown setting `{setting}`; keys belong in `.env`: run `parley setup`."
    close = nearest_setting(path)
    if close is not None:
        return f"unknown setting `{setting}`; did you mean `{close}`?"
    return f"unknown setting `{setting}`; `parley config get` shows all of them."


def wanted(error: ErrorDetails) -> str:
    """What would have been right."""
    limits = error.get("ctx", {})
    match error["type"]:
        case "greater_than_equal":
            return f"{_limit(limits['ge'])} or more"
        case "less_than_equal":
            return f"{_limit(limits['le'])} or less"
        case "literal_error":
            choices = str(limits["expected"]).replace("'", "`")
            return f"one of {choices}" if "," in choices else choices
        case other:
            known = _WANTED.get(other.split("_", maxsplit=1)[0])
            return known or "something else"


def found(value: object) -> str:
    """What was there instead."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, dict):
        return "settings under it"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    text = Redactor().text(str(value))
    return f"`{text[:40]}…`" if len(text) > 40 else f"`{text}`"


def _limit(number: float) -> str:
    return str(number).removesuffix(".0")
