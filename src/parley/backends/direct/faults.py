"""What goes wrong with an agent behind a WebSocket, as sentences that a person can read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from parley.agent.foreign import one_line
from parley.agent.providers.base import ErrorKind
from parley.backends.direct import frames
from parley.config.redact import Redactor
from parley.protocol import ParleyError

__all__ = [
    "AGENT_CLOSED",
    "AGENT_ERROR",
    "AGENT_REFUSED",
    "AGENT_TIMEOUT",
    "AGENT_UNREACHABLE",
    "GRACEFUL_DISCONNECT",
    "KEY_VARIABLE",
    "OWN_CODES",
    "FarAgent",
    "PlatformError",
]

KEY_VARIABLE: Final = "AGENT_WS_KEY"

AGENT_BUSY: Final = "AGENT_BUSY"
AGENT_CLOSED: Final = "AGENT_CLOSED"
AGENT_ERROR: Final = "AGENT_ERROR"
AGENT_PROTOCOL_ERROR: Final = "AGENT_PROTOCOL_ERROR"
AGENT_REFUSED: Final = "AGENT_REFUSED"
AGENT_TIMEOUT: Final = "AGENT_TIMEOUT"
AGENT_UNREACHABLE: Final = "AGENT_UNREACHABLE"
GRACEFUL_DISCONNECT: Final = "GRACEFUL_DISCONNECT"

OWN_CODES: Final = frozenset(
    {AGENT_BUSY, AGENT_CLOSED, AGENT_PROTOCOL_ERROR, AGENT_REFUSED, AGENT_TIMEOUT}
    | {AGENT_UNREACHABLE, GRACEFUL_DISCONNECT}
)
"""Those that tell of the connection; others are the agent's own."""

_MOST_QUOTED: Final = 300
_CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_AGAIN: Final = "try again in a moment"


class PlatformError(ParleyError):
    """A remote agent gave no answer. `code` says why to a program, the text to a person.

    `details` is what the agent itself said of it, cleaned; `kind` is as for a model's errors.
    """

    def __init__(
        self,
        sentence: str,
        *,
        code: str,
        details: str | None = None,
        kind: ErrorKind = "broken",
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.details = details
        self.kind: ErrorKind = kind


@dataclass(frozen=True, slots=True)
class FarAgent:
    """Whom a sentence speaks of. `key` is held only so that it can be taken out of texts."""

    shown: str
    key: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"the agent at {self.shown}"

    # ── it cannot be reached, or does not want us ──

    def unreachable(self, why: str) -> PlatformError:
        return PlatformError(
            f"Nothing answers at {self.shown}: {why}.", code=AGENT_UNREACHABLE, kind="unreachable"
        )

    def wrong_key(self) -> PlatformError:
        return PlatformError(
            f"The key in {KEY_VARIABLE} holds a space, a line break or a character that no key "
            "has; set it again.",
            code=AGENT_REFUSED,
            kind="auth",
        )

    def handshake(self, status: int) -> PlatformError:
        """It answered over HTTP, but opened no WebSocket."""
        if status in {401, 403, 407}:
            return self._not_allowed()
        if status == 429:
            return self._busy()
        if status >= 500:
            what = f"cannot answer just now (HTTP {status}); {_AGAIN}"
            return self._error(what, AGENT_REFUSED, "overloaded")
        what = f"offers no WebSocket there (HTTP {status}); check `direct.url`"
        return self._error(what, AGENT_REFUSED, "refused")

    def silent(self, seconds: float) -> PlatformError:
        what = f"said nothing for {seconds:g} s; try again, or raise `direct.timeout_seconds`"
        return self._error(what, AGENT_TIMEOUT, "timeout")

    # ── it went ──

    def closed(self, code: int | None) -> PlatformError:
        """The connection ended before the answer did; without a code it broke."""
        match code:
            case frames.CLOSE_NOT_ALLOWED | 4403 | 1008:
                return self._not_allowed()
            case frames.CLOSE_NO_THREAD:
                what = "does not take this conversation's name; check `direct.url`"
                return self._error(what, AGENT_REFUSED, "refused")
            case frames.CLOSE_BUSY | 1013:
                return self._busy()
            case frames.CLOSE_BAD_FRAME | 1002 | 1003 | 1007:
                what = "did not understand the message; both ends must speak the same protocol"
                return self._error(what, AGENT_PROTOCOL_ERROR, "broken")
            case 1009:
                what = "takes no message as large as this; send a shorter one, or smaller files"
                return self._error(what, AGENT_CLOSED, "too_long")
            case 1001 | 1012:
                return self._error(f"is going down; {_AGAIN}", AGENT_CLOSED, "overloaded")
            case 1011:
                what = f"broke down in the midst of its work; {_AGAIN}"
                return self._error(what, AGENT_CLOSED, "broken")
            case None:
                what = f"was lost before its answer was complete; {_AGAIN}"
                return self._error(what, AGENT_CLOSED, "broken")
            case _:
                what = f"closed the connection before its answer was complete ({code}); {_AGAIN}"
                return self._error(what, AGENT_CLOSED, "broken")

    def dead(self) -> PlatformError:
        """It no longer answers the heartbeat."""
        return self._error(f"no longer answers; {_AGAIN}", AGENT_CLOSED, "unreachable")

    def goodbye(self) -> PlatformError:
        what = f"ended the conversation before its answer was complete; {_AGAIN}"
        return self._error(what, GRACEFUL_DISCONNECT, "overloaded")

    # ── what it said ──

    def broken(self, what: str) -> PlatformError:
        """It said something that the protocol does not have."""
        what = f"{what}; check that `direct.url` is the address of an agent"
        return self._error(what, AGENT_PROTOCOL_ERROR, "broken")

    def error(self, code: object, details: object) -> PlatformError:
        """Its own word for what went wrong."""
        known = code if isinstance(code, str) and _CODE.fullmatch(code) else AGENT_ERROR
        said = self.quote(details)
        what = said or f"it gave no reason ({known}); {_AGAIN}"
        return PlatformError(
            f"The agent at {self.shown} could not answer: {what}{'' if what[-1] in '.…' else '.'}",
            code=known,
            details=said or None,
            kind=_KINDS.get(known, "broken"),
        )

    def quote(self, said: object) -> str:
        """Its own words: on one line, cut, without a secret or a character that nobody sees."""
        if said is None:
            return ""
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
        text = text[: 8 * _MOST_QUOTED]
        if self.key:
            text = text.replace(self.key, "[redacted]")
        text = Redactor((self.key,) if self.key else ()).text(text)
        return one_line(text, _MOST_QUOTED).rstrip(". ")

    def _not_allowed(self) -> PlatformError:
        advice = f"check the key in {KEY_VARIABLE}"
        if not self.key:
            advice = f"put its key into {KEY_VARIABLE}"
        return self._error(f"does not let this gateway in; {advice}", AGENT_REFUSED, "auth")

    def _busy(self) -> PlatformError:
        return self._error(f"takes no more messages just now; {_AGAIN}", AGENT_BUSY, "rate_limited")

    def _error(self, what: str, code: str, kind: ErrorKind) -> PlatformError:
        return PlatformError(f"The agent at {self.shown} {what}.", code=code, kind=kind)


_KINDS: Final[Mapping[str, ErrorKind]] = {
    "BUSY": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "rate_limited": "rate_limited",
    "overloaded": "overloaded",
    "unavailable": "overloaded",
    "timeout": "timeout",
    "too_long": "too_long",
    "file_too_large": "too_long",
    "budget": "refused",
}
