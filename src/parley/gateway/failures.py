"""What is told when something failed: the cause to whoever runs the agent, a short sentence to
everyone else. This is the one place that decides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from parley.agent.providers.base import ProviderError
from parley.backends.direct.faults import PlatformError
from parley.config.errors import ConfigError
from parley.gateway.owners import Owners
from parley.gateway.routing import NobodyThere
from parley.protocol import Failed, ParleyError, Request, SessionSource
from parley.storage.contract import StoreClosed, StoreUnavailable

__all__ = ["CANNOT", "NotNow", "error_text", "failure_for", "is_operator"]

CANNOT: Final = "This agent cannot answer right now; its owner finds the reason in the log."
_AGAIN: Final = "please try again in a moment"
_BY_KIND: Final[Mapping[str, str]] = {
    "timeout": f"The answer took too long; {_AGAIN}.",
    "overloaded": f"This agent cannot answer right now; {_AGAIN}.",
    "rate_limited": f"Too much is asked of this agent right now; {_AGAIN}.",
    "too_long": "This is too long for the model; send less of it, or start a new conversation.",
    "broken": "The answer broke off; please try again.",
    "budget": "What this agent may spend is used up for now; please try again later.",
    "limit": "The answer took more time or steps than it may, so it was stopped.",
}


class NotNow(ParleyError):
    """The platform cannot do it just now; it is worth another try."""


_BY_ERROR: Final[Mapping[type[ParleyError], str]] = {
    StoreUnavailable: f"Nothing can be stored right now; {_AGAIN}.",
    StoreClosed: f"The gateway is stopping; {_AGAIN}.",
    NobodyThere: f"Nobody answers here right now; {_AGAIN}.",
    NotNow: "The platform cannot do it right now.",
    ConfigError: CANNOT,
}


def is_operator(owners: Owners, source: SessionSource, request: Request | None = None) -> bool:
    """Whether only those who run the agent read what is said there.

    Others read along in a group; a program is one by its key, a delegated task by whose it is.
    """
    if request is not None and request.behalf is not None:
        return owners.is_operator(request.behalf.user)
    if request is not None:
        return request.operator
    return source.chat_type == "dm" and owners.owns(source)


def failure_for(failed: Failed, *, operator: bool, program: bool = False) -> Failed:
    """The failure as it is told. The log has it whole."""
    if operator:
        return failed
    return replace(failed, sentence=_told(failed, program=program), cause="")


def error_text(error: ParleyError, *, operator: bool) -> str:
    """What is said of an error that ended no turn, such as that of a command."""
    if operator:
        return str(error)
    if isinstance(error, ProviderError | PlatformError):
        return _BY_KIND.get(error.kind, CANNOT)
    found = (text for kind, text in _BY_ERROR.items() if isinstance(error, kind))
    return next(found, str(error))


def _told(failed: Failed, *, program: bool) -> str:
    if failed.public:
        return failed.public
    if failed.kind == "unsupported":  # it says what to leave out
        return failed.sentence
    if failed.kind == "refused" and failed.detail and program:
        return f"The model refused this request: {failed.detail}."
    if failed.kind == "rate_limited" and failed.retry_after:
        seconds = f"{failed.retry_after:.0f} s"
        return f"Too much is asked of this agent right now; please try again in {seconds}."
    return _BY_KIND.get(failed.kind, CANNOT)
