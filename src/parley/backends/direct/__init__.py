"""A remote agent over a WebSocket: the client's end of the direct-agent protocol."""

from __future__ import annotations

from parley.backends.direct.backend import DirectBackend
from parley.backends.direct.client import AgentSessionClient, MessageChunk, MessageResponse
from parley.backends.direct.dial import AgentSessionConfig
from parley.backends.direct.faults import PlatformError
from parley.backends.direct.keys import ThreadKey, build_thread_key, parse_thread_key

__all__ = [
    "AgentSessionClient",
    "AgentSessionConfig",
    "DirectBackend",
    "MessageChunk",
    "MessageResponse",
    "PlatformError",
    "ThreadKey",
    "build_thread_key",
    "parse_thread_key",
]
