"""API keys: kept as hashes, found by their tokens, gone at once when they are revoked."""

from __future__ import annotations

import hmac
import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.config import ConfigError, Redactor
from parley.config.api_key_text import (
    digest_of,
    is_local_token,
    keys_text,
    local_token,
    parse_keys,
    token_of,
    whose_token,
)
from parley.config.api_keys import SCOPES, ApiKey, KeyFile, KeyRing
from parley.profiles import PROFILE_NAME, Profile
from tests.waiting import until_now

_names = st.from_regex(PROFILE_NAME, fullmatch=True)
_ids = st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
_secrets = st.from_regex(r"[A-Za-z0-9]{43}", fullmatch=True)


@pytest.fixture
def coder(profile: Profile) -> Profile:
    home = profile.home / "profiles" / "my-coder-2"
    home.mkdir(parents=True)
    return Profile("my-coder-2", home)


@pytest.fixture
def ring(profile: Profile, coder: Profile) -> KeyRing:
    return KeyRing(lambda: [profile, coder], profile, allow_local=True)


def change(profile: Profile, /, **fields: Any) -> None:
    """Edit the last key in a profile's file by hand."""
    path = KeyFile(profile).path
    whole = json.loads(path.read_text())
    whole["keys"][-1].update(fields)
    path.write_text(json.dumps(whole))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ── made and kept ─────────────────────────────────────────────────────────────────────────────


def test_a_key_is_found_by_its_token_and_has_what_it_was_made_with(
    coder: Profile, ring: KeyRing
) -> None:
    later = time.time() + 60
    key, token = KeyFile(coder).create("laptop", ["runs"], expires_at=later, per_minute=7)
    assert token.startswith(f"sk-parley-my-coder-2-{key.id}-")
    assert ring.find(token, time.time()) == key
    assert (key.name, key.profile) == ("laptop", "my-coder-2")
    assert key.scopes == {"runs"}
    assert (key.all_profiles, key.expires_at, key.per_minute) == (False, later, 7)
    assert KeyFile(coder).keys() == [key]


def test_only_a_hash_is_kept_for_the_owner_alone(profile: Profile) -> None:
    file = KeyFile(profile)
    key, token = file.create(None, ["chat"])
    secret = token.rsplit("-", 1)[1]
    assert len(secret) >= 40
    assert secret not in file.path.read_text()
    assert mode_of(file.path) == 0o600
    assert key.name == f"key-{key.id}"
    assert secret not in repr(key)
    assert key.digest.hex() not in repr(key)
    assert {item.name for item in profile.home.iterdir()} == {"api_keys.json", "audit"}
    assert secret not in (profile.home / "audit" / "audit.jsonl").read_text()


def test_a_file_that_others_could_read_is_tightened_by_the_next_change(profile: Profile) -> None:
    file = KeyFile(profile)
    file.create("one", ["chat"])
    file.path.chmod(0o644)
    file.create("two", ["chat"])
    assert mode_of(file.path) == 0o600


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("local", "`local` is the key that Parley makes itself"),
        ("deadbeef", "looks like the id of a key"),
        ("taken", "There is a key `taken` already"),
        *((name, "The name of a key is made of") for name in ("", "-a", "a b", "a/b", "a\n")),
        ("é", "The name of a key is made of"),
        ("x" * 41, "40 at most"),
    ],
)
def test_a_name_that_cannot_be_is_refused(profile: Profile, name: str, sentence: str) -> None:
    file = KeyFile(profile)
    file.create("taken", ["chat"])
    with pytest.raises(ConfigError, match=sentence):
        file.create(name, ["chat"])
    assert len(file.keys()) == 1


