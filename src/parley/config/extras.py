"""Extras of Parley, and the command that installs one, for how Parley itself was installed."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from parley.config.errors import shown

__all__ = ["DISTRIBUTION", "install_command"]

DISTRIBUTION: Final = "parley-gateway"
_CHECKOUT: Final = Path(__file__).parents[3]
_MODULES: Final = {
    "local": "xllamacpp",
    "matrix": "nio",
    "mcp": "mcp",
    "embeddings": "wordllama",
    "pdf": "pypdf",
}


def install_command(extra: str) -> str:
    """What to type for this extra: for a checkout's script, uv tool, pipx, uv pip or pip."""
    script = _CHECKOUT / "scripts" / "run"
    command = os.environ.get("PARLEY_COMMAND")
    if script.is_file() and (command or Path(sys.prefix) == _CHECKOUT / ".venv"):
        named = shlex.quote(str(script)) if " " in str(script) else shown(script)
        return f"{command or named} --with {extra}"
    if (Path(sys.prefix) / "uv-receipt.toml").is_file():
        return f"uv tool install --force {_requirement(_with_installed(extra))}"
    if (Path(sys.prefix) / "pipx_metadata.json").is_file():
        return f"pipx install --force {_requirement(_with_installed(extra))}"
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {_requirement([extra])}"
    return f"{python} -m pip install {_requirement([extra])}"


def _with_installed(extra: str) -> list[str]:
    """This extra and those that are there: uv tool and pipx drop what the command leaves out."""
    there = [name for name, module in _MODULES.items() if find_spec(module) is not None]
    return sorted({extra, *there})


def _requirement(extras: list[str]) -> str:
    named = f"{DISTRIBUTION}[{','.join(extras)}]"
    origin = _origin()
    return shlex.quote(f"{named} @ {origin}" if origin else named)


def _origin() -> str | None:
    """Where Parley was installed from, unless by name from a package index (PEP 610)."""
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "")
        url = str(origin["url"])
        if "vcs_info" in origin:
            return f"{origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    except (metadata.PackageNotFoundError, OSError, ValueError, LookupError, TypeError):
        return None
    return url
