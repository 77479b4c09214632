"""Which files this process has open below a folder."""

from __future__ import annotations

import errno
from pathlib import Path


def count_open_files(folder: Path) -> int:
    """Only what is below the folder counts: a worker opens and closes other files at any time."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += link.readlink().is_relative_to(folder)
        except FileNotFoundError:
            continue
        except OSError as error:  # deeper than a path can say, so it is one of the test's folders
            if error.errno != errno.ENAMETOOLONG:
                raise
            count += 1
    return count