def test_what_a_key_cannot_have_is_refused(profile: Profile, coder: Profile) -> None:
    file = KeyFile(profile)
    with pytest.raises(ConfigError, match="no scope 'root'; there are chat, runs, admin"):
        file.create("a", ["chat", "root"])
    with pytest.raises(ConfigError, match="needs a scope"):
        file.create("a", [])
    with pytest.raises(ConfigError, match="in the past"):
        file.create("a", ["chat"], expires_at=time.time() - 1)
    for far in (1e18, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="too far away"):
            file.create("a", ["chat"], expires_at=far)
    with pytest.raises(ConfigError, match="Only a key of the default profile"):
        KeyFile(coder).create("a", ["chat"], all_profiles=True)
    assert not file.path.exists()
    assert not KeyFile(coder).path.exists()


def test_a_file_stays_readable_however_many_keys_are_asked_for(profile: Profile) -> None:
    file = KeyFile(profile)
    key, _ = file.create("x" * 40, SCOPES)
    full = [replace(key, id=f"{n:08x}", name=f"{n:040}") for n in range(199)]
    file.path.write_text(keys_text(full))
    file.create("last", ["chat"])
    with pytest.raises(ConfigError, match="There are 200 keys"):
        file.create("more", ["chat"])
    assert len(file.keys()) == 200


def test_keys_made_by_two_processes_at_once_are_all_kept(profile: Profile) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from parley.config.api_keys import KeyFile
        from parley.profiles import Profile
        file = KeyFile(Profile("default", Path(sys.argv[1])))
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(15):
            file.create(f"{sys.argv[2]}-{number}", ["chat"])
    """
    both = [start(script, profile.home, name) for name in ("one", "two")]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    kept = KeyFile(profile).keys()
    assert {key.name for key in kept} == {
        f"{who}-{number}" for who in ("one", "two") for number in range(15)
    }


# ── the token ─────────────────────────────────────────────────────────────────────────────────


@given(_names, _ids, _secrets)
def test_a_token_names_its_profile_and_id_whatever_the_profile_is_called(
    name: str, key_id: str, secret: str
) -> None:
    assert whose_token(token_of(name, key_id, secret)) == (name, key_id)
    assert not is_local_token(token_of(name, key_id, secret))


@given(_names, _ids, _secrets, _ids, _secrets)
def test_a_name_made_of_pieces_of_a_token_is_still_a_name(
    name: str, inner: str, _: str, key_id: str, secret: str
) -> None:
    odd = f"{name}-{inner}"
    if len(odd) <= 32:
        assert whose_token(token_of(odd, key_id, secret)) == (odd, key_id)


@given(_secrets)
def test_the_local_token_is_no_key_of_a_profile_called_local(secret: str) -> None:
    assert whose_token(local_token(secret)) is None
    assert is_local_token(local_token(secret))


@given(st.text(max_size=80))
def test_any_other_text_is_nobodys_token(text: str) -> None:
    assert whose_token(text) is None
    assert not is_local_token(text)
    assert len(digest_of(text)) == 32


def test_a_token_is_compared_in_constant_time_and_always_once(
    profile: Profile, ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = KeyFile(profile).create("laptop", ["chat"])
    real, compared = hmac.compare_digest, []

    def spy(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    unknown_id = token.replace(key.id, "0" * 8)
    strangers = [
        token[:-1] + "!",
        unknown_id,
        token.replace("default", "nobody"),
        "",
        "x",
        "é\ud800",
    ]
    assert ring.find(token, 0.0) == key
    assert [ring.find(other, 0.0) for other in strangers] == [None] * len(strangers)
    assert len(compared) == 1 + len(strangers)
    assert {len(side) for pair in compared for side in pair} == {32}
    assert [ring.find(f"{token}{space}", 0.0) for space in (" ", "\n")] == [None, None]


# ── found ─────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_refused_from_the_moment_it_expires(profile: Profile, ring: KeyRing) -> None:
    at = time.time() + 60
    key, token = KeyFile(profile).create("a", ["chat"], expires_at=at)
    assert ring.find(token, at - 0.001) == key
    assert ring.find(token, at) is None
    assert ring.has_keys()


def test_a_key_of_a_profile_that_is_not_served_is_refused(profile: Profile, coder: Profile) -> None:
    _, token = KeyFile(coder).create("a", ["chat"])
    served = [profile]
    ring = KeyRing(lambda: served, profile)
    assert ring.find(token, 0.0) is None
    assert not ring.has_keys()
    served.append(coder)
    assert ring.find(token, 0.0) is not None
    assert ring.has_keys()


def test_a_key_works_in_the_file_of_its_own_profile_alone(
    profile: Profile, coder: Profile, ring: KeyRing
) -> None:
    _, token = KeyFile(profile).create("a", ["chat"])
    KeyFile(coder).path.write_bytes(KeyFile(profile).path.read_bytes())
    assert ring.find(token.replace("default", coder.name), 0.0) is None
    # Neither does it when somebody who can write that file makes up a hash that fits.
    change(coder, sha256=digest_of(token.replace("default", coder.name)).hex())
    assert ring.find(token.replace("default", coder.name), 0.0) is None


def test_only_the_file_of_the_house_can_open_all_profiles(
    profile: Profile, coder: Profile, ring: KeyRing
) -> None:
    key, token = KeyFile(profile).create("a", ["chat"], all_profiles=True)
    assert ring.find(token, 0.0) == key
    _, token = KeyFile(coder).create("b", ["chat"])
    assert ring.find(token, 0.0) is not None
    change(coder, all_profiles=True)
    assert ring.find(token, 0.0) is None


def test_a_revoked_key_is_refused_at_once_in_another_process(profile: Profile) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from parley.config.api_keys import KeyRing
        from parley.profiles import Profile
        house = Profile("default", Path(sys.argv[1]))
        ring = KeyRing(lambda: [house], house)
        for token in sys.stdin:
            found = ring.find(token.strip(), 0.0)
            print(found.name if found else "nobody", flush=True)
    """
    file = KeyFile(profile)
    kept, revoked = file.create("kept", ["chat"])[1], file.create("gone", ["chat"])[1]
    # Long ago enough to be remembered by whoever has read it.
    os.utime(file.path, (1, 1))
    with start(script, profile.home) as server:

        def ask(token: str) -> str:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(f"{token}\n")
            server.stdin.flush()
            return server.stdout.readline().strip()

        assert (ask(revoked), ask(kept)) == ("gone", "kept")
        gone = file.revoke("gone")
        assert (ask(revoked), ask(kept)) == ("nobody", "kept")
        made = file.create("new", ["chat"])[1]
        assert ask(made) == "new"
        file.path.unlink()
        assert (ask(made), ask(kept)) == ("nobody", "nobody")
        server.communicate(timeout=60)
    assert gone is not None
    assert gone.name == "gone"


