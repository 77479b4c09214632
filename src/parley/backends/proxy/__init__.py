"""A remote agent as a backend: it speaks OpenAI's chat completions, as another Parley does."""

from __future__ import annotations

from parley.backends.proxy.backend import ProxyBackend, proxy_url_of
from parley.backends.proxy.result import ProxyResult

__all__ = ["ProxyBackend", "ProxyResult", "proxy_url_of"]
