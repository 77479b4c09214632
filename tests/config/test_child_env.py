"""What a child may know: a short list, its own profile, and nobody's secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import ConfigError
from parley.config.child_env import base_environment, child_environment
from parley.config.env import looks_secret
from parley.profiles import Profile, active_profile, named_profile

SEES = "import json, os; print(json.dumps(dict(os.environ)))"

HARMLESS = {
    "PATH": "/usr/bin:/bin",
    "LANG": "de_AT.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Vienna",
    "TERM": "xterm",
    "TMPDIR": "/tmp",
}
NOT_OURS_TO_GIVE = {
    "ANTHROPIC_API_KEY": "sk-ant-1",
    "AWS_ACCESS_KEY_ID": "AKIA",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials",
    "DATABASE_URL": "postgres://me:hunter2@db/x",
    "ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4",
    "GITHUB_TOKEN": "ghp_1",
    "GOOGLE_APPLICATION_CREDENTIALS": "/somewhere/gcp.json",
    "HTTPS_PROXY": "http://me:hunter2@proxy",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "LC_TOKEN": "sent along by ssh",
    "LD_PRELOAD": "/evil.so",
    "NETRC": "/somewhere/.netrc",
    "PARLEY_API_KEY": "k",
    "PARLEY_CACHE": "/cache",
    "PARLEY_MODEL_PROVIDER": "openai",
    "PYTHONPATH": "/secret/source",
    "PYTHONSTARTUP": "/somewhere/.pythonrc",
    "SSH_AUTH_SOCK": "/tmp/ssh",
    "USER": "root",
    "XDG_CONFIG_HOME": "/somewhere/.config",
    "XDG_RUNTIME_DIR": "/run/user/0",
}


@pytest.fixture
def coder(tmp_path: Path) -> Profile:
    made = named_profile("coder", {"PARLEY_HOME": str(tmp_path / "home")})
    made.workspace.mkdir(parents=True)
    return made


def seen_by_a_child(environment: dict[str, str]) -> dict[str, str]:
    out = subprocess.run(
        [sys.executable, "-I", "-c", SEES], env=environment, capture_output=True, check=True
    )
    seen: dict[str, str] = json.loads(out.stdout)
    return seen


def test_a_child_sees_the_harmless_and_its_own_profile_and_nothing_else(coder: Profile) -> None:
    coder.env_file.write_text("PARLEY_LOG_LEVEL=debug\nOPENAI_API_KEY=sk-own\nMATRIX=own\n")
    process = {
        **HARMLESS,
        **NOT_OURS_TO_GIVE,
        "HOME": "/root",
        "PARLEY_HOME": "/elsewhere",
        "PARLEY_PROFILE": "default",
    }
    assert seen_by_a_child(child_environment(coder, process)) == {
        **HARMLESS,
        "HOME": os.devnull,
        "PARLEY_HOME": str(coder.home.parent.parent),
        "PARLEY_PROFILE": "coder",
        "PARLEY_LOG_LEVEL": "debug",
    }


@pytest.mark.parametrize("name", ["default", "coder"])
def test_a_parley_that_the_child_runs_finds_the_same_profile(name: str, tmp_path: Path) -> None:
    profile = named_profile(name, {"PARLEY_HOME": str(tmp_path)})
    profile.home.mkdir(parents=True, exist_ok=True)
    profile.env_file.write_text("PARLEY_PROFILE=other\nPARLEY_HOME=/elsewhere\nHOME=/root\n")
    assert active_profile(child_environment(profile, {"PARLEY_PROFILE": "third"})) == profile


def test_the_home_of_a_child_holds_no_keys_of_the_profile(coder: Profile) -> None:
    coder.env_file.write_text("OPENAI_API_KEY=sk-own\n")
    home = Path(child_environment(coder, {})["HOME"])
    assert not coder.env_file.is_relative_to(home)
    assert not coder.database_file.is_relative_to(home)


@pytest.mark.parametrize(
    "line",
    [
        "PARLEY_PROVIDERS_MINE_BASE_URL=https://me:hunter2@models.example/v1",
        "PARLEY_MINE=sk-own-and-long",
        "PARLEY_MINE='mine is sk-plain-own, see?'",
        "PARLEY_MINE=word-of-matrix",
        "PARLEY_MINE=",
        "PARLEY_MINE",
        "'PARLEY_=MINE'=x",
        'PARLEY_MINE="nul \0 in it"',
    ],
)
def test_a_setting_that_holds_a_secret_or_cannot_be_passed_stays_behind(
    line: str, coder: Profile
) -> None:
    coder.env_file.write_text(f"{line}\nMATRIX=word-of-matrix\nPARLEY_LOG_LEVEL=debug\n")
    environment = child_environment(coder, {})
    assert set(environment) == {"HOME", "PARLEY_HOME", "PARLEY_PROFILE", "PARLEY_LOG_LEVEL"}


def test_without_an_env_file_there_is_still_an_environment(coder: Profile) -> None:
    assert child_environment(coder, {"PATH": "/bin"})["PATH"] == "/bin"


def test_a_broken_env_file_is_told_of_and_nothing_is_passed_on(coder: Profile) -> None:
    coder.env_file.write_text("A_KEY='never closed\n")
    with pytest.raises(ConfigError, match="line 1"):
        child_environment(coder, {})


def test_the_base_holds_nothing_of_a_profile_or_a_person() -> None:
    process = {**HARMLESS, **NOT_OURS_TO_GIVE, "HOME": "/root"}
    assert base_environment(process) == HARMLESS


_PARTS = ["API", "KEY", "TOKEN", "SECRET", "PASSWORD", "PARLEY", "LC", "AWS", "X", "PATH", "HOME"]
_NAMES = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=4).map("_".join)


@given(
    process=st.sets(_NAMES, max_size=8),
    own=st.sets(_NAMES, max_size=8),
    others=st.sets(_NAMES, max_size=8),
)
def test_whatever_is_set_no_secret_comes_through(
    process: set[str], own: set[str], others: set[str]
) -> None:
    def canaries(names: set[str], whose: str) -> dict[str, str]:
        return {name: f"canary-{whose}-{name.lower()}" for name in names}

    with tempfile.TemporaryDirectory() as root:
        mine, other = Profile("ann", Path(root, "ann")), Profile("bob", Path(root, "bob"))
        for profile, names in ((mine, own), (other, others)):
            profile.home.mkdir()
            profile.env_file.touch(mode=0o600)
            lines = canaries(names, profile.name).items()
            profile.env_file.write_text("".join(f"{name}={value}\n" for name, value in lines))
        environment = child_environment(mine, canaries(process, "process"))
    passed = {name: value for name, value in environment.items() if "canary-" in value}
    assert not [value for value in passed.values() if "canary-bob" in value]
    assert {name for name, value in passed.items() if "canary-process" in value} <= {"PATH"}
    for name, value in passed.items():
        if "canary-ann" in value:
            assert name.startswith("PARLEY_")
            assert not looks_secret(name)
