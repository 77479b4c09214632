"""`parley keys create | list | revoke | local`, run as a person or a script runs them."""

from __future__ import annotations

import gzip
import io
import json
import re
import stat
import tarfile
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from parley.cli._keys_view import expiry
from parley.config.api_keys import SCOPES, KeyFile, KeyRing
from parley.protocol import ParleyError
from tests.cli.command import Parley
from tests.cli.profile_homes import made, named

_TOKEN = re.compile(r"sk-parley-\S+")


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def refused(parley: Parley, *arguments: str) -> str:
    """The one sentence a command is refused with."""
    done = parley.run("keys", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("parley: ").rstrip("\n")


def ring_of(parley: Parley) -> KeyRing:
    return KeyRing(lambda: [named(parley, "coder")], parley.profile, allow_local=True)


# ── create ────────────────────────────────────────────────────────────────────────────────────


def test_a_new_key_is_alone_on_stdout_and_works(parley: Parley) -> None:
    done = parley.run("keys", "create", "laptop")
    token = done.stdout.removesuffix("\n")
    assert _TOKEN.fullmatch(token)
    assert done.stderr == (
        "parley: Key `laptop` is for `default`; keep it safe, for it is not shown again.\n"
        "parley: While there is a key, the one of `parley keys local` does not work.\n"
    )
    key = ring_of(parley).find(token, time.time())
    assert key is not None
    assert (key.name, key.expires_at, key.per_minute) == ("laptop", None, None)
    assert key.scopes == {"chat", "runs"}
    again = parley.run("keys", "create")
    assert again.stderr.count("\n") == 1
    assert KeyFile(parley.profile).keys()[1].name.startswith("key-")


def test_a_key_of_a_named_profile_has_all_that_was_asked_for(parley: Parley) -> None:
    coder = made(parley, "coder")
    wishes = ("--scope", "admin, chat", "--expires", "12h", "--rate", "30", "--profile", "coder")
    done = parley.run("keys", "create", "ci", "--json", *wishes)
    told = json.loads(done.stdout)
    [key] = KeyFile(coder).keys()
    assert ring_of(parley).find(told.pop("token"), time.time()) == key
    assert (told["name"], told["id"], told["profile"]) == ("ci", key.id, "coder")
    assert (told["scopes"], told["per_minute"]) == (["chat", "admin"], 30)
    assert key.expires_at == pytest.approx(time.time() + 12 * 3600, abs=60)
    assert not KeyFile(parley.profile).path.exists()
    assert [told] == parley.json("keys", "list", "--json", "--profile", "coder")


def test_a_key_for_all_profiles_is_the_default_ones(parley: Parley) -> None:
    made(parley, "coder")
    sentence = refused(parley, "create", "a", "--all-profiles", "--profile", "coder")
    assert sentence.startswith("Only a key of the default profile can be for all profiles")
    done = parley.run("keys", "create", "a", "--all-profiles")
    assert "is for all profiles" in done.stderr
    key = ring_of(parley).find(done.stdout.strip(), time.time())
    assert key is not None
    assert key.all_profiles


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scope", "chat,root"], "There is no scope 'root'; there are chat, runs, admin."),
        (["--scope", " , "], "A key needs a scope; there are chat, runs, admin."),
        (["--expires", "2020-01-31"], "A key cannot expire in the past; give a later time"),
        (["--expires", "0d"], "A key cannot expire in the past"),
        (["--expires", "soon"], "A key expires after days (30d) or hours (12h)"),
        (["--expires", "2031-02-30"], "A key expires after days (30d) or hours (12h)"),
        (["--expires", "9999-12-31"], "too far away"),
        (["local"], "`local` is the key that Parley makes itself"),
        (["a\x1b[2Jb"], "The name of a key is made of"),
        (["--profile", "nobody"], "There is no profile `nobody`"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    parley: Parley, arguments: list[str], sentence: str
) -> None:
    assert sentence in refused(parley, "create", *arguments)
    assert not parley.home.exists() or not KeyFile(parley.profile).path.exists()


def test_the_help_names_every_scope(parley: Parley) -> None:
    said = parley.run("keys", "create", "--help").stdout
    assert [scope for scope in SCOPES if scope not in said] == []


def test_a_date_is_its_last_second_where_the_person_is() -> None:
    zone = ZoneInfo("Asia/Tokyo")
    now = datetime(2031, 1, 31, 12, tzinfo=zone).timestamp()
    end = datetime(2031, 1, 31, 23, 59, 59, tzinfo=zone).timestamp()
    assert expiry("2031-01-31", now, zone) == end
    assert expiry(" 2D ", now) == now + 2 * 86_400
    assert expiry("12h", now) == now + 12 * 3600
    assert expiry("Never", now) is None
    for odd in ("", "d", "1", "-1d", "1.5d", "999999d", "30 d", "tomorrow", "٣d"):
        with pytest.raises(ParleyError, match="A key expires after"):
            expiry(odd, now)


# ── list ──────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_list_says_what_to_do_and_makes_nothing(parley: Parley) -> None:
    done = parley.run("keys", "list")
    assert done.stdout == (
        "`default` has no keys; make one with: parley keys create NAME\n"
        "Without any, the local one works on this machine: parley keys local\n"
    )
    assert parley.json("keys", "list", "--json") == []
    assert not parley.home.exists()
    made(parley, "coder")
    done = parley.run("keys", "list", "--profile", "coder")
    assert "parley keys create NAME --profile coder\n" in done.stdout


def test_a_list_shows_each_key_and_no_token(parley: Parley) -> None:
    file = KeyFile(parley.profile)
    tokens = [
        file.create("laptop", ["chat", "runs"])[1],
        file.create("ci", ["admin"], all_profiles=True, expires_at=4e9)[1],
        file.create("old", ["chat"], expires_at=4e9)[1],
        file.create("moved", ["chat"])[1],
    ]
    whole = json.loads(file.path.read_text())
    whole["keys"][2]["expires_at"] = 1e9
    whole["keys"][3]["profile"] = "before"
    file.path.write_text(json.dumps(whole))
    done = parley.run("keys", "list")
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    assert rows[0] == ["name", "id", "scopes", "created", "expires"]
    assert [(row[0], row[2], row[4]) for row in rows[1:]] == [
        ("laptop", "chat,runs", "never"),
        ("ci", "admin (all profiles)", "2096-10-02 07:06"),
        ("old", "chat", "expired 2001-09-09 01:46"),
        ("moved", "chat", "void: made for `before`"),
    ]
    listed = parley.run("keys", "list", "--json").stdout
    assert [one["expired"] for one in json.loads(listed)] == [False, False, True, False]
    for secret in [*(token.rsplit("-", 1)[1] for token in tokens), "sha256"]:
        assert secret not in done.stdout + done.stderr + listed


def test_a_damaged_file_is_one_sentence(parley: Parley) -> None:
    parley.home.mkdir()
    KeyFile(parley.profile).path.write_text('{"keys": [{"sha256": "canary')
    for arguments in (["list"], ["create", "a"], ["revoke", "a"]):
        sentence = refused(parley, *arguments)
        assert sentence.startswith("~/home/api_keys.json is damaged")
        assert "canary" not in sentence


# ── revoke ────────────────────────────────────────────────────────────────────────────────────


def test_a_revoked_key_is_refused_at_once_by_a_ring_that_knew_it(parley: Parley) -> None:
    ring = ring_of(parley)
    tokens = {name: parley.run("keys", "create", name).stdout.strip() for name in ("one", "two")}
    keys = {name: ring.find(token, time.time()) for name, token in tokens.items()}
    assert keys["one"] is not None
    assert keys["two"] is not None
    done = parley.run("keys", "revoke", "one")
    assert ring.find(tokens["one"], time.time()) is None
    assert done.stdout == f"Key `one` ({keys['one'].id}) is revoked.\n"
    assert ring.find(tokens["two"], time.time()) == keys["two"]
    assert parley.run("keys", "revoke", keys["two"].id).returncode == 0
    assert ring.find(tokens["two"], time.time()) is None
    sentence = refused(parley, "revoke", "one\x1b[2J")
    assert sentence == "`default` has no key 'one[2J'; `parley keys list` shows them."


# ── local ─────────────────────────────────────────────────────────────────────────────────────


def test_the_local_key_is_made_once_and_told_of_when_it_does_not_work(parley: Parley) -> None:
    first = parley.run("keys", "local")
    token = first.stdout.removesuffix("\n")
    assert first.stderr == ""
    assert ring_of(parley).find(token, 0.0) is not None
    assert stat.S_IMODE((parley.home / "api.key").stat().st_mode) == 0o600
    KeyFile(parley.profile).create("a", ["chat"])
    again = parley.run("keys", "local")
    assert again.stdout == first.stdout
    assert again.stderr.startswith("parley: It does not work now, for there are other keys")


def test_the_local_key_is_that_of_the_home_the_gateway_would_have(parley: Parley) -> None:
    coder = made(parley, "coder")
    alone = parley.run("keys", "local", "--profile", "coder")
    assert (coder.home / "api.key").read_text() == alone.stdout
    assert alone.stderr == ""
    parley.profile.config_file.write_text("gateway: {multiplex_profiles: true}\n")
    parley.run("profile", "use", "coder")
    everyones = parley.run("keys", "local")
    assert (parley.home / "api.key").read_text() == everyones.stdout
    KeyFile(coder).create("a", ["chat"])
    assert "there are other keys" in parley.run("keys", "local").stderr
    done = parley.run("keys", "local", "--profile", "coder")
    assert done.stdout == alone.stdout
    assert "a gateway that serves `coder` alone" in done.stderr


# ── what must not carry them ──────────────────────────────────────────────────────────────────


def test_no_archive_and_no_clone_holds_a_key(parley: Parley, tmp_path: Path) -> None:
    coder = made(parley, "coder")
    key, _ = KeyFile(coder).create("laptop", ["chat"])
    local = KeyRing(lambda: [], coder).local_key()
    archive = tmp_path / "it.tar.gz"
    archives = []
    for how in ("--force", "--with-secrets"):
        done = parley.run("profile", "export", "coder", str(archive), "--force", how)
        assert done.returncode == 0, done.stderr
        archives.append(archive.read_bytes())
    assert parley.run("profile", "create", "twin", "--clone", "--from", "coder").returncode == 0
    assert parley.run("profile", "delete", "coder", "--yes").returncode == 0
    archives += [file.read_bytes() for file in (parley.home / "archive").iterdir()]
    assert len(archives) == 3
    for content in map(gzip.decompress, archives):
        assert b"home/SOUL.md" in content
        for secret in ("api_keys.json", "api.key", key.digest.hex(), local):
            assert secret.encode() not in content
    twin = {item.name for item in named(parley, "twin").home.iterdir()}
    assert not twin & {"api_keys.json", "api.key"}


def test_an_archive_of_somebody_else_brings_no_key_along(parley: Parley, tmp_path: Path) -> None:
    other = Parley(tmp_path / "other")
    KeyFile(made(other, "coder")).create("back-door", ["admin"])
    archive, forged = tmp_path / "it.tar.gz", tmp_path / "forged.tar.gz"
    assert other.run("profile", "export", "coder", str(archive)).returncode == 0
    keys = KeyFile(named(other, "coder")).path.read_bytes()
    with tarfile.open(archive) as source, tarfile.open(forged, "w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        info = tarfile.TarInfo("home/api_keys.json")
        info.size = len(keys)
        target.addfile(info, io.BytesIO(keys))
    done = parley.run("profile", "import", str(forged))
    assert done.returncode == 0, done.stderr
    assert named(parley, "coder").soul_file.is_file()
    assert KeyFile(named(parley, "coder")).keys() == []


def test_a_shell_completes_the_names_of_keys(parley: Parley) -> None:
    KeyFile(parley.profile).create("laptop", ["chat"])
    asked = {"_PARLEY_COMPLETE": "complete_bash", "COMP_WORDS": "parley keys revoke la"}
    done = Parley(parley.home, {**asked, "COMP_CWORD": "3"}).run()
    assert done.stdout.split() == ["laptop"]
