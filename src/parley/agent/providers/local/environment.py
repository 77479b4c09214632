"""The environment of the children that are ours alone: what every child has, and a little more."""

from __future__ import annotations

import os
from collections.abc import Mapping

from parley.config.child_env import base_environment

__all__ = ["model_environment", "pip_environment"]

# They run our interpreter, for us and for no profile.
_OURS = frozenset({"HOME", "PYTHONPATH"})
_MODEL = frozenset({"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
_PIP = frozenset(
    {
        "ALL_PROXY",
        "APPDATA",
        "CURL_CA_BUNDLE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "LOCALAPPDATA",
        "NETRC",
        "NO_PROXY",
        "REQUESTS_CA_BUNDLE",
        "USER",
        "USERPROFILE",
        "VIRTUAL_ENV",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CONFIG_HOME",
    }
)


def model_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the child that runs the model may know of `environment` (ours unless given)."""
    source = os.environ if environment is None else environment
    more = {name: value for name, value in source.items() if name in _OURS | _MODEL}
    return base_environment(source) | more


def pip_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What pip, or uv, may know: also its own settings, the proxies and the certificates."""
    source = os.environ if environment is None else environment
    more = {
        name: value
        for name, value in source.items()
        if name in _OURS
        or name.upper() in _PIP
        or (name.startswith(("PIP_", "UV_")) and not name.startswith("UV_PUBLISH"))
    }
    index = source.get("UV_DEFAULT_INDEX") or source.get("UV_INDEX_URL")
    if index and "PIP_INDEX_URL" not in more:
        more["PIP_INDEX_URL"] = index
    return base_environment(source) | more
