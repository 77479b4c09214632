"""`parley profile export | import`: a profile in a file, and back again."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from pathlib import Path

import pytest

from parley.gateway.home import HomeLock
from parley.profiles import Profile
from parley.storage.sqlite import SqliteStore
from tests.builders import PLATFORM, an_end, say
from tests.cli.command import Parley
from tests.cli.profile_homes import made, named, refused, said, said_in
from tests.storage.conformance.base import a_work


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def _names(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return set(tar.getnames())


# ── export ────────────────────────────────────────────────────────────────────────────────────


def test_an_export_has_all_but_keys_logs_and_what_runs(parley: Parley, tmp_path: Path) -> None:
    profile = made(parley, "coder")
    said_in(profile, "hello")
    keys = profile.home / "tls"
    keys.mkdir()
    (keys / "key.pem").write_text("a-canary")
    with profile.config_file.open("a") as settings:
        settings.write(f"\ngateway: {{tls: {{certificate: x.pem, key: {keys}/key.pem}}}}\n")
    # `..env.x` is what a process leaves that is killed while it writes `.env`.
    for name in (".env", ".env.bak", "..env.x1y2z3", ".api.key.x1y2z3"):
        (profile.home / name).write_text("OPENAI_API_KEY=a-canary\n")
        (profile.home / name).chmod(0o600)
    for folder in (profile.logs, profile.run, profile.home / "processes"):
        folder.mkdir()
        (folder / "file").write_text("x")
    server = profile.home / "mcp" / "mail"
    server.mkdir(parents=True)
    (server / "token.json").write_text("a-canary")
    (profile.memory / "note.md").write_text("note")
    os.mkfifo(profile.workspace / "pipe")
    (profile.workspace / "away").symlink_to("/etc")
    (profile.workspace / os.fsdecode(b"\xff odd")).write_text("x")
    elsewhere = tmp_path / "dotfiles.md"
    elsewhere.write_text("You live elsewhere.\n")
    profile.soul_file.unlink()
    profile.soul_file.symlink_to(elsewhere)
    done = parley.shell(f"cd {tmp_path} && parley profile export coder")
    archive = tmp_path / "coder.tar.gz"
    assert done.stdout == "Profile `coder` is in ~/coder.tar.gz, without its keys.\n"
    assert done.stderr == 'parley: Links are not in it: "workspace/away"\n'
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    folders = {"home/memory", "home/skills", "home/tls", "home/workspace"}
    files = {"config.yaml", "SOUL.md", "parley.db", "memory/note.md", "workspace/\udcff odd"}
    assert _names(archive) == {"parley-profile.json", *folders, *(f"home/{f}" for f in files)}
    assert b"a-canary" not in gzip.decompress(archive.read_bytes())
    assert b"You live elsewhere." in gzip.decompress(archive.read_bytes())
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "coder.tar.gz",
        "dotfiles.md",
        "home",
    ]


def test_keys_go_along_when_they_are_asked_for(parley: Parley, tmp_path: Path) -> None:
    profile = made(parley, "coder")
    profile.env_file.write_text("OPENAI_API_KEY=a-canary\n")
    server = profile.home / "mcp" / "mail"
    server.mkdir(parents=True)
    (server / "token.json").write_text("a-canary")
    archive = tmp_path / "it.tar.gz"
    done = parley.run("profile", "export", "coder", str(archive), "--with-secrets")
    assert done.stdout == "Profile `coder` is in ~/it.tar.gz, with its keys.\n"
    back = parley.run("profile", "import", str(archive), "--name", "copy", "--trust")
    copy = named(parley, "copy")
    assert (copy.home / "mcp" / "mail" / "token.json").read_text() == "a-canary"
    assert copy.env_file.read_text() == "OPENAI_API_KEY=a-canary\n"
    assert stat.S_IMODE(copy.env_file.stat().st_mode) == 0o600
    assert "canary" not in done.stdout + done.stderr + back.stdout + back.stderr


def test_a_file_that_is_there_is_only_overwritten_by_force(parley: Parley, tmp_path: Path) -> None:
    made(parley, "coder")
    file = tmp_path / "it.tar.gz"
    file.write_text("mine")
    assert "it.tar.gz is there already" in refused(parley, "export", "coder", str(file))
    assert file.read_text() == "mine"
    assert parley.run("profile", "export", "coder", str(file), "--force").returncode == 0
    assert "home/SOUL.md" in _names(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "is a directory" in refused(parley, "export", "coder", str(tmp_path), "--force")
    assert "There is no directory" in refused(parley, "export", "coder", str(tmp_path / "no" / "x"))
    assert "nothing in ~/home to export yet" in refused(parley, "export", "default", "x")
    assert not (tmp_path / "no").exists()


async def test_a_served_profile_is_exported_as_it_stands(parley: Parley, tmp_path: Path) -> None:
    profile = made(parley, "coder")
    store = SqliteStore.open(profile.database_file)
    try:
        session = await said(store, "hello")
        with HomeLock(profile, "gateway"):
            archive = tmp_path / "it.tar.gz"
            done = parley.run("profile", "export", "coder", str(archive))
    finally:
        await store.close()
    assert done.returncode == 0, done.stderr
    assert not _names(archive) & {"home/parley.db-wal", "home/parley.db-shm", "home/run"}
    assert parley.run("profile", "import", str(archive), "--name", "copy").returncode == 0
    listed = parley.json("sessions", "list", "--json", "--profile", "copy")
    assert [one["id"] for one in listed] == [session]
    assert stat.S_IMODE(named(parley, "copy").database_file.stat().st_mode) == 0o600


async def _under_way(profile: Profile) -> None:
    """A running turn, a message behind it, a reply on its way, and work in the background."""
    store = SqliteStore.open(profile.database_file)
    try:
        await say(store, "first")
        [claim] = await store.claim("one", 1, [PLATFORM])
        await store.commit(claim, an_end("on its way"))
        await say(store, "second")
        [claim] = await store.claim("one", 1, [PLATFORM])
        await say(store, "third")
        session = await store.session_of(claim.lane)
        assert session is not None and await store.begin_work(a_work("w", session))
    finally:
        await store.close()


async def _open(profile: Profile) -> tuple[int, int, int]:
    """How many turns run, messages wait and replies are on their way, once it is served again."""
    store = SqliteStore.open(profile.database_file)
    try:
        await store.recover("two")
        claims = await store.claim("two", 9, [PLATFORM])
        health = await store.health()
        return len(claims), health.queued, health.undelivered
    finally:
        await store.close()


@pytest.mark.parametrize("name", ["coder", "twin"])
async def test_a_copy_does_not_go_on_with_what_the_original_is_doing(
    parley: Parley, tmp_path: Path, name: str
) -> None:
    profile = made(parley, "coder")
    await _under_way(profile)
    archive = str(tmp_path / "it.tar.gz")
    assert parley.run("profile", "export", "coder", archive).returncode == 0
    if name == "coder":
        assert parley.run("profile", "rename", "coder", "first").returncode == 0
        profile = named(parley, "first")
    assert parley.run("profile", "import", archive, "--name", name).returncode == 0
    assert await _open(named(parley, name)) == (0, 0, 0)
    assert await _open(profile) == (1, 1, 1)


async def test_what_was_deleted_goes_on_when_it_is_brought_back(parley: Parley) -> None:
    profile = made(parley, "coder")
    await _under_way(profile)
    parley.run("profile", "delete", "coder", "--yes")
    [archive] = (parley.home / "archive").iterdir()
    assert parley.run("profile", "import", str(archive), "--trust").returncode == 0
    assert await _open(profile) == (1, 1, 1)
    for twin, how in (("twin", ["--trust"]), ("stranger", [])):
        done = parley.run("profile", "import", str(archive), "--name", twin, *how)
        assert done.returncode == 0, done.stderr
        assert await _open(named(parley, twin)) == (0, 0, 0)


def test_the_default_profile_is_exported_alone_and_imported_under_a_name(
    parley: Parley,
) -> None:
    made(parley, "coder")
    parley.profile.config_file.write_text(
        "gateway:\n  port: 77\n  multiplex_profiles: true\n  profiles: [coder]\n"
    )
    (parley.home / "archive").mkdir()
    (parley.home / "archive" / "old.tar.gz").write_text("x")
    parley.run("profile", "use", "coder")
    done = parley.shell(f"cd {parley.home} && parley profile export default")
    archive = parley.home / "default.tar.gz"
    assert done.returncode == 0, done.stderr
    assert _names(archive) == {"parley-profile.json", "home/config.yaml"}
    assert "give it a name" in refused(parley, "import", str(archive))
    back = parley.run("profile", "import", str(archive), "--name", "first", "--trust")
    assert "gateway.multiplex_profiles, gateway.profiles" in back.stdout
    assert "parley setup --profile first" in back.stdout
    assert named(parley, "first").config_file.read_text() == "gateway:\n  port: 77\n"
    assert named(parley, "first").workspace.is_dir()


# ── import ────────────────────────────────────────────────────────────────────────────────────


def test_a_round_trip_gives_back_every_file(parley: Parley, tmp_path: Path) -> None:
    profile = made(parley, "coder", settings="# mine\nlog: {level: debug}\n")
    deep = profile.workspace / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "large.bin").write_bytes(os.urandom(6_000_000))
    (deep / "empty").touch()
    (deep / ("ü" * 100)).write_text("long")
    (profile.memory / "hollow").mkdir()
    said_in(profile, "hello")
    archive = tmp_path / "it.tar.gz"
    parley.run("profile", "export", "coder", str(archive))
    assert parley.run("profile", "import", str(archive), "--name", "copy").returncode == 0
    left_out = {"parley.db", "parley.db-wal", "parley.db-shm"}
    assert _contents(profile, left_out) == _contents(named(parley, "copy"), left_out)


def _contents(profile: Profile, left_out: set[str]) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(profile.home)): path.read_bytes() if path.is_file() else None
        for path in profile.home.rglob("*")
        if path.name not in left_out
    }


def test_an_existing_profile_is_not_overwritten(parley: Parley, tmp_path: Path) -> None:
    made(parley, "coder")
    archive = tmp_path / "it.tar.gz"
    parley.run("profile", "export", "coder", str(archive))
    assert "There is a profile `coder` already" in refused(parley, "import", str(archive))
    for name, told in (("default", "already"), ("main", "taken"), ("A/b", "cannot be the name")):
        assert told in refused(parley, "import", str(archive), "--name", name)
    assert [item.name for item in (parley.home / "profiles").iterdir()] == ["coder"]
