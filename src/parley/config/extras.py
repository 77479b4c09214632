"""Parts of Parley that are not for everyone, and how one that is missing is installed."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Final

from parley.config.errors import shown

__all__ = ["install_command"]

_CHECKOUT: Final = Path(__file__).parents[3]


def install_command(extra: str) -> str:
    """What to type for the part called so, here: in a checkout its script installs it."""
    script = _CHECKOUT / "scripts" / "run"
    if script.is_file():
        named = shlex.quote(str(script)) if " " in str(script) else shown(script)
        return f"{os.environ.get('PARLEY_COMMAND') or named} --with {extra}"
    return f"pip install 'parley[{extra}]'"
