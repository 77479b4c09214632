"""The page about what programs may import: each program prints what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, fences

_PAGE = (REPOSITORY / "docs" / "reference" / "python.md").read_text()
_PROGRAMS = list(
    zip(
        [each.body for each in fences(_PAGE, "python")],
        [each.body for each in fences(_PAGE, "text")],
        strict=True,
    )
)


@pytest.mark.parametrize(("program", "printed"), _PROGRAMS)
def test_a_program_prints_what_the_page_says(program: str, printed: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (printed, "")
