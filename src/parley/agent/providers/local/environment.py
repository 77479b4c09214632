"""The environment of our children: only what is on a short list, so that no secret passes on."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["model_environment", "pip_environment"]

_ALWAYS = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "PATH",
        "PYTHONPATH",
        "SYSTEMROOT",
        "TEMP",
        "TMP",
        "TMPDIR",
        "TZ",
    }
)
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
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
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
    return {name: value for name, value in source.items() if name in _ALWAYS | _MODEL}


def pip_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What pip may know: also its own settings, the proxies and the certificates."""
    source = os.environ if environment is None else environment
    return {
        name: value
        for name, value in source.items()
        if name in _ALWAYS or name.upper() in _PIP or name.startswith("PIP_")
    }