def test_a_change_within_one_tick_of_the_clock_is_seen(profile: Profile, ring: KeyRing) -> None:
    key, token = KeyFile(profile).create("a", ["chat"])
    path = KeyFile(profile).path
    now = time.time_ns() + 10**9
    os.utime(path, ns=(now, now))
    assert ring.find(token, 0.0) == key
    path.write_text(path.read_text().replace(key.digest.hex(), "0" * 64))
    os.utime(path, ns=(now, now))
    assert ring.find(token, 0.0) is None


def test_a_key_is_revoked_by_its_name_or_its_id(profile: Profile) -> None:
    file = KeyFile(profile)
    assert file.revoke("a") is None
    assert not file.path.exists()
    one, two = file.create("a", ["chat"])[0], file.create("b", ["chat"])[0]
    assert file.revoke("c") is None
    assert file.revoke("") is None
    assert file.revoke(one.id) == one
    assert file.revoke("b") == two
    assert file.revoke("b") is None
    assert file.keys() == []


# ── a file that cannot be trusted ─────────────────────────────────────────────────────────────


_NOT_FIELDS: list[dict[str, Any]] = [
    {"expires_at": float("nan")},
    {"expires_at": float("inf")},
    {"expires_at": 10**400},
    {"expires_at": "never"},
    {"expires_at": False},
    {"created_at": None},
    {"created_at": -1},
    {"per_minute": True},
    {"per_minute": 1.5},
    {"per_minute": -1},
    {"scopes": []},
    {"scopes": "chat"},
    {"scopes": ["chat", "root"]},
    {"scopes": [["chat"]]},
    {"scopes": {"chat": 1}},
    {"all_profiles": 1},
    {"all_profiles": None},
    {"id": "nope"},
    {"id": 12345678},
    {"name": "local"},
    {"name": "a\x1b[2J"},
    {"name": None},
    {"profile": "\x1b[2J"},
    {"sha256": ""},
    {"sha256": "0" * 63},
    {"sha256": None},
    {"only_from": "10.0.0.1"},
]


