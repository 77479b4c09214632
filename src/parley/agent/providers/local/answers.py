"""What llama.cpp's server sends back: stream pieces and errors, read into our words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.agent.providers.base import ProviderError
from parley.protocol import Usage

__all__ = ["StreamPiece", "read_error", "read_piece"]

_SCHEMA = re.compile(r"JSON schema|response_format|grammar", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """One event of the stream. `finish` is why the reply ended, once it has."""

    text: str = ""
    finish: str | None = None
    usage: Usage | None = None


def read_piece(data: str, *, model: str) -> StreamPiece:
    """Read one event; raise `ProviderError` when it tells of an error or makes no sense."""
    try:
        event: Mapping[str, Any] = json.loads(data)
        fault = event.get("error")
        choices = event.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        piece = StreamPiece(
            text=delta.get("content") or "",
            finish=choices[0].get("finish_reason"),
            usage=_read_usage(event.get("usage"), model),
        )
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise ProviderError(
            "The local model sent something that is no answer: ask again.", kind="broken"
        ) from error
    if fault is not None:
        raise read_error(500, data)
    return piece


def read_error(status: int, body: str) -> ProviderError:
    """The error for an answer of the server that is none."""
    try:
        fault: Mapping[str, Any] = json.loads(body)["error"]
        kind, message = str(fault.get("type", "")), str(fault.get("message", ""))
    except (ValueError, TypeError, LookupError, AttributeError):
        kind, message = "", ""
    if kind == "exceed_context_size_error" or "ontext size has been exceeded" in message:
        return ProviderError(
            "The conversation is too long for the local model: start a new one with /new.",
            kind="too_long",
            status=status,
        )
    if status == 400 and _SCHEMA.search(message):
        return ProviderError(
            f"The local model cannot keep to this `response_format` ({message}): "
            "ask with a simpler schema, or choose another model.",
            kind="unsupported",
            status=status,
        )
    if status >= 500:
        return ProviderError(
            f"The local model failed ({message or status}): ask again.",
            kind="broken",
            status=status,
        )
    return ProviderError(
        f"The local model refused the request ({message or status}).", kind="refused", status=status
    )


def _read_usage(usage: object, model: str) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        provider="local",
        model=model,
        input_tokens=int(usage.get("prompt_tokens", 0)),
        output_tokens=int(usage.get("completion_tokens", 0)),
        cached_tokens=int(details.get("cached_tokens", 0)),
    )
