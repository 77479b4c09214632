"""Weights are found by name or path, and what is missing names the command that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.agent.providers.local.environment import model_environment, pip_environment
from parley.agent.providers.local.weights import (
    CATALOGUE,
    WeightsError,
    cache_directory,
    catalogued,
    find_weights,
)
from tests.agent.providers.local.test_gguf import gguf


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PARLEY_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "parley"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "parley"
    monkeypatch.setenv("PARLEY_CACHE", "~/models here")
    assert cache_directory() == tmp_path / "models here"


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_model_that_is_not_installed_names_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PARLEY_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match=f"run `parley model install {name}`"):
        find_weights(name)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(WeightsError, match="smollm2, qwen"):
        catalogued("gpt")
    with pytest.raises(WeightsError, match="neither a model"):
        find_weights("gpt")


def test_a_file_of_ones_own_brings_its_own_window(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(gguf(window=2000))
    found = find_weights(str(path))
    assert (found.label, found.context_window, found.tools) == ("mine", 2000, False)


def test_children_get_no_secrets() -> None:
    ours = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "sk-1",
        "PARLEY_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "s",
        "PIP_INDEX_URL": "u",
        "https_proxy": "p",
    }
    assert model_environment(ours) == {"PATH": "/bin"}
    assert pip_environment(ours) == {"PATH": "/bin", "PIP_INDEX_URL": "u", "https_proxy": "p"}
    uv = {"UV_DEFAULT_INDEX": "i", "UV_PUBLISH_TOKEN": "t"}
    assert pip_environment(uv) == {"UV_DEFAULT_INDEX": "i", "PIP_INDEX_URL": "i"}
