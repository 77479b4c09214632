"""A person's own editor, opened on a file of ours."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from parley.protocol import ParleyError

__all__ = ["opened_in_editor"]

_USUAL = "vi"


def opened_in_editor(file: Path) -> str | None:
    """Wait until it is closed; returns what went wrong in it, in a sentence."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _USUAL
    try:
        command = shlex.split(named)
    except ValueError:
        command = []
    if not command:
        raise ParleyError("EDITOR is not a command; set it to your editor, such as `nano`.")
    try:
        code = subprocess.run([*command, str(file)], check=False).returncode
    except OSError as error:
        raise ParleyError(
            f"The editor `{command[0]}` cannot be started ({error.strerror}); set EDITOR to yours, "
            f"or change {file} yourself: it is read again with the next command."
        ) from error
    return None if code == 0 else f"The editor `{command[0]}` ended with code {code}."
