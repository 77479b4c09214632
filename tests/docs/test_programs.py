"""The pages for programs: their examples, with real gateways and a model that has a script."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from parley.agent.sandbox import find_sandbox
from tests.docs.answers import answer_examples
from tests.docs.pages import HANDS_PAGES, PROGRAM_PAGES, Step, name_of, steps
from tests.docs.reader import Reader, home_of
from tests.servers.ports import free_port
from tests.servers.scripted_model import ScriptedModel
from tests.servers.scripted_reply import Reply

_FAR = "https://agent.example.org"
_RED = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmM"
    "IQAAAABJRU5ErkJggg=="
)


@pytest.fixture
def stage() -> Callable[[Mapping[str, Any]], Reply | None]:
    return answer_examples


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", PROGRAM_PAGES, ids=name_of)
def test_the_examples_for_programs_do_what_they_say(
    page: Path, tmp_path: Path, far_model: ScriptedModel
) -> None:
    if page in HANDS_PAGES and not find_sandbox("auto").contains:
        pytest.skip("bubblewrap does not work on this machine")
    (tmp_path / "square.png").write_bytes(base64.b64decode(_RED))
    found = steps(page.read_text())
    port = free_port()
    away = {_FAR: f"http://127.0.0.1:{port}"}
    with ExitStack() as held:
        readers = {
            machine: held.enter_context(
                Reader(
                    home_of(tmp_path, machine, far_model),
                    tmp_path / "models",
                    folder=tmp_path,
                    port=port if machine == "far" else None,
                    others={} if machine == "far" else away,
                )
            )
            for machine in {step.machine for step in found}
        }
        for step in found:
            readers[step.machine].follow(step)


def test_a_command_may_go_on_and_say_where_it_is_typed() -> None:
    page = "```console\nfar$ serve \\\n  --now\nUp.\nnear$ ask\n```\n\n```console\n^C\nOver.\n```\n"
    assert steps(page) == [
        Step("serve \\\n  --now", ("Up.",), "far"),
        Step("ask", (), "near"),
        Step("^C", ("Over.",), "near"),
    ]


def test_a_program_with_its_output_is_a_step_and_one_without_is_none() -> None:
    program = "```python\nprint(1)\n```\n"
    assert steps(f"{program}\n```text\n1\n```\n") == [
        Step("python - <<'END'\nprint(1)\nEND", ("1",))
    ]
    assert steps(f"{program}\nIn words.\n\n```text\n1\n```\n") == []
