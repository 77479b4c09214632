"""A home that others can read or change: fixed where it is ours, refused where it is not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from parley.config.home_permissions import find_permission_faults, secure_home
from parley.profiles import Profile
from parley.protocol import ParleyError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A private one, below an ordinary home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Profile("default", tmp_path / ".parley")
    made.home.mkdir(mode=0o700)
    return made


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to somebody else")


def test_a_private_home_has_no_fault_and_stays_as_it_is(home: Profile) -> None:
    home.env_file.write_text("A=b\n")
    home.env_file.chmod(0o400)
    home.config_file.write_text("")
    home.config_file.chmod(0o644)
    assert secure_home(home) == []
    assert (mode_of(home.env_file), mode_of(home.config_file)) == (0o400, 0o644)


def test_a_home_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert secure_home(Profile("default", tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("mode", "what"), [(0o755, "read"), (0o770, "change"), (0o777, "change")])
def test_the_home_becomes_private(home: Profile, mode: int, what: str) -> None:
    home.home.chmod(mode)
    [told] = secure_home(home)
    assert told.startswith(f"Others could {what} ")
    assert mode_of(home.home) == 0o700
    assert secure_home(home) == []


@pytest.mark.parametrize("name", [".env", "api.key", "api_keys.json", "parley.db"])
def test_secrets_become_private(home: Profile, name: str) -> None:
    file = home.home / name
    file.write_text("")
    file.chmod(0o644)
    assert len(secure_home(home)) == 1
    assert mode_of(file) == 0o600


def test_what_the_agent_obeys_may_be_read_but_not_changed(home: Profile) -> None:
    home.skills.mkdir(mode=0o755)
    home.skills.chmod(0o775)
    home.config_file.write_text("")
    home.config_file.chmod(0o666)
    assert len(secure_home(home)) == 2
    assert (mode_of(home.skills), mode_of(home.config_file)) == (0o755, 0o644)


def test_a_named_profile_is_looked_at_with_the_home_that_holds_it(home: Profile) -> None:
    coder = Profile("coder", home.home / "profiles" / "coder")
    coder.home.mkdir(parents=True)
    for folder in (home.home, coder.home):
        folder.chmod(0o755)
    assert len(secure_home(coder)) == 2
    assert (mode_of(home.home), mode_of(coder.home)) == (0o700, 0o700)


def test_nothing_above_a_home_elsewhere_is_touched(tmp_path: Path) -> None:
    elsewhere = Profile("coder", tmp_path / "a" / "b")
    elsewhere.home.mkdir(parents=True)
    elsewhere.home.chmod(0o700)
    tmp_path.chmod(0o755)
    assert secure_home(elsewhere) == []
    assert mode_of(tmp_path) == 0o755


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_a_directory_that_holds_more_than_ours_is_refused_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(mode)
    with pytest.raises(ParleyError, match="set PARLEY_HOME"):
        secure_home(Profile("default", tmp_path))
    assert mode_of(tmp_path) == mode
    tmp_path.chmod(0o755)
    assert secure_home(Profile("default", tmp_path)) == []
    assert mode_of(tmp_path) == 0o755


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("name", ["", ".env", "config.yaml", "api_keys.json", "SOUL.md"])
def test_what_belongs_to_somebody_else_is_refused(home: Profile, name: str) -> None:
    for file in (home.env_file, home.config_file, home.soul_file, home.home / "api_keys.json"):
        file.write_text("")
        file.chmod(0o600)
    os.chown(home.home / name, 65534, -1)
    with pytest.raises(
        ParleyError, match=r"belongs to .*, who could change .* sudo chown -R"
    ) as told:
        secure_home(home)
    assert "\n" not in str(told.value)


def test_a_link_of_our_own_is_followed(home: Profile, tmp_path: Path) -> None:
    target = tmp_path / "secrets" / "env"
    target.parent.mkdir(mode=0o755)
    target.write_text("A=b\n")
    target.chmod(0o644)
    home.env_file.symlink_to(target)
    assert len(secure_home(home)) == 1
    assert mode_of(target) == 0o600


def test_a_link_to_where_others_could_replace_the_file_is_refused(
    home: Profile, tmp_path: Path
) -> None:
    target = tmp_path / "everyone" / "env"
    target.parent.mkdir()
    target.parent.chmod(0o777)
    target.write_text("A=b\n")
    target.chmod(0o600)
    home.env_file.symlink_to(target)
    with pytest.raises(ParleyError, match=r"leads into .*everyone, where others could replace it"):
        secure_home(home)


@pytest.mark.usefixtures("as_root")
def test_a_link_to_somebody_elses_file_is_refused(home: Profile, tmp_path: Path) -> None:
    target = tmp_path / "env"
    target.write_text("A=b\n")
    os.chown(target, 65534, -1)
    home.env_file.symlink_to(target)
    with pytest.raises(ParleyError, match="belongs to"):
        secure_home(home)


def test_a_file_system_that_keeps_no_permissions_is_refused_when_others_could_write(
    home: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.home.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)
    with pytest.raises(ParleyError, match="cannot be changed: set PARLEY_HOME"):
        secure_home(home)


def test_looking_changes_nothing(home: Profile) -> None:
    home.home.chmod(0o777)
    [fault] = find_permission_faults(home)
    assert (fault.mode, mode_of(home.home)) == (0o700, 0o777)