@pytest.mark.parametrize("fields", _NOT_FIELDS, ids=str)
def test_a_file_with_a_field_that_cannot_be_refuses_everyone(
    profile: Profile, ring: KeyRing, fields: dict[str, Any]
) -> None:
    _, token = KeyFile(profile).create("good", ["chat"])
    KeyFile(profile).create("bad", ["chat"])
    assert ring.find(token, 0.0) is not None
    change(profile, **fields)
    assert ring.find(token, 0.0) is None
    assert ring.has_keys()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", "7", '{"keys": {}}', '{"keys": null}', '{"keys": [null]}'),
        *('{"keys": [], "more": 1}', "[" * 100_000, '{"keys": [{}]}', "\x00", '{"keys": [], "k'),
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_is_no_list_of_keys_is_refused(profile: Profile, text: str) -> None:
    KeyFile(profile).path.write_text(text)
    with pytest.raises(ConfigError, match="is damaged, and no key in it works"):
        KeyFile(profile).keys()


@given(st.data())
def test_a_half_written_text_is_never_taken_for_a_whole_one(data: st.DataObject) -> None:
    key = ApiKey("0" * 8, "a", "default", frozenset({"chat"}), False, 1.0, None, None, b"\0" * 32)
    whole = keys_text([key, replace(key, id="1" * 8, name="b")]).rstrip()
    assert len(parse_keys(whole)) == 2
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        parse_keys(whole[:cut])


def test_two_keys_of_the_same_name_or_id_are_a_damage(profile: Profile) -> None:
    file = KeyFile(profile)
    one, two = file.create("a", ["chat"])[0], file.create("b", ["chat"])[0]
    for fields in ({"id": one.id}, {"name": "a"}):
        change(profile, id=two.id, name="b")
        assert len(file.keys()) == 2
        change(profile, **fields)
        with pytest.raises(ConfigError, match="is damaged"):
            file.keys()


