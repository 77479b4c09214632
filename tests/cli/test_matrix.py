"""`parley matrix`: from nothing to a device that is kept, signed and trusted."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pexpect
import pytest

from parley.cli import run as run_command
from parley.config.load import load_settings
from parley.gateway.home import HomeLock
from parley.surfaces.matrix.account import Account, matrix_home, read_account
from parley.surfaces.matrix.recovery_key import read_recovery_key
from tests.cli.command import Parley
from tests.cli.profile_homes import made
from tests.servers.cas import running_cas
from tests.servers.ports import free_port
from tests.servers.synapse import Account as Registered
from tests.servers.synapse import Synapse, running_synapse

_KEY = re.compile(r"(?:\w{4} ){11}\w{4}")


@pytest.fixture(scope="module")
def synapse() -> Iterator[Synapse]:
    with running_synapse() as server:
        yield server


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


class Inside(Parley):
    """The same command without a process of its own, where what it says is all that counts."""

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            patch.dict(os.environ, self.environment(), clear=True),
            patch("sys.stdin", io.StringIO(stdin)),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                copy_context().run(run_command, arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@pytest.fixture
def inside(tmp_path: Path) -> Parley:
    return Inside(tmp_path / "home")


def log_in(parley: Parley, server: Synapse, who: Registered, *more: str) -> str:
    """Log in with the password; returns all that was said."""
    where = ("--homeserver", server.url, "--user", who.user_id, "--password-stdin")
    done = parley.run("matrix", "login", *where, *more, stdin=f"{who.password}\n")
    assert done.returncode == 0, done.stderr
    for secret in (who.password, account_of(parley).access_token, account_of(parley).pickle_key):
        assert secret not in done.stdout + done.stderr
    return done.stdout


def account_of(parley: Parley) -> Account:
    account = read_account(parley.profile)
    assert account is not None
    return account


def refused(parley: Parley, *arguments: str, stdin: str = "", code: int = 1) -> str:
    """The one sentence a command is refused with."""
    done = parley.run("matrix", *arguments, stdin=stdin)
    assert done.returncode == code, done.stdout
    assert done.stderr.startswith("parley: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def devices_of(server: Synapse, who: Registered) -> set[str]:
    told = server.call("GET", "/_matrix/client/v3/devices", token=who.token)
    return {device["device_id"] for device in told["devices"]}


def checks_of(parley: Parley, *arguments: str) -> list[dict[str, Any]]:
    told = parley.json("doctor", "--json", *arguments)
    return [check for check in told["checks"] if check["check"] == "matrix"]


def test_a_password_makes_a_signed_device_that_stays_the_same(
    parley: Parley, inside: Parley, synapse: Synapse
) -> None:
    who = synapse.register()
    assert "parley matrix login" in refused(parley, "status", code=3)
    assert checks_of(parley, "--offline") == []
    said = log_in(parley, synapse, who, "--owner", "@me:localhost")
    first, home = account_of(inside), matrix_home(inside.profile)
    assert first.user_id == who.user_id
    assert "cross-signed" in said
    assert f"invite {who.user_id}" in said
    found = _KEY.search(said)
    assert found is not None
    assert read_recovery_key(found[0]) is not None
    assert inside.run("matrix", "recovery-key").stdout == f"{found[0]}\n"
    for name in ("account.json", "cross_signing.json", "recovery.key"):
        assert (home / name).stat().st_mode & 0o777 == 0o600
    settings = load_settings(inside.profile)
    assert settings.surfaces.matrix.enabled
    assert settings.access.owners == ["matrix:@me:localhost"]

    told = inside.json("matrix", "status", "--json")
    assert (told["user_id"], told["device_id"]) == (who.user_id, first.device_id)
    assert told["cross_signed"] is told["token_valid"] is told["enabled"] is True
    assert first.access_token not in json.dumps(told)
    [check] = checks_of(inside)
    assert check["level"] == "ok"
    assert "cross-signed" in check["what"]

    again = log_in(inside, synapse, who, "--owner", "@me:localhost")
    assert _KEY.search(again) is None
    second = account_of(inside)
    assert (second.device_id, second.pickle_key) == (first.device_id, first.pickle_key)
    assert second.access_token != first.access_token
    assert load_settings(inside.profile).access.owners == ["matrix:@me:localhost"]
    assert "cross-signed" in inside.run("matrix", "verify").stdout
    assert len(devices_of(synapse, who)) == 2  # that of the registration, and ours


def test_what_is_wrong_with_a_device_is_told_and_mended(inside: Parley, synapse: Synapse) -> None:
    who = synapse.register()
    inside.home.mkdir(mode=0o700)
    assert inside.run("config", "set", "surfaces.matrix.enabled", "true").returncode == 0
    [check] = checks_of(inside, "--offline")
    assert (check["level"], check["mend"]) == ("fault", "parley matrix login")
    log_in(inside, synapse, who)
    [_, check] = checks_of(inside, "--offline")
    assert (check["level"], check["what"].partition(":")[0]) == (
        "note",
        "nobody may speak to it yet",
    )
    owned = inside.run("config", "set", "access.owners", "matrix:@me:localhost")
    assert owned.returncode == 0
    file = matrix_home(inside.profile) / "account.json"
    file.chmod(0o644)
    [_, check] = checks_of(inside)
    assert check["level"] == "fault"
    assert inside.shell(check["mend"]).returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600

    token = account_of(inside).access_token
    synapse.call("POST", "/_matrix/client/v3/logout", {}, token=token)
    [check] = checks_of(inside)
    assert (check["level"], check["mend"]) == ("fault", "parley matrix login")
    assert inside.run("matrix", "status").returncode == 1
    device = account_of(inside).device_id
    log_in(inside, synapse, who)
    assert account_of(inside).device_id == device
    [check] = checks_of(inside)
    assert check["level"] == "ok"


@pytest.mark.parametrize("found_out", [True, False])
def test_lost_keys_are_one_sentence_everywhere_and_a_login_makes_a_new_device(
    inside: Parley, synapse: Synapse, *, found_out: bool
) -> None:
    who = synapse.register()
    log_in(inside, synapse, who, "--owner", "@me:localhost")
    lost, home = account_of(inside), matrix_home(inside.profile)
    shutil.rmtree(home / "keys")
    if found_out:  # by whoever opens the keys first, such as the gateway: there is a file again
        for _ in range(2):
            told = refused(inside, "verify")
            assert "run `parley matrix login` for a new device" in told
            assert "{" not in told
        assert list(home.glob("keys/*.db"))
    shown = inside.run("matrix", "status")
    assert shown.returncode == 1
    assert "keys        The encryption keys of this device are lost" in shown.stdout
    assert "`parley matrix login`" in shown.stdout
    [check] = checks_of(inside)
    assert (check["level"], check["mend"]) == ("fault", "parley matrix login")
    assert "{" not in shown.stdout + check["what"]

    said = log_in(inside, synapse, who)
    assert f"The encryption keys of the device {lost.device_id} are lost" in said
    now = account_of(inside).device_id
    assert now != lost.device_id
    assert devices_of(synapse, who) == {who.device_id, now}
    [check] = checks_of(inside)
    assert check["level"] == "ok"
    assert "cross-signed" in inside.run("matrix", "verify").stdout


def test_what_cannot_be_is_one_sentence_and_nothing_is_kept(
    inside: Parley, synapse: Synapse
) -> None:
    who = synapse.register()
    here, me = ("--homeserver", synapse.url), ("--user", who.user_id)
    wrong = "not-the-password-77"
    away = ("--homeserver", f"http://127.0.0.1:{free_port()}")
    cases = [
        (("login", *here, *me, "--password-stdin"), f"{wrong}\n", "does not accept this password"),
        (("login", *here, "--token-stdin"), f"{wrong}\n", "does not accept the access token"),
        (("login", *here, *me, "--password-stdin"), "", "Nothing came on standard input"),
        (("login", *here, "--password-stdin"), f"{who.password}\n", "--user"),
        (("login", *here, *me), "", "--password-stdin, --token-stdin or --sso"),
        (("login", *me[:1], "bot", "--sso"), "", "--homeserver"),
        (("login", *here, *me, "--sso"), "", "offers no login by SSO"),
        (("login", *here, *me, "--sso", "--token-stdin"), "", "Give one of"),
        (("login", *away, *me, "--password-stdin"), f"{wrong}\n", "cannot be reached"),
        (("login", "--homeserver", "http://example.org", "--sso"), "", "Plain http"),
        (("login", *here, "--user", "@bot", "--password-stdin"), "x\n", "is no Matrix id"),
        (("login", *here, *me, "--owner", "me", "--password-stdin"), "x\n", "is no Matrix id"),
    ]
    for arguments, stdin, words in cases:
        sentence = refused(inside, *arguments, stdin=stdin)
        assert words in sentence
        assert wrong not in sentence
    for verb in ("verify", "recovery-key"):
        assert "parley matrix login" in refused(inside, verb, code=3)
    assert "parley matrix login" in refused(inside, "logout", "--yes", code=3)
    assert not matrix_home(inside.profile).exists()
    assert not inside.profile.config_file.exists()


def test_another_user_takes_the_place_only_when_that_is_said(
    inside: Parley, synapse: Synapse
) -> None:
    first, second = synapse.register(), synapse.register()
    log_in(inside, synapse, first)
    before, keys = account_of(inside), inside.run("matrix", "recovery-key").stdout
    name = second.user_id[1:].partition(":")[0]
    where = ("login", "--homeserver", synapse.url, "--password-stdin", "--user")
    for user in (second.user_id, name):
        sentence = refused(inside, *where, user, stdin=f"{second.password}\n")
        assert "--replace" in sentence
    token = refused(inside, *where[:3], "--token-stdin", stdin=f"{second.token}\n")
    assert "--replace" in token
    assert account_of(inside) == before
    assert devices_of(synapse, second) == {second.device_id}

    said = log_in(inside, synapse, second, "--replace")
    assert account_of(inside).user_id == second.user_id
    [aside] = matrix_home(inside.profile).glob("old-*")
    assert str(aside.name) in said
    assert sorted(path.name for path in aside.iterdir()) == [
        "account.json",
        "cross_signing.json",
        "keys",
        "recovery.key",
    ]
    assert aside.stat().st_mode & 0o077 == 0
    assert inside.run("matrix", "recovery-key").stdout != keys
    assert inside.json("matrix", "status", "--json")["cross_signed"] is True


def test_a_token_keeps_its_own_device_and_says_so(inside: Parley, synapse: Synapse) -> None:
    who = synapse.register()
    log_in(inside, synapse, who)
    former = account_of(inside).device_id
    where = ("matrix", "login", "--token-stdin", "--homeserver", synapse.url)
    done = inside.run(*where, stdin=f"{who.token}\n")
    assert done.returncode == 0, done.stderr
    assert account_of(inside).device_id == who.device_id != former
    assert f"belongs to the device {who.device_id}" in done.stdout
    assert who.token not in done.stdout
    assert "cross-signed: it is trusted" in done.stdout
    again = inside.run(*where, stdin=f"{who.token}\n")
    assert "belongs to the device" not in again.stdout


def test_a_device_that_ended_leaves_its_keys_aside_and_a_new_one_is_trusted(
    inside: Parley, synapse: Synapse
) -> None:
    who = synapse.register()
    log_in(inside, synapse, who)
    former, key = account_of(inside).device_id, inside.run("matrix", "recovery-key").stdout
    assert "--yes" in refused(inside, "logout")
    assert former in devices_of(synapse, who)
    done = inside.run("matrix", "logout", "--yes")
    assert done.returncode == 0, done.stderr
    assert former not in devices_of(synapse, who)
    assert read_account(inside.profile) is None
    assert not load_settings(inside.profile).surfaces.matrix.enabled
    [aside] = matrix_home(inside.profile).glob("old-*")
    assert any(aside.glob(f"keys/*{former}.db"))
    said = log_in(inside, synapse, who)
    assert account_of(inside).device_id != former
    assert "cross-signed: it is trusted" in said
    assert inside.run("matrix", "recovery-key").stdout == key


def test_an_account_with_keys_of_its_own_is_signed_by_its_recovery_key(
    inside: Parley, synapse: Synapse, tmp_path: Path
) -> None:
    who, elsewhere = synapse.register(), Inside(tmp_path / "elsewhere")
    log_in(elsewhere, synapse, who)
    key = elsewhere.run("matrix", "recovery-key").stdout
    said = log_in(inside, synapse, who, "--owner", "@me:localhost")
    assert "The device is not cross-signed" in said
    [check] = checks_of(inside)
    assert (check["level"], check["mend"]) == ("note", "parley matrix verify")
    assert "is not kept here" in refused(inside, "recovery-key")
    wrong = refused(inside, "verify", "--recovery-key-stdin", stdin="not this\n")
    assert "does not open" in wrong
    done = inside.run("matrix", "verify", "--recovery-key-stdin", stdin=key)
    assert (done.returncode, done.stderr) == (0, "")
    assert inside.json("matrix", "status", "--json")["cross_signed"] is True

    third = Inside(tmp_path / "third")
    where = ("--homeserver", synapse.url, "--user", who.user_id, "--password-stdin")
    stdin = f"{who.password}\n{key}"
    done = third.run("matrix", "login", *where, "--recovery-key-stdin", stdin=stdin)
    assert "cross-signed: it is trusted" in done.stdout
    assert key.strip() not in done.stdout

    asked = refused(third, "verify", "--reset-cross-signing")
    assert "wants the account's password" in asked
    reset = ("matrix", "verify", "--reset-cross-signing", "--password-stdin")
    done = third.run(*reset, stdin=f"{who.password}\n")
    assert _KEY.search(done.stdout) is not None
    assert third.json("matrix", "status", "--json")["cross_signed"] is True
    assert inside.json("matrix", "status", "--json")["cross_signed"] is False


def test_a_profile_that_is_served_keeps_its_keys_to_who_serves_it(
    inside: Parley, synapse: Synapse
) -> None:
    who = synapse.register()
    with HomeLock(inside.profile, "gateway"):
        said = log_in(inside, synapse, who)
        assert "at its next start" in said
        assert "cross-signed: it is trusted" in said
        assert "by itself" in log_in(inside, synapse, who)
        for verb in (("verify",), ("logout", "--yes")):
            assert "Stop what serves this profile first" in refused(inside, *verb)
        other = synapse.register()
        where = ("login", "--homeserver", synapse.url, "--user", other.user_id, "--replace")
        sentence = refused(inside, *where, "--password-stdin", stdin=f"{other.password}\n")
        assert "stop that first" in sentence


def test_a_person_at_a_terminal_is_asked_for_what_is_missing(
    parley: Parley, synapse: Synapse
) -> None:
    who = synapse.register()
    coder = made(parley, "coder")
    screen = parley.terminal("matrix", "login", "--profile", "coder")
    screen.expect("Homeserver")
    screen.sendline(synapse.url)
    screen.expect("How shall it log in")
    screen.expect("Number")
    screen.sendline("1")
    screen.expect("own account")
    screen.sendline(who.user_id)
    screen.expect("Password")
    screen.sendline("a wrong one")
    screen.expect("does not accept this password")
    screen.expect("Password")
    screen.sendline(who.password)
    screen.expect("Your own Matrix id")
    screen.sendline("me")
    screen.expect("no Matrix id")
    screen.sendline("@me:localhost")
    screen.expect("recovery key")
    screen.expect("Next: `parley gateway run --profile coder`")
    screen.expect("$")
    screen.wait()
    screen.close()
    assert screen.exitstatus == 0
    account = read_account(coder)
    assert account is not None
    assert account.user_id == who.user_id
    assert load_settings(coder).access.owners == ["matrix:@me:localhost"]
    assert read_account(parley.profile) is None
    told = synapse.call("GET", "/_matrix/client/v3/devices", token=who.token)
    names = {device["device_id"]: device["display_name"] for device in told["devices"]}
    assert names[account.device_id] == "Parley (coder)"


def test_single_sign_on_ends_at_this_machine_or_with_what_is_pasted(parley: Parley) -> None:
    with running_cas("robot") as cas:
        extra = {
            "cas_config": {"enabled": True, "server_url": cas, "idp_name": "CAS"},
            "sso": {"client_whitelist": ["http://127.0.0.1"]},
            "password_config": {"enabled": False},
        }
        with running_synapse(extra=extra) as server:
            for pasted in (False, True):
                screen = parley.terminal("matrix", "login", "--homeserver", server.url, "--sso")
                screen.expect(r"(http://\S+/login/sso/redirect\S+)")
                link = _matched(screen)
                screen.expect("paste the address")
                if pasted:
                    screen.sendline("http://127.0.0.1/no-token")
                    screen.expect("There is no login token in that")
                    screen.sendline(_end_of(link))
                else:
                    with urllib.request.urlopen(link, timeout=20) as page:
                        assert "logged in" in page.read().decode()
                    screen.expect("Your own Matrix id")
                    screen.sendline("@me:localhost")
                screen.expect("Logged in as @robot:localhost; its device is (\\w+)")
                assert _matched(screen) == account_of(parley).device_id
                screen.expect("Next:")
                screen.wait()
                screen.close()
                assert screen.exitstatus == 0
            first = account_of(parley)
            devices = server.call("GET", "/_matrix/client/v3/devices", token=first.access_token)
            assert [device["device_id"] for device in devices["devices"]] == [first.device_id]
            assert parley.json("matrix", "status", "--json")["cross_signed"] is True


def _matched(screen: pexpect.spawn[str]) -> str:
    """What the brackets of the expected pattern hold."""
    assert isinstance(screen.match, re.Match)
    return str(screen.match[1])


def _end_of(link: str) -> str:
    """The address at which a browser on another machine ends: there is nothing to be found."""

    class Stop(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *arguments: Any, **more: Any) -> Any:
            address = arguments[5]
            if "loginToken=" in address:
                raise StopIteration(address)
            return super().redirect_request(*arguments, **more)

    try:
        urllib.request.build_opener(Stop).open(link, timeout=20)
    except StopIteration as end:
        return str(end.value)
    raise AssertionError("no login token came")


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text("import sys; sys.modules['nio'] = None")
    bare = Parley(
        tmp_path / "home",
        {"PYTHONPATH": str(tmp_path / "without"), "PARLEY_COMMAND": "./scripts/run"},
    )
    for verb in ("login", "verify"):
        assert "run `./scripts/run --with matrix`." in refused(bare, verb)
    bare.home.mkdir(mode=0o700)
    assert bare.run("config", "set", "surfaces.matrix.enabled", "true").returncode == 0
    [check] = checks_of(bare, "--offline")
    assert (check["level"], check["mend"]) == ("fault", "./scripts/run --with matrix")
