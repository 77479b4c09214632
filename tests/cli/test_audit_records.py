"""What people do at the command line, in the audit log: all of it, and no secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.audit.verify import verify_log
from tests.cli.command import Parley

_CANARY = "canary-7f3a9"


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def done(parley: Parley, *arguments: str, stdin: str = "") -> None:
    found = parley.run(*arguments, stdin=stdin)
    assert found.returncode == 0, found.stderr


def records(parley: Parley) -> list[dict[str, Any]]:
    shown = parley.run("audit", "--json", "-n", "1000").stdout
    return [json.loads(line) for line in shown.splitlines()]


def kinds(parley: Parley) -> list[str]:
    return [record["kind"] for record in records(parley)]


def test_settings_are_recorded_by_name_and_those_of_access_with_their_value(
    parley: Parley,
) -> None:
    done(parley, "config", "set", "access.owners", "matrix:@me:example.org")
    done(parley, "config", "set", "providers.mine.base_url", f"https://{_CANARY}.example.org/v1")
    done(parley, "config", "set", "mcp.mail.command", f"mail-{_CANARY}")
    done(parley, "config", "unset", "access.owners")
    found = records(parley)
    assert [record["kind"] for record in found] == [*["setting.changed"] * 3, "setting.unset"]
    assert found[0]["data"] == {
        "names": ["access.owners"],
        "values": {"access.owners": ["matrix:@me:example.org"]},
    }
    assert found[1]["data"] == {"names": ["providers.mine.base_url"]}
    assert found[0]["who"].startswith("local:")
    assert found[0]["from"] == "this machine"


def test_a_setting_that_was_refused_is_not_recorded(parley: Parley) -> None:
    assert parley.run("config", "set", "gateway.port", "many").returncode == 1
    assert records(parley) == []


def test_keys_and_secrets_are_recorded_by_name(parley: Parley) -> None:
    done(parley, "config", "set", "OPENAI_API_KEY", f"sk-{_CANARY}")
    done(parley, "config", "set", "SOME_TOKEN", stdin=f"{_CANARY}\n")
    token = parley.run("keys", "create", "laptop").stdout.strip()
    local = parley.run("keys", "local").stdout.strip()
    done(parley, "keys", "revoke", "laptop")
    done(parley, "config", "unset", "OPENAI_API_KEY")
    found = records(parley)
    assert [record["kind"] for record in found] == [
        "secret.set",
        "secret.set",
        "key.created",
        "key.local_made",
        "key.local_shown",
        "key.revoked",
        "secret.removed",
    ]
    assert found[0]["data"] == {"name": "OPENAI_API_KEY"}
    assert found[2]["data"]["scopes"] == ["chat", "runs"]
    for secret in (_CANARY, token, local, token[-20:], local[-20:]):
        assert secret not in log_text(parley)


def test_profiles_are_recorded_from_their_making_to_their_end(
    parley: Parley, tmp_path: Path
) -> None:
    file = tmp_path / "out.tar.gz"
    done(parley, "profile", "create", "one")
    done(parley, "config", "set", "SOME_TOKEN", _CANARY, "--profile", "one")
    done(parley, "profile", "create", "two", "--from", "one")
    done(parley, "profile", "rename", "two", "three")
    done(parley, "profile", "export", "one", str(file), "--with-secrets")
    done(parley, "profile", "import", str(file), "--name", "four")
    done(parley, "profile", "delete", "one", "--yes")
    found = [(record["kind"], record["profile"]) for record in records(parley)]
    assert found == [
        ("profile.created", "one"),
        ("secret.set", "one"),
        ("profile.cloned", "two"),
        ("profile.renamed", "three"),
        ("profile.exported", "one"),
        ("profile.imported", "four"),
        ("profile.deleted", "one"),
    ]
    assert _CANARY not in log_text(parley)
    assert not (parley.profile.home / "profiles" / "four" / "audit").exists()
    only = parley.run("audit", "--json", "--profile", "three").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in only] == ["profile.renamed"]


def test_a_gateway_is_recorded_from_its_start_to_its_stop(parley: Parley) -> None:
    parley.profile.home.mkdir()
    parley.profile.config_file.write_text("backend: mock\n")
    with parley.gateway() as process:
        done(parley, "config", "set", "log.level", "debug")
        process.terminate()
        process.wait(timeout=60)
    found = records(parley)
    assert [record["kind"] for record in found] == [
        "key.local_made",
        "gateway.started",
        "setting.changed",
        "gateway.stopped",
    ]
    started = found[1]
    assert started["data"]["serves"] == ["default"]
    assert len(started["data"]["settings"]["default"]) == 16
    assert verify_log(parley.profile.home / "audit").ok


def test_memory_is_recorded_without_what_it_says(parley: Parley) -> None:
    parley.profile.home.mkdir()
    parley.profile.config_file.write_text("backend: mock\n")
    with parley.gateway():
        pass
    before = len(records(parley))
    done(parley, "memory", "add", f"The cat is called {_CANARY}.")
    done(parley, "memory", "export")
    done(parley, "memory", "forget", "1", "--yes")
    assert kinds(parley)[before:] == ["memory.changed", "memory.exported", "memory.forgotten"]
    assert {record["who"] for record in records(parley)} == {records(parley)[0]["who"]}
    assert _CANARY not in log_text(parley)


def log_text(parley: Parley) -> str:
    return "".join(path.read_text() for path in (parley.profile.home / "audit").iterdir())
