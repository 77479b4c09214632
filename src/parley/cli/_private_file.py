"""A file that a command writes for its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from parley.cli._shared import fail

__all__ = ["write_private"]


def write_private(file: Path, text: str, *, force: bool) -> None:
    """One that is there stays as it is unless `force` is given."""
    if file.is_dir():
        fail(f"{file} is a directory; name a file in it.")
    if force:
        from parley.config.files import replace_text

        replace_text(file, text, private=True)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(f"{file} is there already; choose another name, or overwrite it with --force.")
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        file.unlink(missing_ok=True)
        fail(f"{file} cannot be written: {error.strerror}.")
