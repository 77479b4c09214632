"""`parley profile list | create | show | use`, run as a person or a script runs them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from parley.gateway.home import HomeLock
from tests.cli.command import Parley
from tests.cli.profile_homes import made, named, refused, said_in

_SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


# ── list ──────────────────────────────────────────────────────────────────────────────────────


def test_a_list_without_any_home_names_the_default_and_makes_nothing(parley: Parley) -> None:
    lines = parley.run("profile", "list").stdout.splitlines()
    assert lines[0].split() == ["name", "answers", "served", "home"]
    assert lines[1].split() == ["default*", "local", "·", "smollm2", "-", "~/home"]
    assert not parley.home.exists()


def test_a_list_names_everyone_and_a_broken_one_hides_nobody(parley: Parley) -> None:
    for name in ("zoe", "abel", "broken"):
        made(parley, name)
    named(parley, "broken").config_file.write_text("log: [\n")
    named(parley, "zoe").config_file.write_text(
        "model: {provider: box}\nproviders: {box: {base_url: http://127.0.0.1:1/v1, model: m1}}\n"
    )
    parley.run("profile", "use", "zoe")
    with HomeLock(named(parley, "abel"), "gateway"):
        done = parley.run("profile", "list")
        listed = parley.json("profile", "list", "--json")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert list(rows) == ["default", "abel", "broken", "zoe*"]
    assert "box · m1" in rows["zoe*"]
    assert f"gateway {os.getpid()}" in rows["abel"]
    assert "fault: ~/home/profiles/broken/config.yaml, line 2" in rows["broken"]
    assert [one["active"] for one in listed] == [False, False, False, True]
    assert listed[1]["served_by"] == {"pid": os.getpid(), "kind": "gateway"}
    assert listed[2]["provider"] is None
    assert listed[3] == {
        "name": "zoe",
        "home": str(named(parley, "zoe").home),
        "provider": "box",
        "model": "m1",
        "fault": None,
        "active": True,
        "served_by": None,
    }


def test_an_impossible_name_is_reported_beside_the_list(parley: Parley) -> None:
    odd = parley.home / "profiles" / "Odd Name"
    odd.mkdir(parents=True)
    (odd / "SOUL.md").write_text("x")
    (parley.home / "profiles" / "notes").mkdir()
    done = parley.run("profile", "list")
    assert len(done.stdout.splitlines()) == 2
    assert "`Odd Name` cannot be the name of a profile" in done.stderr
    assert "notes" not in done.stderr


def test_the_environment_is_the_active_profiles_alone(parley: Parley) -> None:
    made(parley, "coder")
    loud = Parley(parley.home, {"PARLEY_MODEL_NAME": "from-outside"})
    listed = loud.json("profile", "list", "--json")
    assert [one["model"] for one in listed] == ["from-outside", "smollm2"]


def test_an_active_profile_that_is_gone_is_told_and_can_be_left(parley: Parley) -> None:
    parley.home.mkdir()
    (parley.home / "active_profile").write_text("gone\n")
    done = parley.run("profile", "list")
    assert done.returncode == 0
    assert "`gone` that you chose is not there any more" in done.stderr
    assert parley.run("profile", "use", "default").returncode == 0
    assert parley.run("profile", "list").stderr == ""


# ── create ────────────────────────────────────────────────────────────────────────────────────


def test_a_new_profile_is_private_and_has_a_soul_settings_and_its_folders(parley: Parley) -> None:
    done = parley.run("profile", "create", "qa-bot")
    profile = named(parley, "qa-bot")
    assert done.stderr == ""
    assert "Profile `qa-bot` is made in ~/home/profiles/qa-bot." in done.stdout
    assert "parley chat --profile qa-bot" in done.stdout
    assert "parley config set gateway.multiplex_profiles true\n" in done.stdout
    assert profile.soul_file.read_text() == "You are a helpful AI assistant named Qa Bot.\n"
    assert profile.config_file.read_text().startswith("# Parley's settings")
    found = {item.name: stat.S_IMODE(item.stat().st_mode) for item in profile.home.iterdir()}
    folders = dict.fromkeys(("workspace", "memory", "skills"), 0o700)
    assert found == {"SOUL.md": 0o600, "config.yaml": 0o600, **folders}
    assert stat.S_IMODE(profile.home.stat().st_mode) == 0o700
    assert [item.name for item in profile.home.parent.iterdir()] == ["qa-bot"]
    assert parley.run("config", "check", "--profile", "qa-bot").returncode == 0


def test_a_soul_can_be_given(parley: Parley) -> None:
    parley.run("profile", "create", "bard", "--soul", "You speak in rhymes.")
    assert named(parley, "bard").soul_file.read_text() == "You speak in rhymes.\n"
    assert "needs some words" in refused(parley, "create", "mute", "--soul", " ")
    assert not named(parley, "mute").home.exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("default", "There is a profile `default` already"),
        ("coder", "There is a profile `coder` already"),
        ("taken", "taken is in the way, and no profile; move it away."),
        ("main", "that word is taken"),
        ("Coder", "cannot be the name of a profile"),
        ("../up", "cannot be the name of a profile"),
        ("x" * 33, "cannot be the name of a profile"),
    ],
)
def test_a_name_that_cannot_be_is_refused(parley: Parley, name: str, told: str) -> None:
    made(parley, "coder")
    (parley.home / "profiles" / "taken").mkdir()
    before = sorted(parley.home.rglob("*"))
    assert told in refused(parley, "create", name)
    assert sorted(parley.home.rglob("*")) == before


def test_once_multiplexing_is_on_nobody_is_told_to_turn_it_on(parley: Parley) -> None:
    parley.home.mkdir()
    (parley.home / "config.yaml").write_text("gateway: {multiplex_profiles: true}\n")
    assert "multiplex" not in parley.run("profile", "create", "one").stdout
    with HomeLock(parley.profile, "gateway"):
        assert "takes it in within seconds" in parley.run("profile", "create", "two").stdout


def test_what_is_to_be_set_for_all_is_set_in_the_default_profile(parley: Parley) -> None:
    made(parley, "one")
    parley.run("profile", "use", "one")
    said = parley.run("profile", "create", "two").stdout
    assert "gateway.multiplex_profiles true --profile default\n" in said


# ── show and use ──────────────────────────────────────────────────────────────────────────────


def test_show_tells_everything_and_no_secret(parley: Parley) -> None:
    parley.run("profile", "create", "coder", "--soul", "\nYou write code.\nWell.")
    profile = named(parley, "coder")
    profile.env_file.write_text(f"OPENAI_API_KEY={_SECRET}\nWEBHOOK_TOKEN={_SECRET}\n")
    profile.config_file.write_text("surfaces: {webhook: {enabled: true}}\n")
    (profile.skills / "git").mkdir()
    said_in(profile, "hello")
    (parley.home / "config.yaml").write_text(
        "gateway:\n  routes:\n"
        "  - {profile: coder, platform: telegram, chat: 42}\n"
        "  - {profile: default, platform: matrix}\n"
    )
    with HomeLock(profile, "gateway"):
        done = parley.run("profile", "show", "coder")
        record = parley.run("profile", "show", "coder", "--json").stdout
        details = parley.json("profile", "show", "coder", "--json")
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows["answers"] == "local · smollm2"
    assert rows["soul"] == "You write code."
    assert rows["skills"] == "1"
    assert rows["sessions"].startswith("1, database ")
    assert rows["keys"] == "OPENAI_API_KEY, WEBHOOK_TOKEN"
    assert rows["surfaces"] == "terminal, webhook"
    assert rows["served"] == f"by `parley gateway run` (process {os.getpid()})"
    assert rows["routes"] == "telegram, chat 42"
    assert (details["sessions"], details["skills"]) == (1, 1)
    assert details["database_bytes"] <= details["bytes"]
    assert _SECRET not in done.stdout + done.stderr + record


def test_show_without_a_name_is_of_the_profile_in_use(parley: Parley) -> None:
    made(parley, "coder")
    assert parley.json("profile", "show", "--json")["name"] == "default"
    assert parley.json("profile", "show", "--json", "--profile", "coder")["name"] == "coder"
    done = parley.run("profile", "use", "coder")
    assert done.stdout == "Commands work on `coder` from now on (~/home/profiles/coder).\n"
    assert parley.json("profile", "show", "--json")["name"] == "coder"
    assert parley.run("profile", "use", "default").returncode == 0
    assert parley.json("profile", "show", "--json")["name"] == "default"
    assert not (parley.home / "active_profile").exists()


def test_the_default_profile_is_not_as_large_as_all_together(parley: Parley) -> None:
    made(parley, "coder")
    (named(parley, "coder").workspace / "big").write_bytes(b"x" * 100_000)
    assert parley.json("profile", "show", "default", "--json")["bytes"] < 10_000
    assert parley.json("profile", "show", "coder", "--json")["bytes"] > 100_000


def test_a_broken_profile_can_still_be_shown(parley: Parley) -> None:
    made(parley, "coder")
    profile = named(parley, "coder")
    profile.config_file.write_text("log: [\n")
    profile.env_file.write_text("not a line\n")
    profile.database_file.write_text("no database " * 100)
    profile.soul_file.write_bytes(b"\xff\xfe")
    done = parley.run("profile", "show", "coder")
    assert done.returncode == 0
    assert "fault: " in done.stdout
    assert "sessions  cannot be read" in done.stdout


def test_a_variable_above_the_choice_is_noted(parley: Parley) -> None:
    made(parley, "coder")
    done = Parley(parley.home, {"PARLEY_PROFILE": "default"}).run("profile", "use", "coder")
    assert "`PARLEY_PROFILE` in the environment is above it and says `default`." in done.stderr
    assert (parley.home / "active_profile").read_text() == "coder\n"


@pytest.mark.parametrize("verb", ["show", "use", "export", "rename {} new", "delete --yes"])
def test_a_profile_that_is_not_there_is_named_with_the_nearest(parley: Parley, verb: str) -> None:
    made(parley, "coder")
    words = verb.replace("{}", "codr").split() if "{}" in verb else [*verb.split(), "codr"]
    told = refused(parley, *words)
    assert told == "There is no profile `codr`; did you mean `coder`?"
    assert not named(parley, "codr").home.exists()


@pytest.mark.parametrize("verb", ["show", "use", "rename", "delete", "export", "create x --from"])
def test_a_shell_completes_the_names(parley: Parley, verb: str) -> None:
    for name in ("coder", "cook"):
        made(parley, name)
    line = f"parley profile {verb} co"
    request = {
        "_PARLEY_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    assert Parley(parley.home, request).run().stdout.split() == ["coder", "cook"]
