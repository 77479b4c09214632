"""Secrets: the environment above `.env`, and a file that stays the person's own."""

from __future__ import annotations

import logging
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import OPTIONAL_ENV_VARS, ConfigError, Secrets
from parley.config.env import belongs_in_env_file, looks_secret
from parley.profiles import OutsideScope, Profile, profile_scope

COMMENTED = """\
# my keys
export OPENAI_API_KEY="old"  # work account

OTHER_KEY='with $HOME and \\'quotes\\''
# the end
"""


@pytest.fixture
def inside(profile: Profile) -> Iterator[Profile]:
    """The profile, whose work is being done."""
    with profile_scope(profile):
        yield profile


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_environment_is_above_the_file_and_blank_is_unset(inside: Profile) -> None:
    inside.env_file.write_text("A_KEY=from-file\nB_KEY=from-file\nC_KEY=\nD_KEY\n")
    secrets = Secrets(inside, {"A_KEY": "from-environment", "B_KEY": "  "})
    assert secrets.get("A_KEY") == "from-environment"
    assert secrets.get("B_KEY") == "from-file"
    assert secrets.get("C_KEY") is None
    assert secrets.get("D_KEY") is None
    assert secrets.get("E_KEY") is None


def test_no_file_means_no_secrets_and_none_is_made(profile: Profile) -> None:
    assert Secrets(profile, {}).names() == ()
    assert not profile.env_file.exists()


def test_values_are_not_filled_in_from_the_environment(inside: Profile) -> None:
    inside.env_file.write_text(COMMENTED)
    secrets = Secrets(inside, {"HOME": "/home/me"})
    assert secrets.get("OTHER_KEY") == "with $HOME and 'quotes'"


def test_set_changes_one_line_and_keeps_the_rest(inside: Profile) -> None:
    inside.env_file.write_text(COMMENTED)
    secrets = Secrets(inside, {})
    secrets.set("OPENAI_API_KEY", "sk-new")
    secrets.set("NEW_KEY", "x y")
    assert inside.env_file.read_text() == (
        COMMENTED.replace('OPENAI_API_KEY="old"  # work account', "OPENAI_API_KEY=sk-new")
        + "NEW_KEY='x y'\n"
    )
    assert secrets.get("OPENAI_API_KEY") == "sk-new"
    assert Secrets(inside, {}).get("NEW_KEY") == "x y"


def test_unset_takes_one_line_out(profile: Profile) -> None:
    profile.env_file.write_text(COMMENTED)
    secrets = Secrets(profile, {})
    assert secrets.unset("OPENAI_API_KEY")
    assert not secrets.unset("OPENAI_API_KEY")
    assert profile.env_file.read_text() == "# my keys\n\n" + COMMENTED.split("\n\n")[1]


def test_the_file_is_for_its_owner_alone(profile: Profile) -> None:
    Secrets(profile, {}).set("OPENAI_API_KEY", "sk-new")
    assert mode_of(profile.env_file) == 0o600


