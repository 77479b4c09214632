"""What `parley profile` says of the keys that programs call a profile with."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.config.api_keys import KeyFile
from parley.profiles import Profile
from tests.cli.command import Parley


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    made = Parley(tmp_path / "home")
    for name in ("coder", "writer"):
        assert made.run("profile", "create", name).returncode == 0
    assert made.run("keys", "create", "laptop", "--profile", "coder").returncode == 0
    return made


def test_a_profile_with_another_name_wants_new_api_keys(parley: Parley) -> None:
    done = parley.run("profile", "rename", "coder", "ada")
    assert done.stdout == (
        "Profile `coder` is now `ada`, in ~/home/profiles/ada.\n"
        "Its API keys no longer work; make new ones: parley keys create --profile ada\n"
    )
    assert parley.run("profile", "rename", "writer", "poet").stdout.count("\n") == 1


def test_what_is_said_of_a_deleted_profile_is_true_of_its_api_keys(parley: Parley) -> None:
    done = parley.run("profile", "delete", "coder", "--yes")
    assert "all of it, its `.env` included, is in ~/home/archive/coder-" in done.stdout
    assert "Its API keys are not: they are gone for good.\n" in done.stdout
    [archive] = (parley.home / "archive").iterdir()
    assert parley.run("profile", "import", str(archive)).returncode == 0
    assert KeyFile(Profile("coder", parley.home / "profiles" / "coder")).keys() == []
    assert "API keys" not in parley.run("profile", "delete", "writer", "--yes").stdout


def test_a_damaged_file_of_api_keys_keeps_no_profile_from_its_new_name(parley: Parley) -> None:
    KeyFile(Profile("coder", parley.home / "profiles" / "coder")).path.write_text("{")
    done = parley.run("profile", "rename", "coder", "ada")
    assert done.returncode == 0
    assert "API keys no longer work" in done.stdout