def test_a_damaged_file_is_told_of_once_without_what_is_in_it_and_kept(
    profile: Profile, coder: Profile, ring: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    _, token = KeyFile(profile).create("a", ["chat"])
    _, others = KeyFile(coder).create("b", ["chat"])
    path = KeyFile(profile).path
    whole = path.read_text()
    path.write_text(whole[:-20])
    with caplog.at_level(logging.DEBUG):
        assert [ring.find(token, 0.0) for _ in range(5)] == [None] * 5
    [record] = caplog.records
    assert "api_keys.json is damaged" in record.getMessage()
    assert "sha256" not in caplog.text
    assert token not in caplog.text
    assert ring.find(others, 0.0) is not None
    for attempt in (
        lambda: KeyFile(profile).create("c", ["chat"]),
        lambda: KeyFile(profile).revoke("a"),
    ):
        with pytest.raises(ConfigError, match="is damaged"):
            attempt()
    assert path.read_text() == whole[:-20]
    path.write_text(whole)
    assert ring.find(token, 0.0) is not None


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_refuses_everyone(
    profile: Profile, ring: KeyRing, make: Callable[[Path], None]
) -> None:
    _, token = KeyFile(profile).create("a", ["chat"])
    KeyFile(profile).path.unlink()
    make(KeyFile(profile).path)
    assert ring.find(token, 0.0) is None
    assert ring.has_keys()


# ── the key of this machine ───────────────────────────────────────────────────────────────────


def test_the_local_key_is_made_once_for_the_owner_alone(profile: Profile, ring: KeyRing) -> None:
    token = ring.local_key()
    assert mode_of(profile.home / "api.key") == 0o600
    assert ring.local_key() == token
    assert KeyRing(lambda: [], profile).local_key() == token
    key = ring.find(token, time.time())
    assert key is not None
    assert (key.name, key.profile, key.all_profiles) == ("local", "default", True)
    assert key.scopes == set(SCOPES)
    assert ring.find(token[:-1], 0.0) is None
    assert ring.find(local_token("x" * 43), 0.0) is None


def test_the_local_key_does_not_work_where_others_can_reach_the_server(profile: Profile) -> None:
    ring = KeyRing(lambda: [profile], profile)
    assert ring.find(ring.local_key(), 0.0) is None


def test_the_local_key_works_only_while_there_is_no_other(
    profile: Profile, coder: Profile, ring: KeyRing
) -> None:
    token = ring.local_key()
    for owner in (profile, coder):
        KeyFile(owner).create("a", ["chat"])
        until_now(lambda: ring.find(token, 0.0) is None)
        KeyFile(owner).revoke("a")
        until_now(lambda: ring.find(token, 0.0) is not None)
    KeyFile(coder).path.write_text("damaged")
    until_now(lambda: ring.find(token, 0.0) is None)


@pytest.mark.parametrize(
    "text", ["", " \n", "short", "sk-parley-local-", "sk-parley-local-" + "x" * 42]
)
def test_a_local_key_that_is_not_whole_is_made_anew_and_never_accepted(
    profile: Profile, ring: KeyRing, text: str
) -> None:
    file = profile.home / "api.key"
    file.write_text(text)
    file.chmod(0o644)
    assert ring.find(text.strip(), 0.0) is None
    assert ring.find("", 0.0) is None
    assert file.read_text() == text
    made = ring.local_key()
    assert ring.find(made, 0.0) is not None
    assert file.read_text() == f"{made}\n"
    assert mode_of(file) == 0o600


def test_nothing_is_made_by_looking_for_a_key(profile: Profile, ring: KeyRing) -> None:
    assert ring.find(local_token("x" * 43), 0.0) is None
    assert ring.find(token_of("default", "0" * 8, "x" * 43), 0.0) is None
    assert not ring.has_keys()
    assert [item.name for item in profile.home.iterdir()] == ["profiles"]


def test_two_processes_that_make_the_local_key_at_once_agree_on_it(profile: Profile) -> None:
    script = """if True:
        import sys
        from pathlib import Path
        from parley.config.api_keys import KeyRing
        from parley.profiles import Profile
        ring = KeyRing(lambda: [], Profile("default", Path(sys.argv[1])))
        print("ready", flush=True)
        sys.stdin.readline()
        print(ring.local_key(), flush=True)
    """
    several = [start(script, profile.home) for _ in range(3)]
    for process in several:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in several:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {process.communicate(timeout=60)[0].strip() for process in several}
    assert said == {(profile.home / "api.key").read_text().strip()}


def test_a_token_in_a_log_line_is_struck_out(profile: Profile, ring: KeyRing) -> None:
    _, token = KeyFile(profile).create("a", ["chat"])
    said = Redactor().text(f"asked with {token} and {ring.local_key()}")
    assert said == "asked with [redacted] and [redacted]"


def test_a_file_of_keys_that_leads_nowhere_lets_nobody_in(profile: Profile, ring: KeyRing) -> None:
    KeyFile(profile).path.symlink_to(profile.home / "a-volume-that-is-gone")
    assert ring.find(ring.local_key(), 0.0) is None
    assert ring.has_keys()
