"""`parley profile rename | delete`: nothing is lost, whenever it is interrupted."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from parley.gateway.home import HomeLock
from parley.profiles import Profile, scan_profiles
from tests.cli.command import Parley
from tests.cli.profile_homes import made, named, refused, said_in
from tests.waiting import until_now


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def _archives(parley: Parley) -> list[Path]:
    return sorted((parley.home / "archive").glob("*.tar.gz"))


def _house(parley: Parley, text: str) -> None:
    parley.home.mkdir(exist_ok=True)
    parley.profile.config_file.write_text(text)


# ── rename ────────────────────────────────────────────────────────────────────────────────────


def test_a_renamed_profile_keeps_everything_and_stays_the_active_one(parley: Parley) -> None:
    old = made(parley, "coder")
    session = said_in(old, "hello")
    parley.run("profile", "use", "coder")
    done = parley.run("profile", "rename", "coder", "writer")
    assert done.stdout == "Profile `coder` is now `writer`, in ~/home/profiles/writer.\n"
    assert [item.name for item in old.home.parent.iterdir()] == ["writer"]
    assert named(parley, "writer").soul_file.read_text() == "You are coder.\n"
    listed = parley.json("sessions", "list", "--json")
    assert [one["id"] for one in listed] == [session]
    with HomeLock(named(parley, "writer"), "chat"):
        """Whoever serves it next finds the lock free."""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("default", "writer", "`default` is the home of all profiles and cannot be renamed."),
        ("coder", "cook", "There is a profile `cook` already"),
        ("coder", "coder", "There is a profile `coder` already"),
        ("coder", "default", "There is a profile `default` already"),
        ("coder", "main", "that word is taken"),
        ("coder", "No", "cannot be the name of a profile"),
    ],
)
def test_a_rename_that_cannot_be_is_refused(parley: Parley, old: str, new: str, told: str) -> None:
    for name in ("coder", "cook"):
        made(parley, name)
    assert told in refused(parley, "rename", old, new)
    assert sorted(item.name for item in (parley.home / "profiles").iterdir()) == ["coder", "cook"]


def test_while_the_house_names_it_a_rename_says_what_to_change(parley: Parley) -> None:
    made(parley, "coder")
    _house(
        parley,
        "gateway:\n  profiles: [default, coder]\n  routes:\n"
        "    - profile: default\n      chat: 1\n    - chat: 2\n      profile: coder\n",
    )
    told = refused(parley, "rename", "coder", "writer")
    assert "~/home/config.yaml, line 2 (`gateway.profiles`) and line 7 (`gateway.routes`)" in told
    assert "change that to `writer` first" in told
    assert named(parley, "coder").soul_file.exists()


@pytest.mark.parametrize("verb", ["rename coder writer", "delete coder --yes"])
def test_while_it_is_served_it_stays(parley: Parley, verb: str) -> None:
    profile = made(parley, "coder")
    with HomeLock(profile, "gateway"):
        told = refused(parley, *verb.split())
    who = f"`parley gateway run` (process {os.getpid()})"
    assert told == f"`coder` is being served by {who}; stop that first."
    assert profile.soul_file.exists()
    assert not _archives(parley)


@pytest.mark.parametrize("verb", ["rename coder writer", "delete coder --yes"])
def test_a_home_that_is_a_link_is_left_to_its_owner(parley: Parley, verb: str) -> None:
    profile = made(parley, "real")
    named(parley, "coder").home.symlink_to(profile.home)
    assert "is a link and cannot be" in refused(parley, *verb.split())
    assert profile.soul_file.exists()


# ── delete ────────────────────────────────────────────────────────────────────────────────────


def test_deleting_asks_and_a_no_changes_nothing(parley: Parley) -> None:
    profile = made(parley, "coder")
    assert refused(parley, "delete", "coder") == (
        "Say that you mean it: `parley profile delete coder --yes`."
    )
    terminal = parley.terminal("profile", "delete", "coder")
    terminal.expect_exact("Delete the profile `coder`? An archive of it is kept. [y/N]: ")
    terminal.sendline("n")
    terminal.expect_exact("Nothing was deleted.")
    terminal.expect(pexpect.EOF)
    assert profile.soul_file.exists()
    terminal = parley.terminal("profile", "delete", "coder")
    terminal.expect_exact("[y/N]: ")
    terminal.sendline("y")
    terminal.expect_exact("is deleted")
    terminal.expect(pexpect.EOF)
    assert not profile.home.exists()


def test_what_is_deleted_can_be_had_back_with_all_that_was_said(parley: Parley) -> None:
    profile = made(parley, "coder")
    session = said_in(profile, "hello")
    profile.env_file.write_text("OPENAI_API_KEY=a-canary\n")
    profile.logs.mkdir()
    (profile.logs / "parley.log").write_text("a line\n")
    (profile.workspace / "tool.sh").write_text("true")
    (profile.workspace / "tool.sh").chmod(0o755)
    closed = profile.workspace / "closed"
    closed.mkdir()
    (closed / "file").write_text("x")
    closed.chmod(0o500)
    parley.run("profile", "use", "coder")
    done = parley.run("profile", "delete", "coder", "--yes")
    [archive] = _archives(parley)
    assert list((parley.home / "profiles").iterdir()) == []
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert stat.S_IMODE(archive.parent.stat().st_mode) == 0o700
    assert "Commands work on `default` again." in done.stdout
    assert f"parley profile import --trust {archive}\n" in done.stdout
    assert parley.json("profile", "show", "--json")["name"] == "default"

    back = parley.run("profile", "import", str(archive), "--trust")
    assert back.returncode == 0, back.stderr
    assert "Its keys were not" not in back.stdout
    assert "canary" not in done.stdout + done.stderr + back.stdout + back.stderr
    assert profile.env_file.read_text() == "OPENAI_API_KEY=a-canary\n"
    assert (profile.logs / "parley.log").read_text() == "a line\n"
    assert (closed / "file").read_text() == "x"
    listed = parley.json("sessions", "list", "--json", "--profile", "coder")
    assert [one["id"] for one in listed] == [session]
    modes = {
        str(path.relative_to(profile.home)): stat.S_IMODE(path.stat().st_mode)
        for path in [profile.home, *profile.home.rglob("*")]
    }
    assert {modes[name] for name in (".env", "parley.db", "config.yaml", "SOUL.md")} == {0o600}
    assert {modes[name] for name in (".", "logs", "workspace/closed", "workspace/tool.sh")} == {
        0o700
    }


def test_the_default_profile_stays(parley: Parley) -> None:
    _house(parley, "")
    told = refused(parley, "delete", "default", "--yes")
    assert told == "`default` is the home of all profiles and cannot be deleted."
    assert parley.profile.config_file.exists()


def test_a_route_to_the_deleted_one_is_told(parley: Parley) -> None:
    made(parley, "coder")
    _house(parley, "gateway:\n  routes:\n    - profile: coder\n      chat: 1\n")
    done = parley.run("profile", "delete", "coder", "--yes")
    assert done.returncode == 0
    assert "still named in ~/home/config.yaml, line 3 (`gateway.routes`)" in done.stderr


def test_a_broken_profile_can_be_deleted_and_had_back(parley: Parley) -> None:
    profile = made(parley, "coder", settings="log: [\n")
    profile.database_file.write_text("no database " * 100)
    (profile.workspace / "link").symlink_to("/etc/passwd")
    done = parley.run("profile", "delete", "coder", "--yes")
    assert done.returncode == 0
    assert "Its database is damaged and is in it as it was." in done.stderr
    assert 'Links are not in it: "workspace/link"' in done.stderr
    back = parley.run("profile", "import", str(_archives(parley)[0]), "--trust")
    assert back.returncode == 0
    assert "parley config check --profile coder" in back.stderr
    assert profile.config_file.read_text() == "log: [\n"
    assert profile.database_file.read_text() == "no database " * 100


def test_without_an_archive_nothing_is_deleted(parley: Parley) -> None:
    profile = made(parley, "coder")
    (parley.home / "archive").write_text("a file in the way")
    assert "archive" in refused(parley, "delete", "coder", "--yes")
    assert profile.soul_file.exists()


# ── interrupted ───────────────────────────────────────────────────────────────────────────────


def _killed(parley: Parley, *arguments: str, when: Callable[[], object]) -> None:
    """Run a command and kill it as soon as a fact holds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "parley", "profile", *arguments],
        env=parley.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until_now(lambda: when() or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _laden(parley: Parley) -> Profile:
    """A profile that takes a moment to pack, to unpack and to remove."""
    profile = made(parley, "coder")
    for number in range(1500):
        (profile.workspace / f"{number}.bin").write_bytes(os.urandom(8_000))
    return profile


def _aged(folder: Path) -> None:
    """As if what was left behind were from yesterday."""
    for stage in folder.glob(".parley-*"):
        os.utime(stage, (0, 0))


def _whole(profile: Profile) -> bool:
    return len(list(profile.workspace.glob("*.bin"))) == 1500 and profile.soul_file.exists()


def _told_of(parley: Parley) -> list[str]:
    told: list[str] = []
    scan_profiles({"PARLEY_HOME": str(parley.home)}, report=told.append)
    return told


def test_killed_while_the_archive_is_written_the_profile_is_whole(parley: Parley) -> None:
    profile = _laden(parley)
    folder = parley.home / "archive"
    _killed(parley, "delete", "coder", "--yes", when=lambda: list(folder.glob(".parley-*/archive")))
    assert _whole(profile)
    assert _archives(parley) == []
    _aged(folder)
    assert parley.run("profile", "delete", "coder", "--yes").returncode == 0
    assert [item.name for item in folder.iterdir()] == [_archives(parley)[0].name]


def test_killed_while_it_is_removed_the_archive_is_whole(parley: Parley) -> None:
    profile = _laden(parley)
    folder = profile.home.parent
    _killed(parley, "delete", "coder", "--yes", when=lambda: list(folder.glob(".parley-*/home")))
    assert not profile.home.exists()
    assert _told_of(parley) == []
    _aged(folder)
    assert parley.run("profile", "import", str(_archives(parley)[0])).returncode == 0
    assert _whole(profile)
    assert [item.name for item in folder.iterdir()] == ["coder"]


def test_killed_while_it_is_unpacked_there_is_no_profile(parley: Parley, tmp_path: Path) -> None:
    profile = _laden(parley)
    archive = tmp_path / "it.tar.gz"
    parley.run("profile", "export", "coder", str(archive))
    folder = profile.home.parent
    copies = named(parley, "copy")
    unpacking = ".parley-*/home/workspace/*.bin"
    _killed(
        parley, "import", str(archive), "--name", "copy", when=lambda: [*folder.glob(unpacking)]
    )
    assert not copies.home.exists()
    assert _told_of(parley) == []
    assert [one["name"] for one in parley.json("profile", "list", "--json")] == ["default", "coder"]
    assert len(list(folder.iterdir())) == 2
    _aged(folder)
    assert parley.run("profile", "import", str(archive), "--name", "copy").returncode == 0
    assert _whole(copies)
    assert sorted(item.name for item in folder.iterdir()) == ["coder", "copy"]
