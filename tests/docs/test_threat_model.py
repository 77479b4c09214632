"""The threat model of docs/safety.md: each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
MODEL = PAGE.partition("## Threat model")[2].partition("\n## ")[0]
NAMED = re.findall(r"`(tests/[^`]+)`", MODEL)
ROWS = [line for line in MODEL.splitlines() if line.startswith("|") and "---" not in line]


@pytest.mark.parametrize("named", NAMED)
def test_the_named_test_exists(named: str) -> None:
    path, _, name = named.partition("::")
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:async )?def {name or 'test_'}", source, re.MULTILINE)


def test_every_defense_names_a_test() -> None:
    heads = [row for row in ROWS if row.endswith("| shown by |")]
    unproved = [row for row in ROWS if row not in heads and "tests/" not in row]
    assert len(heads) >= 5
    assert len(NAMED) >= 25
    assert all("| nothing: " in row for row in unproved)
