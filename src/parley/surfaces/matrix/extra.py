"""Whether what Matrix stands on is installed: it is an extra of Parley."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from parley.config.extras import install_command
from parley.protocol import ParleyError

__all__ = ["has_extra", "how_to_install", "require_extra"]

_PARTS: Final = ("nio", "vodozemac", "Crypto", "markdown_it", "nh3")


def has_extra() -> bool:
    return all(find_spec(part) is not None for part in _PARTS)


def how_to_install() -> str:
    return install_command("matrix")


def require_extra() -> None:
    """Say what to install, where something is missing."""
    if not has_extra():
        raise ParleyError(f"Matrix needs a part that is not installed: run `{how_to_install()}`.")
