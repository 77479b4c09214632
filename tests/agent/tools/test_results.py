"""A long result goes to a file that can be read, and never to where a link leads."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from parley.agent.tools import ToolContext
from parley.agent.tools import results as results_module
from parley.agent.tools.results import set_aside
from tests.agent.builders import context
from tests.agent.tools.files.conftest import Files, make_hand

LINES = "\n".join(f"line {number}" for number in range(1, 5001))


@pytest.fixture
def here(tmp_path: Path) -> ToolContext:
    (tmp_path / "ws").mkdir()
    own = tmp_path / "private" / "ann" / "one"
    return replace(context(tmp_path / "ws"), call="turn 7/../call:1", private=own)


def kept(here: ToolContext) -> list[Path]:
    assert here.private is not None
    return sorted((here.private / "results").iterdir())


def test_the_rest_of_a_long_result_is_in_a_file(here: ToolContext) -> None:
    text = set_aside(LINES, 1000, here)
    assert len(text) <= 1000
    assert text.startswith("line 1\nline 2\n")
    (file,) = kept(here)
    assert re.fullmatch(r"turn-7-call-1-[0-9a-f]{10}\.txt", file.name)
    assert file.read_text() == LINES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"{len(LINES)} characters in all" in text
    assert f"path=.parley/results/{file.name}, first_line=" in text


@pytest.mark.parametrize("whole", [LINES, "é" * 40_000, "x" * 900 + "\n" + "y" * 30_000])
async def test_what_was_left_out_can_be_read_from_where_it_says(
    here: ToolContext, whole: str
) -> None:
    head, _, note = set_aside(whole, 1000, here).rpartition("\n")
    named = dict(re.findall(r"(path|first_line|column)=([^,)]+)", note))
    hand = make_hand(here.workspace, "off", private=here.workspace.parent / "private")
    try:
        path, first = named["path"], int(named["first_line"])
        files = Files(here.workspace, hand, sandboxed=False, own=here.private)
        result = await files.read(path, first_line=first, column=int(named.get("column", 1)))
    finally:
        await hand.close()
    joined = head + ("" if "column" in named else "\n") + result.text.rpartition("\n… (")[0]
    assert len(joined) > len(head) + 50
    assert whole.startswith(joined)


def test_the_same_call_has_one_file_and_each_call_its_own(here: ToolContext) -> None:
    for call in ("a", "a", "A", "a ", "a/", "", ""):
        set_aside(LINES + call, 1000, replace(here, call=call))
    assert len(kept(here)) == 6


def test_only_the_newest_are_kept(here: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(120):
        set_aside(LINES, 1000, replace(here, call=f"c{number}"))
        newest = max(kept(here), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (number, number))
    names = {file.name.split("-")[0] for file in kept(here)}
    assert len(names) == 100
    assert "c119" in names
    assert "c0" not in names
    monkeypatch.setattr(results_module, "_MOST_BYTES", 10 * len(LINES))
    set_aside(LINES, 1000, replace(here, call="last"))
    assert len(kept(here)) == 10
    assert any(file.name.startswith("last-") for file in kept(here))


def test_a_link_in_the_way_is_not_followed(here: ToolContext, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "results").mkdir(parents=True)
    assert here.private is not None
    here.private.mkdir(parents=True)
    (here.private / "results").symlink_to(outside)
    text = set_aside(LINES, 1000, here)
    assert "more characters were left out" in text
    assert len(text) <= 1000
    assert [path.name for path in outside.rglob("*")] == ["results"]


def test_a_link_in_the_place_of_the_file_is_replaced(here: ToolContext, tmp_path: Path) -> None:
    set_aside(LINES, 1000, here)
    (file,) = kept(here)
    file.unlink()
    (tmp_path / "outside.txt").write_text("untouched")
    file.symlink_to(tmp_path / "outside.txt")
    set_aside(LINES, 1000, here)
    assert (tmp_path / "outside.txt").read_text() == "untouched"
    assert not file.is_symlink()
    assert file.read_text() == LINES


def test_without_a_place_for_it_the_rest_is_left_out(here: ToolContext) -> None:
    assert "more characters were left out" in set_aside(LINES, 1000, replace(here, private=None))
    (here.workspace.parent / "private").touch()
    assert "more characters were left out" in set_aside(LINES, 1000, here)


def test_a_result_of_half_characters_is_kept(here: ToolContext) -> None:
    set_aside("\ud800" * 2000, 1000, here)
    (file,) = kept(here)
    assert file.read_text() == "?" * 2000