def test_a_file_others_may_read_is_tightened_and_noted(
    inside: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    inside.env_file.write_text("A_KEY=very-secret\n")
    inside.env_file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert Secrets(inside, {}).get("A_KEY") == "very-secret"
    assert mode_of(inside.env_file) == 0o600
    assert "could be read by others" in caplog.text
    assert "very-secret" not in caplog.text


def test_a_broken_line_is_told_by_its_number_and_not_repeated(inside: Profile) -> None:
    inside.env_file.write_text("# keys\n\nA_KEY='never closed hunter2\n")
    with pytest.raises(ConfigError) as caught:
        Secrets(inside, {}).get("A_KEY")
    assert str(caught.value) == f"{inside.env_file}, line 3: `NAME=value` is wanted here."


@pytest.mark.parametrize(
    ("name", "value"), [("A KEY", "x"), ("", "x"), ("A=B", "x"), ("A_KEY", "a\nb"), ("A_KEY", "\0")]
)
def test_what_a_line_cannot_hold_is_refused(profile: Profile, name: str, value: str) -> None:
    profile.env_file.write_text(COMMENTED)
    with pytest.raises(ConfigError):
        Secrets(profile, {}).set(name, value)
    assert profile.env_file.read_text() == COMMENTED


def test_a_failure_puts_the_file_back(inside: Profile) -> None:
    secrets = Secrets(inside, {})
    with pytest.raises(KeyboardInterrupt), secrets.restored_on_failure():
        secrets.set("A_KEY", "x")
        raise KeyboardInterrupt
    assert not inside.env_file.exists()
    inside.env_file.write_text(COMMENTED)
    with pytest.raises(ConfigError), secrets.restored_on_failure():
        secrets.set("OPENAI_API_KEY", "x")
        secrets.set("NOT A NAME", "x")
    assert inside.env_file.read_text() == COMMENTED
    assert secrets.get("OPENAI_API_KEY") == "old"


def test_values_for_the_redaction_leave_settings_out(profile: Profile) -> None:
    profile.env_file.write_text(
        "PARLEY_GATEWAY_PORT=8642\nMATRIX=hunter2\nPARLEY_API_KEY=abcdefgh\n"
    )
    secrets = Secrets(profile, {"SOME_TOKEN": "tokentoken", "PATH": "/bin", "EMPTY_KEY": ""})
    with profile_scope(profile):
        assert secrets.values() == {"hunter2", "abcdefgh", "tokentoken"}
    assert secrets.names() == ("MATRIX", "PARLEY_API_KEY", "SOME_TOKEN")
    assert "hunter2" not in repr(secrets)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True),
        st.text(min_size=1, max_size=20).filter(lambda text: text.strip() and text.isprintable()),
        max_size=4,
    )
)
def test_what_is_set_is_what_is_got(values: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        profile = Profile("default", Path(home))
        profile.env_file.write_text(COMMENTED)
        for name, value in values.items():
            Secrets(profile, {}).set(name, value)
        again = Secrets(profile, {})
        with profile_scope(profile):
            got = {name: again.get(name) for name in values}
        assert got == {name: value.strip() for name, value in values.items()}
        comments = [line for line in profile.env_file.read_text().splitlines() if line[:1] == "#"]
        assert comments == ["# my keys", "# the end"]


# ── whose they are ──


@pytest.fixture
def coder(profile: Profile) -> Profile:
    made = Profile("coder", profile.home / "profiles" / "coder")
    made.home.mkdir(parents=True)
    made.env_file.write_text("OWN_KEY=coders-own\n")
    made.env_file.chmod(0o600)
    return made


def test_a_read_outside_of_any_scope_is_refused(coder: Profile) -> None:
    secrets = Secrets(coder, {"A_KEY": "from-environment"})
    for name in ("OWN_KEY", "A_KEY", "NO_KEY"):
        with pytest.raises(OutsideScope, match="outside of any profile's scope"):
            secrets.get(name)
    with pytest.raises(OutsideScope):
        secrets.values()


def test_a_read_in_the_scope_of_another_is_refused(profile: Profile, coder: Profile) -> None:
    secrets = Secrets(coder, {})
    with profile_scope(profile):
        with pytest.raises(OutsideScope, match="in the scope of `default`"):
            secrets.get("OWN_KEY")
        with profile_scope(coder):
            assert secrets.get("OWN_KEY") == "coders-own"
        with pytest.raises(OutsideScope):
            secrets.get("OWN_KEY")


def test_what_was_read_once_is_refused_again_outside(coder: Profile) -> None:
    secrets = Secrets(coder, {})
    with profile_scope(coder):
        secrets.get("OWN_KEY")
    with pytest.raises(OutsideScope):
        secrets.get("OWN_KEY")


def test_a_profile_beside_the_one_the_process_is_for_sees_its_own_file_alone(
    profile: Profile, coder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_API_KEY", "of-the-process")
    profile.env_file.write_text("HOUSE_TOKEN=of-the-default\n")
    with profile_scope(profile):
        house = Secrets(profile)
        assert house.get("HOUSE_API_KEY") == "of-the-process"
    with profile_scope(coder):
        beside = Secrets(coder, {})
        assert beside.get("HOUSE_API_KEY") is None
        assert beside.get("HOUSE_TOKEN") is None
        assert beside.get("OWN_KEY") == "coders-own"
        assert beside.names() == ("OWN_KEY",)
        assert beside.values() == {"coders-own"}


def test_the_registry_says_what_is_secret() -> None:
    assert all(
        entry["description"].endswith(".") and entry["prompt"]
        for entry in OPTIONAL_ENV_VARS.values()
    )
    assert looks_secret("OPENAI_API_KEY")
    assert looks_secret("SLACK_BOT_TOKEN")
    assert looks_secret("db_password")
    assert not looks_secret("PARLEY_HOME")
    assert not looks_secret("MAX_TOKENS")
    assert not looks_secret("SSH_AUTH_SOCK")
    assert belongs_in_env_file("MY_API_KEY")
    assert not belongs_in_env_file("gateway.port")
