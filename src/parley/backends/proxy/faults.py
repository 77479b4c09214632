"""What goes wrong with a remote agent, as an answer that a person can read. No secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from parley.agent.providers.base import ErrorKind
from parley.agent.providers.faults import Peer, fault_of_error, fault_of_status
from parley.config.redact import Redactor
from parley.protocol import Failed, ParleyError

__all__ = ["FarEnd", "ProxyError"]

_MOST_QUOTED: Final = 300
_KEY: Final = "GATEWAY_PROXY_KEY"
_PREFIX: Final = re.compile(r"(?:Proxy error(?: \(\d+\))?: )+")


class ProxyError(ParleyError):
    """The remote agent did not answer. `failed` says so to the person.

    `again`: nothing was accepted there, so the same request may be sent once more.
    """

    def __init__(self, failed: Failed, *, again: bool = False) -> None:
        super().__init__(failed.sentence)
        self.failed = failed
        self.again = again


@dataclass(frozen=True, slots=True)
class FarEnd:
    """Whom a sentence speaks of. `key` is held only so that it can be taken out of texts."""

    shown: str
    key: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"the agent at {self.shown}"

    def quote(self, text: str) -> str:
        """The far end's own words: on one line, cut, without a secret or a control character."""
        line = " ".join(text.split())
        line = "".join(letter for letter in line if letter.isprintable())
        if self.key:
            line = line.replace(self.key, "[redacted]")
        line = Redactor((self.key,) if self.key else ()).text(line)
        return f"{line[:_MOST_QUOTED]}…" if len(line) > _MOST_QUOTED else line.rstrip(". ")

    # ── it answered, but not with a reply ──

    def status(self, status: int, headers: Mapping[str, str], body: bytes) -> ProxyError:
        """What an answer with `status` stands for."""
        known = fault_of_status(self._peer, status, headers=headers, body=body)
        kind: ErrorKind = known.kind
        # Another gateway in between has said it already.
        said = self.quote(_PREFIX.sub("", _said_in(body)))
        if 300 <= status < 400:
            target = self.quote(headers.get("Location", "another address").partition("?")[0])
            said = f"it redirects to {target}"
            kind = "broken"
        sentence = f"Proxy error ({status}): {said or _MEANINGS.get(kind, 'it gave no reason')}"
        advice = "" if "try again" in said else self._advice(status, kind, known.retry_after)
        if b'"model_not_found"' in body:
            advice = "check `gateway.proxy_model`"
        return ProxyError(
            Failed(
                f"{sentence}; {advice}." if advice else f"{sentence}.",
                cause=f"proxy: {kind} {status}",
                kind=kind,
                retry_after=known.retry_after,
                detail=said if status in {400, 422} else "",
            ),
            # The others may come from a gateway in between, after the request had gone through.
            again=status in {429, 503} and headers.get("X-Should-Retry") != "false",
        )

    def error(self, error: object) -> ProxyError:
        """What an `error` inside a stream, or a whole answer, stands for."""
        kind: ErrorKind = fault_of_error(self._peer, error).kind
        said = self.quote(_said(error)) or _MEANINGS.get(kind, "it gave no reason")
        return ProxyError(Failed(f"Proxy error: {said}.", cause=f"proxy: {kind}", kind=kind))

    def broken(self, what: str) -> ProxyError:
        """It answered with something that is no reply."""
        sentence = f"Proxy error: {self.name} {what}; check `gateway.proxy_url` if it stays so."
        return ProxyError(Failed(sentence, cause=f"proxy: broken: {what}", kind="broken"))

    def untaken(self, parameter: str) -> ProxyError:
        """It would ignore what the program asks for."""
        sentence = (
            f"The remote agent that answers here does not take `{parameter}`; ask without it."
        )
        return ProxyError(Failed(sentence, cause=f"proxy: no {parameter}", kind="unsupported"))

    # ── it cannot be reached ──

    def unreachable(self, what: str, *, kind: ErrorKind = "unreachable") -> ProxyError:
        """Nothing of the request got there."""
        return ProxyError(self._connection(what, kind), again=True)

    def lost(self, what: str) -> ProxyError:
        """The connection ended while the answer was awaited: it may be at work there."""
        return ProxyError(self._connection(what, "broken"))

    def silent(self, seconds: float) -> ProxyError:
        what = (
            f"no answer within {seconds:g} s from {self.name}; try again, or raise "
            "`gateway.proxy_timeout_seconds`"
        )
        return ProxyError(self._connection(what, "timeout"))

    def wrong_key(self) -> ProxyError:
        sentence = (
            f"Proxy error: the key in {_KEY} holds a space, a line break or a character that no "
            "key has; set it again."
        )
        return ProxyError(Failed(sentence, cause="proxy: auth", kind="auth"))

    def _connection(self, what: str, kind: ErrorKind) -> Failed:
        return Failed(f"Proxy connection error: {what}.", cause=f"proxy: {kind}", kind=kind)

    def _advice(self, status: int, kind: ErrorKind, wait: float | None) -> str:
        if kind == "auth":
            return f"check the key in {_KEY}" if self.key else f"put the key into {_KEY}"
        if status in {404, 405} or 300 <= status < 400:
            return "check `gateway.proxy_url`"
        if kind in {"rate_limited", "overloaded", "timeout"}:
            return f"try again in {wait:.0f} s" if wait else "try again in a moment"
        return ""

    @property
    def _peer(self) -> Peer:
        return Peer("proxy", self.shown, "agent", _KEY, self.key)


_MEANINGS: Final[Mapping[str, str]] = {
    "auth": "it does not accept the key",
    "rate_limited": "it allows no more requests just now",
    "overloaded": "it cannot answer just now",
    "timeout": "it took too long",
    "too_long": "the conversation is too long for it",
}

_TEXT_FIELDS: Final = ("message", "detail", "error", "msg")


def _said_in(body: bytes) -> str:
    text = body.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else text
    if isinstance(value, list) and value:
        value = value[0]
    return _said(value.get("error", value) if isinstance(value, dict) else value)


def _said(error: object) -> str:
    if not isinstance(error, dict):
        return "" if error is None else str(error)
    said = next((error[name] for name in _TEXT_FIELDS if error.get(name)), "")
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
