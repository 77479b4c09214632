"""`parley profile create --clone`: what goes along to a copy, and what must not."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config.clones import own_keys, own_settings
from parley.config.document import parse_document
from parley.config.edit import HEAD
from parley.config.env_file import EnvFile, Line
from parley.profiles import Profile
from tests.cli.command import Parley
from tests.cli.profile_homes import made, named, refused, said_in

_FILE = Path("config.yaml")
_KEYS = """\
# TELEGRAM_BOT_TOKEN=an-old-one-canary
OPENAI_API_KEY=openai-canary
BOX_TOKEN=box-canary
TELEGRAM_BOT_TOKEN=telegram-canary
WEBHOOK_TOKEN=webhook-canary
MATRIX_PASSWORD=matrix-canary
GATEWAY_MULTIPLEX_PROFILES=true
PARLEY_MODEL_NAME=m2
"""
_SETTINGS = """\
# mine
model:
  provider: box  # the box
multiplex_profiles: true
gateway:
  port: 77
  routes:
    - profile: coder
      chat: 42
  profiles: [coder]
providers:
  box: {base_url: "http://127.0.0.1:1/v1", key_env: BOX_TOKEN, model: m1}
"""


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def _furnished(profile: Profile) -> None:
    profile.home.mkdir(exist_ok=True)
    profile.config_file.write_text(_SETTINGS)
    profile.env_file.write_text(_KEYS)
    profile.soul_file.write_text("You are the first.\n")
    for folder in (profile.skills / "git", profile.memory, profile.workspace, profile.logs):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "note.md").write_text("note")
    (profile.skills / "git" / "run.sh").write_text("true")
    (profile.skills / "git" / "run.sh").chmod(0o755)
    said_in(profile, "hello")


def test_a_clone_is_set_up_alike_and_shares_no_bot_memory_or_house(parley: Parley) -> None:
    _furnished(parley.profile)
    done = parley.run("profile", "create", "second", "--clone")
    copy = named(parley, "second")
    assert done.returncode == 0, done.stderr
    assert copy.soul_file.read_text() == "You are the first.\n"
    assert copy.env_file.read_text() == (
        "OPENAI_API_KEY=openai-canary\nBOX_TOKEN=box-canary\nPARLEY_MODEL_NAME=m2\n"
    )
    settings = copy.config_file.read_text()
    assert parse_document(settings, _FILE).values == {
        "model": {"provider": "box"},
        "gateway": {"port": 77},
        "providers": {
            "box": {"base_url": "http://127.0.0.1:1/v1", "key_env": "BOX_TOKEN", "model": "m1"}
        },
    }
    assert "# mine" in settings
    assert "# the box" in settings
    everything = {str(path.relative_to(copy.home)) for path in copy.home.rglob("*")}
    folders = {"skills", "skills/git", "memory", "workspace"}
    files = {"config.yaml", ".env", "SOUL.md", "skills/git/note.md", "skills/git/run.sh"}
    assert everything == folders | files
    modes = {path: stat.S_IMODE((copy.home / path).stat().st_mode) for path in everything}
    assert {modes[path] for path in files - {"skills/git/run.sh"}} == {0o600}
    assert {modes[path] for path in folders | {"skills/git/run.sh"}} == {0o700}
    left_out = next(line for line in done.stdout.splitlines() if line.startswith("Not copied"))
    assert left_out.partition(": ")[2] == (
        "TELEGRAM_BOT_TOKEN, WEBHOOK_TOKEN, MATRIX_PASSWORD, GATEWAY_MULTIPLEX_PROFILES"
    )
    assert "gateway.routes" in done.stdout
    assert "canary" not in done.stdout + done.stderr
    assert parley.run("config", "check", "--profile", "second").returncode == 0


def test_another_than_the_active_one_can_be_cloned_with_another_soul(parley: Parley) -> None:
    made(parley, "coder", settings="log: {level: debug}\n")
    parley.run("profile", "create", "writer", "--from", "coder", "--soul", "You write.")
    assert named(parley, "writer").config_file.read_text() == "log: {level: debug}\n"
    assert named(parley, "writer").soul_file.read_text() == "You write.\n"
    parley.run("profile", "create", "third", "--clone", "--profile", "writer")
    assert named(parley, "third").soul_file.read_text() == "You write.\n"


def test_a_clone_of_an_empty_home_begins_like_any_other(parley: Parley) -> None:
    assert parley.run("profile", "create", "first", "--clone").returncode == 0
    assert named(parley, "first").config_file.read_text() == HEAD
    assert not named(parley, "first").env_file.exists()


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("config.yaml", "log: [\n", "this is not YAML"),
        ("config.yaml", "log: {level: loud}\n", "`log.level` wants"),
        (".env", "no line\n", "`NAME=value` is wanted here."),
    ],
)
def test_a_broken_profile_is_not_cloned_and_nothing_stays(
    parley: Parley, file: str, text: str, told: str
) -> None:
    source = made(parley, "coder")
    (source.home / file).write_text(text)
    (source.home / file).chmod(0o600)
    assert told in refused(parley, "create", "copy", "--from", "coder")
    assert [item.name for item in source.home.parent.iterdir()] == ["coder"]


def test_a_clone_that_fails_half_way_leaves_nothing(parley: Parley) -> None:
    source = made(parley, "coder")
    (source.skills / ("x" * 200)).mkdir()
    deep = source.skills
    for _ in range(8):
        deep = deep / ("d" * 200)
        deep.mkdir()
    (deep / "last").symlink_to("nowhere")
    source.soul_file.unlink()
    source.soul_file.symlink_to("/proc/self/mem")
    assert "cannot be made" in refused(parley, "create", "copy", "--from", "coder")
    assert [item.name for item in source.home.parent.iterdir()] == ["coder"]


def test_settings_without_the_house_stay_to_the_letter() -> None:
    text = "# mine\ngateway: {port: 1} # here\n\n\nlog:\n  level:   info\n"
    assert own_settings(text, _FILE) == (text, ())


@pytest.mark.parametrize(
    "text",
    [
        "gateway: {multiplex_profiles: true, routes: [], profiles: []}\n",
        "gateway:\n  routes:\n  - profile: a\n  # comment\n  - profile: b\n",
        "multiplex_profiles: yes\n",
        "gateway:\n  profiles:\n    - a\n    - b\n  port: 1\n",
        "gateway:\n  profiles: [a,\n   b]\nlog: {level: info}\n",
    ],
)
def test_whatever_way_the_house_is_written_it_is_left_out(text: str) -> None:
    left, names = own_settings(text, _FILE)
    before, after = parse_document(text, _FILE).values, parse_document(left, _FILE).values
    assert names
    gateway = after.get("gateway") or {}
    assert isinstance(gateway, dict)
    assert not gateway.keys() & {"multiplex_profiles", "routes", "profiles"}
    assert "multiplex_profiles" not in after
    assert after.get("log") == before.get("log")


@given(st.lists(st.from_regex(r"[A-Z][A-Z_]{0,20}(TOKEN|PASSWORD|KEY)?", fullmatch=True)))
def test_every_variable_is_either_copied_or_told_of(names: list[str]) -> None:
    file = EnvFile(tuple(Line(f"{name}=x\n", name, "x") for name in names))
    kept, left_out = own_keys(file, {"KNOWN_TOKEN"})
    assert kept.values.keys() | set(left_out) == set(names)
    assert not kept.values.keys() & set(left_out)
    assert not [name for name in kept.values if name.endswith("TOKEN") and name != "KNOWN_TOKEN"]
