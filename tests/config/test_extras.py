"""The command that installs an extra fits how Parley was installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.config.extras import install_command
from tests.bare_environment import BareEnvironment

_ASK = "from parley.config.extras import install_command; print(install_command('matrix'), end='')"


@pytest.fixture
def environment(tmp_path: Path) -> BareEnvironment:
    return BareEnvironment.make(tmp_path / "env")


def test_a_checkout_is_asked_by_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_COMMAND", "./scripts/run")
    assert install_command("matrix") == "./scripts/run --with matrix"


def test_uv_tool_installs_it_again(environment: BareEnvironment) -> None:
    (environment.root / "uv-receipt.toml").write_text("[tool]\n")
    assert environment.run(_ASK) == "uv tool install --force 'parley-gateway[matrix]'"


def test_uv_tool_and_pipx_keep_the_extras_that_are_there(environment: BareEnvironment) -> None:
    (environment.site / "mcp.py").write_text("")
    (environment.root / "pipx_metadata.json").write_text("{}")
    assert environment.run(_ASK) == "pipx install --force 'parley-gateway[matrix,mcp]'"
    (environment.root / "uv-receipt.toml").write_text("[tool]\n")
    assert environment.run(_ASK) == "uv tool install --force 'parley-gateway[matrix,mcp]'"


def test_pip_is_the_one_of_its_environment(environment: BareEnvironment) -> None:
    (environment.site / "pip.py").write_text("")
    said = environment.run(_ASK)
    assert said == f"{environment.python} -m pip install 'parley-gateway[matrix]'"


def test_an_environment_without_pip_is_for_uv(environment: BareEnvironment) -> None:
    said = environment.run(_ASK)
    assert said == f"uv pip install --python {environment.python} 'parley-gateway[matrix]'"


@pytest.mark.parametrize(
    ("origin", "requirement"),
    [
        (
            {"url": "file:///there/parley_gateway-0.1.0-py3-none-any.whl", "archive_info": {}},
            "parley-gateway[matrix] @ file:///there/parley_gateway-0.1.0-py3-none-any.whl",
        ),
        (
            {
                "url": "https://git.example/parley",
                "vcs_info": {"vcs": "git", "commit_id": "abc123"},
            },
            "parley-gateway[matrix] @ git+https://git.example/parley@abc123",
        ),
    ],
)
def test_what_was_not_installed_by_name_is_named_by_its_origin(
    environment: BareEnvironment, origin: dict[str, object], requirement: str
) -> None:
    (environment.root / "pipx_metadata.json").write_text("{}")
    environment.installed_from(origin)
    assert environment.run(_ASK) == f"pipx install --force '{requirement}'"
