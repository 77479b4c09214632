"""What a model server's refusals mean: statuses and errors into one sentence each, no secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parley.agent.providers.base import ErrorKind, ProviderError

__all__ = ["Peer", "fault_of_error", "fault_of_status", "retry_after_seconds"]

_DETAIL_LENGTH = 400
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)|prompt is too long|input is too long"
    r"|too many (input )?tokens|token count .{0,40}exceeds|reduce the length|context the overflows",
    re.IGNORECASE,
)
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|key|AIza|Bearer)[-_ ]?[\w*.\-]{8,}")
_KIND_OF_TYPE: Mapping[str, ErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "invalid_api_key": "auth",
    "insufficient_quota": "auth",
    "billing_error": "auth",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "too_many_requests": "rate_limited",
    "overloaded_error": "overloaded",
    "server_error": "overloaded",
    "internal_server_error": "overloaded",
    "api_error": "overloaded",
    "timeout_error": "timeout",
    "context_length_exceeded": "too_long",
    "exceed_context_size_error": "too_long",
    "request_too_large": "too_long",
    "invalid_request_error": "refused",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a sentence speaks of. `key` is held only so that it can be taken out of texts."""

    label: str
    address: str
    model: str
    key_variable: str | None
    key: str | None = field(repr=False)

    def quote(self, text: str) -> str:
        """A server's own words: on one line, cut, and without anything that looks like a key."""
        line = " ".join(text.split())
        if self.key:
            line = line.replace(self.key, "[key]")
        line = _LOOKS_LIKE_A_KEY.sub("[key]", line).rstrip(". ")
        return line if len(line) <= _DETAIL_LENGTH else line[:_DETAIL_LENGTH] + "…"


def fault_of_status(
    peer: Peer, status: int, *, headers: Mapping[str, str], body: bytes
) -> ProviderError:
    """The error that an answer with `status` stands for."""
    detail, names = _read_body(body)
    kind = _kind_of_status(status, detail=detail, names=names)
    if 300 <= status < 400:
        target = peer.quote(headers.get("Location", "another address").partition("?")[0])
        detail = f"it redirects to {target}, so put that address into `base_url`"
    wait = retry_after_seconds(headers) if kind in {"rate_limited", "overloaded"} else None
    sentence = _sentence(peer, kind, status=status, detail=detail, wait=wait, names=names)
    said = _about_request(peer, status, detail)
    return ProviderError(sentence, kind=kind, status=status, retry_after=wait, detail=said)


def fault_of_error(peer: Peer, error: object) -> ProviderError:
    """The error that an `error` object inside a stream, or a whole answer, stands for."""
    detail, names = _read_error(error)
    status = next((int(name) for name in names if name.isdigit() and len(name) == 3), None)
    kind: ErrorKind | None = next((_KIND_OF_TYPE[n] for n in names if n in _KIND_OF_TYPE), None)
    if _TOO_LONG.search(detail):
        kind = "too_long"
    elif kind is None and status is not None:
        kind = _kind_of_status(status, detail=detail, names=names)
    kind = kind or "overloaded"  # it broke off by itself: most often a fault of the moment
    sentence = _sentence(peer, kind, status=status, detail=detail, wait=None, names=names)
    return ProviderError(sentence, kind=kind, status=status)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the server asks us to wait: seconds or a date; None when it does not say."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    seconds = _number(text)
    if seconds is not None:
        return seconds
    import time
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _about_request(peer: Peer, status: int, detail: str) -> str:
    """The server's words, where they are about the request and not about how it is set up."""
    return peer.quote(detail) if status in {400, 422} else ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _kind_of_status(status: int, *, detail: str, names: frozenset[str]) -> ErrorKind:
    # An empty purse is no rate: waiting does not fill it, another provider or the owner helps.
    if status in {401, 402, 403} or "insufficient_quota" in names:
        return "auth"
    if status == 413 or (
        status in {400, 422, 500} and (_TOO_LONG.search(detail) or "too_long" in _kinds(names))
    ):
        return "too_long"
    if status == 429:
        return "rate_limited"
    if status == 408:
        return "timeout"
    if status in {404, 405}:
        return "not_found"
    return "overloaded" if status >= 500 else "refused"


