"""What the pages show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from parley.cli import VERBS, build_command
from parley.config import load_settings
from parley.profiles import Profile
from tests.docs.pages import (
    MATRIX_PAGE,
    MEMORY_PAGE,
    PROGRAM_PAGES,
    REPOSITORY,
    Step,
    fences,
    matches,
    name_of,
    pages,
    prose,
    steps,
)
from tests.docs.reader import Reader

_WRITTEN = [page for page in pages() if page.parent != REPOSITORY / "docs" / "reference"]
_ELSEWHERE = (*PROGRAM_PAGES, MATRIX_PAGE, MEMORY_PAGE)
_WITH_STEPS = [p for p in _WRITTEN if p not in _ELSEWHERE and steps(p.read_text())]
_WITH_YAML = [page for page in _WRITTEN if fences(page.read_text(), "yaml")]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", _WITH_STEPS, ids=name_of)
def test_the_examples_of_a_page_do_what_it_says(page: Path, tmp_path: Path, models: Path) -> None:
    with Reader(tmp_path, models) as reader:
        for step in steps(page.read_text()):
            reader.follow(step)


@pytest.mark.parametrize("page", _WITH_YAML, ids=name_of)
def test_the_settings_a_page_shows_are_good_ones(page: Path, tmp_path: Path) -> None:
    for number, fence in enumerate(fences(page.read_text(), "yaml")):
        profile = Profile("default", tmp_path / str(number))
        profile.home.mkdir()
        profile.config_file.write_text(fence.body)
        load_settings(profile, {})


@pytest.mark.parametrize("page", _WRITTEN, ids=name_of)
def test_a_page_names_only_commands_and_options_that_exist(page: Path) -> None:
    text = page.read_text()
    shown = [line for fence in fences(text, "sh") for line in re.split(r"\n|&&", fence.body)]
    shown += [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))]
    for command in shown:
        if command.strip().startswith("parley "):
            words = shlex.split(command.replace("…", ""), comments=True)
            assert _unknown(words[1:]) == [], command


def test_the_pages_have_examples_at_all() -> None:
    names = {name_of(page) for page in _WITH_STEPS}
    walks = {"docs/quickstart.md", "docs/chat.md", "docs/gateway.md", "docs/profiles.md"}
    assert {"README.md", *walks} <= names
    assert all(len(steps(page.read_text())) > 2 for page in _ELSEWHERE)


def test_a_pressed_key_is_a_step_as_a_command_is() -> None:
    page = "```console\n$ serve\nUp.\n^C\nStopped.\n$ echo '^C'\n^Cnot\n```\n"
    assert steps(page) == [
        Step("serve", ("Up.",)),
        Step("^C", ("Stopped.",)),
        Step("echo '^C'", ("^Cnot",)),
    ]


def test_an_ellipsis_is_any_text_or_any_lines_and_nothing_else_is() -> None:
    assert matches(("up … s", "…", "end"), "up 12 s\na\nb\nend\n")
    assert matches(("…", "end"), "end\n")
    assert not matches(("up … s",), "up 12 s\nmore\n")
    assert not matches(("1.0",), "1x0\n")
    assert matches((), "")
    assert not matches((), "something\n")


def _unknown(words: list[str]) -> list[str]:
    """The words of a `parley` command that it would not understand."""
    command: Any = build_command(VERBS)
    options = {"--help", "-h"}
    rest = list(words)
    while rest:
        options |= {name for option in command.params for name in option.opts}
        if not isinstance(command, TyperGroup) or rest[0].startswith("-"):
            break
        if rest[0] not in command.commands:
            return rest[:1]
        command = command.commands[rest.pop(0)]
    else:
        options |= {name for option in command.params for name in option.opts}
    return [word for word in rest if word.startswith("-") and word not in options]