def _kinds(names: frozenset[str]) -> set[ErrorKind]:
    return {_KIND_OF_TYPE[name] for name in names if name in _KIND_OF_TYPE}


def _sentence(
    peer: Peer,
    kind: ErrorKind,
    *,
    status: int | None,
    detail: str,
    wait: float | None,
    names: frozenset[str],
) -> str:
    said = f": {peer.quote(detail)}" if detail else ""
    code = f" (status {status})" if status else ""
    match kind:
        case "auth":
            return _auth_sentence(peer, status, said=said, names=names)
        case "rate_limited":
            when = f"try again in {wait:.0f} s" if wait else "try again in a moment"
            return f"{peer.label} allows no more requests just now{said}; {when}."
        case "overloaded":
            return f"{peer.label} cannot answer just now{code}{said}; try again in a moment."
        case "timeout":
            return f"{peer.label} took too long to answer{code}{said}; try again in a moment."
        case "too_long":
            return (
                f"The conversation is too long for {peer.model} at {peer.label}{said}; "
                "start a new one with /new or choose a model with a larger window."
            )
        case _:
            return _refused_sentence(peer, status, said=said, code=code)


def _auth_sentence(peer: Peer, status: int | None, *, said: str, names: frozenset[str]) -> str:
    place = peer.key_variable or "its settings"
    if status == 402 or names & {"insufficient_quota", "billing_error"}:
        return f"The account at {peer.label} has no credit left: top it up or use another provider."
    if not peer.key:
        return f"{peer.label} wants a key: put one into {place} with `parley setup`."
    if status == 403:
        return (
            f"{peer.label} does not let the key in {place} use {peer.model}{said}; "
            "give it that right there, or set another one with `parley setup`."
        )
    # The server's words are left out: they tend to repeat parts of the key.
    return f"{peer.label} does not accept the key in {place}: set a valid one with `parley setup`."


def _refused_sentence(peer: Peer, status: int | None, *, said: str, code: str) -> str:
    lowered = said.lower()
    if status == 404 and "model" in lowered:
        return (
            f"{peer.label} has no model {peer.model}{said}; "
            "choose another with `parley config set model.name MODEL`."
        )
    if status in {404, 405}:
        return (
            f"{peer.label} serves no models at {peer.address}{code}{said}; "
            f"check `providers.{peer.label}.base_url`, which mostly ends in /v1."
        )
    if "support tools" in lowered or "support tool" in lowered:
        return (
            f"{peer.model} at {peer.label} cannot use tools{said}; "
            f"turn them off with `parley config set providers.{peer.label}.tools false`."
        )
    return f"{peer.label} refused the request{code}{said or ': it gave no reason'}."


def _read_body(body: bytes) -> tuple[str, frozenset[str]]:
    text = body.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return ("" if text.startswith("<") else text), frozenset()
    if isinstance(value, list) and value:  # some servers wrap the error in a list
        value = value[0]
    if isinstance(value, dict):
        return _read_error(value.get("error", value))
    return text, frozenset()


def _read_error(error: object) -> tuple[str, frozenset[str]]:
    if not isinstance(error, dict):
        return ("" if error is None else str(error)), frozenset()
    fields: dict[str, Any] = error
    detail = next(
        (fields[name] for name in ("message", "detail", "error", "msg") if fields.get(name)), ""
    )
    if not isinstance(detail, str):
        detail = json.dumps(detail, ensure_ascii=False)
    names = {str(fields[name]) for name in ("type", "code", "status") if fields.get(name)}
    return detail, frozenset(names)
