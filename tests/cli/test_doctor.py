"""`parley doctor`: every fault is found, and the command beside it mends it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.agent.providers.local.weights import CATALOGUE, installed_file
from parley.cli._checks import Finding, examine
from parley.config.api_keys import KeyFile
from parley.profiles import Profile
from parley.protocol import InboundMessage, SessionSource
from parley.storage.contract import Draft, TurnEnd
from parley.storage.sqlite import SqliteStore
from tests.cli.command import Parley
from tests.servers.certificates import make_certificate
from tests.servers.ports import free_port
from tests.servers.scripted_model import Reply, ScriptedModel

_KEY = "a-key-nobody-may-read-42"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


@pytest.fixture
def profile(home: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A home, and an environment that says nothing of Parley."""
    for name in list(os.environ):
        if name.startswith(("PARLEY_", "GATEWAY_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.setenv("PARLEY_CACHE", str(home.parent / "cache"))
    monkeypatch.setenv("PARLEY_GATEWAY_PORT", "0")
    return Profile("default", home)


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as server:
        yield server


async def _found(profile: Profile, *, offline: bool = True) -> list[Finding]:
    return [one async for group in examine(profile, offline=offline) for one in group]


async def _of(profile: Profile, check: str, *, offline: bool = True) -> list[Finding]:
    return [one for one in await _found(profile, offline=offline) if one.check == check]


def _use(profile: Profile, server: ScriptedModel, **more: str) -> None:
    """Let this server answer."""
    lines = [f"    {name}: {value}" for name, value in more.items()]
    profile.config_file.write_text(
        "model:\n  provider: scripted\nproviders:\n  scripted:\n    model: scripted\n"
        f"    base_url: {server.base_url}\n" + "\n".join(lines) + "\n"
    )


def _mend(profile: Profile, finding: Finding) -> None:
    """Do what the finding says, in a shell."""
    done = Parley(profile.home).shell(finding.mend)
    assert done.returncode == 0, done.stderr


def _snapshot(folder: Path) -> Mapping[str, object]:
    """All that is there, save for the locks through which readers of a database speak."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in (folder, *folder.rglob("*"))
        if not path.name.endswith("-shm")
    }


async def _fill(profile: Profile, *, turns: int = 1) -> None:
    """A database with something in it."""
    store = SqliteStore.open(profile.database_file)
    source = SessionSource("terminal", "main")
    for number in range(turns):
        message = InboundMessage(source, "word " * 200, str(number))
        await store.submit("agent:main:terminal:dm:main", str(number), message)
        claim = (await store.claim("tests", 1, ["terminal"]))[0]
        draft = Draft(f"reply-{number}", source, f"answer {number} \x1b[31m")
        await store.commit(claim, TurnEnd("done", outbox=(draft,)))
    await store.close()


# ── the report ────────────────────────────────────────────────────────────────────────────────


async def test_a_sound_home_passes_and_is_not_changed(
    profile: Profile, model: ScriptedModel
) -> None:
    _use(profile, model)
    profile.env_file.write_text(f"SCRIPTED_API_KEY={_KEY}\n")
    profile.env_file.chmod(0o600)
    await _fill(profile)
    before = _snapshot(profile.home)
    done = await asyncio.to_thread(Parley(profile.home).run, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert {line[0] for line in done.stdout.splitlines() if ": " in line} == {"✓", "!"}
    assert (
        "✓ provider: scripted · scripted answers, with SCRIPTED_API_KEY from .env." in done.stdout
    )
    assert "! gateway: none is running.\n    → parley gateway run\n" in done.stdout
    assert _KEY not in done.stdout
    assert model.total == 1
    assert _snapshot(profile.home) == before


def test_where_there_is_nothing_yet_nothing_is_made(tmp_path: Path) -> None:
    parley = Parley(tmp_path / "home", {"PARLEY_CACHE": str(tmp_path / "cache")})
    report = parley.json("doctor", "--offline", "--json")
    levels = {one["check"]: one["level"] for one in report["checks"]}
    assert levels["home"] == levels["gateway"] == "note"
    assert levels["database"] == levels["config"] == levels["env"] == levels["log"] == "ok"
    assert levels["local model"] == "fault"
    assert (report["ok"], report["faults"]) == (False, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_fault_makes_the_command_fail(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    done = Parley(tmp_path / "home").run("doctor", "--offline")
    assert done.returncode == 1
    assert "✗ home: ~/home is a file, but it must be a directory.\n    → mv " in done.stdout


async def test_a_check_that_breaks_is_one_finding_among_the_others(profile: Profile) -> None:
    class Broken(Profile):
        @property
        def database_file(self) -> Path:
            raise LookupError("no such\nthing")

    found = await _found(Broken("default", profile.home))
    (broken,) = (one for one in found if one.check == "database")
    assert broken.level == "fault"
    assert broken.what == "this check itself broke (LookupError: no such thing)."
    assert any(one.check == "gateway" for one in found)


# ── home and log ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("mode", "level"), [(0o755, "note"), (0o777, "fault"), (0o750, "note")])
async def test_a_home_that_is_not_private_can_be_closed(
    profile: Profile, mode: int, level: str
) -> None:
    profile.home.chmod(mode)
    (found,) = await _of(profile, "home")
    assert found.level == level
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "home")] == ["ok"]


async def test_a_file_in_the_place_of_the_logs_can_be_moved_away(profile: Profile) -> None:
    profile.logs.write_text("x")
    (found,) = await _of(profile, "log")
    assert found.level == "fault"
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "log")] == ["ok"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
async def test_a_home_that_cannot_be_written_can_be_opened(profile: Profile) -> None:
    profile.home.chmod(0o500)
    (found,) = await _of(profile, "home")
    assert found.level == "fault"
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "home")] == ["ok"]


def test_the_advice_for_a_home_that_cannot_be_made_leads_elsewhere(tmp_path: Path) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("")
    parley = Parley(blocked / "home" / ".parley")
    found = next(
        one
        for one in parley.json("doctor", "--offline", "--json")["checks"]
        if one["check"] == "home"
    )
    assert found["level"] == "fault"
    place = parley.shell(f'{found["mend"]} && echo "$PARLEY_HOME"').stdout.strip()
    assert not Path(place).is_relative_to(blocked)
    assert Path(place).parent.is_dir()


# ── settings ──────────────────────────────────────────────────────────────────────────────────


async def test_every_fault_of_the_settings_is_named_with_its_line(profile: Profile) -> None:
    profile.config_file.write_text("gatway:\n  port: 1\ngateway:\n  drain_seconds: soon\n")
    before = _snapshot(profile.home)
    found = await _of(profile, "config")
    assert [one.level for one in found] == ["fault", "fault"]
    assert "did you mean `gateway" in found[0].what
    assert found[1].mend == f'"${{EDITOR:-vi}}" +4 {profile.config_file}'
    (provider,) = await _of(profile, "provider")
    assert provider.level == "note"
    assert _snapshot(profile.home) == before


async def test_a_wrong_variable_can_be_unset(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_GATEWAY_PORT", "many")
    (found,) = await _of(profile, "config")
    assert (found.level, found.mend) == ("fault", "unset PARLEY_GATEWAY_PORT")


async def test_secrets_that_others_may_read_are_a_fault_and_still_count(
    profile: Profile, model: ScriptedModel
) -> None:
    _use(profile, model)
    text = profile.config_file.read_text()
    profile.config_file.write_text(text.replace("  provider: scripted\n", ""))
    profile.env_file.write_text(f"SCRIPTED_API_KEY={_KEY}\nPARLEY_MODEL_PROVIDER=scripted\n")
    profile.env_file.chmod(0o644)
    (found,) = await _of(profile, "env")
    assert found.level == "fault"
    assert profile.env_file.stat().st_mode & 0o777 == 0o644
    (provider,) = await _of(profile, "provider", offline=False)
    assert (provider.level, "SCRIPTED_API_KEY from .env" in provider.what) == ("ok", True)
    assert model.requests[-1].headers["Authorization"] == f"Bearer {_KEY}"
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "env")] == ["ok"]


async def test_a_secret_that_stands_in_the_wrong_place_is_not_shown(profile: Profile) -> None:
    profile.env_file.write_text(f"OPENAI_API_KEY={_KEY}\n")
    profile.env_file.chmod(0o600)
    profile.config_file.write_text(f"gateway:\n  drain_seconds: {_KEY}\n")
    (found,) = await _of(profile, "config")
    assert (found.level, "[redacted]" in found.what, _KEY in found.what) == ("fault", True, False)


async def test_a_line_of_env_that_is_none_is_named(profile: Profile) -> None:
    profile.env_file.write_text("GOOD=1\nnot a variable\n")
    profile.env_file.chmod(0o600)
    (found,) = await _of(profile, "env")
    assert (found.level, "line 2" in found.what) == ("fault", True)
    assert found.mend.endswith(f"+2 {profile.env_file}")
    assert [one.level for one in await _of(profile, "config")] == ["ok"]


# ── database ──────────────────────────────────────────────────────────────────────────────────


async def test_a_file_that_is_no_database_can_be_moved_away(profile: Profile) -> None:
    profile.database_file.write_bytes(b"not a database " * 400)
    profile.database_file.chmod(0o600)
    (found,) = await _of(profile, "database")
    assert found.level == "fault"
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "database")] == ["ok"]


async def test_a_database_of_another_program_is_a_fault(profile: Profile) -> None:
    connection = sqlite3.connect(profile.database_file)
    connection.execute("CREATE TABLE recipe (name TEXT)")
    connection.close()
    profile.database_file.chmod(0o600)
    (found,) = await _of(profile, "database")
    assert (found.level, "something else" in found.what) == ("fault", True)


async def test_a_database_of_a_newer_version_is_a_fault_and_is_left_alone(
    profile: Profile,
) -> None:
    await _fill(profile)
    connection = sqlite3.connect(profile.database_file)
    connection.execute("PRAGMA user_version = 999")
    connection.close()
    before = _snapshot(profile.home)
    (found,) = await _of(profile, "database")
    assert (found.level, "newer Parley (schema 999" in found.what) == ("fault", True)
    assert "git pull" in found.mend
    assert _snapshot(profile.home) == before


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the program sqlite3 is not here")
async def test_a_damaged_database_can_be_recovered(profile: Profile) -> None:
    await _fill(profile, turns=60)
    with profile.database_file.open("r+b") as file:
        file.seek(4096 * 20)
        file.write(b"\xff" * 4096)
    (found,) = await _of(profile, "database")
    assert (found.level, "damaged" in found.what) == ("fault", True)
    _mend(profile, found)
    profile.database_file.chmod(0o600)
    assert {one.level for one in await _of(profile, "database")} <= {"ok", "note"}
    assert profile.database_file.with_name("parley.db.damaged").exists()


async def test_replies_that_nobody_is_sure_of_are_shown(profile: Profile) -> None:
    await _fill(profile, turns=3)
    store = SqliteStore.open(profile.database_file)
    for state in ("unsure", "unsure", "dead"):
        (leased,) = await store.lease_deliveries("terminal", "tests", 1)
        await store.abandon_delivery(leased.id, "dead" if state == "dead" else "unsure", "why")
    await store.close()
    found = [one for one in await _of(profile, "database") if one.level == "note"]
    assert (
        found[0].what == '2 replies may not have arrived, last on terminal main: "answer 1 [31m".'
    )
    assert found[1].what.startswith("1 reply could not be delivered")


async def test_a_database_in_use_is_looked_at_beside_its_user(profile: Profile) -> None:
    await _fill(profile)
    store = SqliteStore.open(profile.database_file)
    (leased,) = await store.lease_deliveries("terminal", "tests", 1)
    await store.abandon_delivery(leased.id, "dead", "why")
    assert profile.database_file.with_name("parley.db-wal").stat().st_size > 0
    assert [one.level for one in await _of(profile, "database")] == ["ok", "note"]
    await store.close()


# ── provider and local model ──────────────────────────────────────────────────────────────────


async def test_offline_asks_nobody(profile: Profile, model: ScriptedModel) -> None:
    _use(profile, model)
    (found,) = await _of(profile, "provider")
    assert (found.level, model.total) == ("ok", 0)


async def test_a_refused_key_can_be_set_again_and_is_never_shown(profile: Profile) -> None:
    def refuse(asked: object) -> Reply:
        body = json.dumps({"error": {"message": f"the key {_KEY} is wrong"}})
        return Reply(status=401, body=body)

    async with ScriptedModel(refuse) as server:
        _use(profile, server)
        profile.env_file.write_text(f"SCRIPTED_API_KEY={_KEY}\n")
        profile.env_file.chmod(0o600)
        (found,) = await _of(profile, "provider", offline=False)
    assert (found.level, found.mend) == ("fault", "parley config set SCRIPTED_API_KEY")
    assert _KEY not in found.what


async def test_a_key_in_the_environment_must_go_before_another_counts(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPTED_API_KEY", _KEY)
    async with ScriptedModel(lambda asked: Reply(status=401, body="{}")) as server:
        _use(profile, server)
        (found,) = await _of(profile, "provider", offline=False)
    assert found.mend == "unset SCRIPTED_API_KEY && parley config set SCRIPTED_API_KEY"


async def test_a_missing_key_is_found_without_a_call(profile: Profile) -> None:
    profile.config_file.write_text("model:\n  provider: openai\n")
    (found,) = await _of(profile, "provider")
    assert (found.level, found.mend) == ("fault", "parley config set OPENAI_API_KEY")


async def test_a_provider_that_is_not_there_is_a_fault_but_a_fallback_only_a_note(
    profile: Profile, model: ScriptedModel
) -> None:
    port = free_port()
    _use(profile, model)
    text = profile.config_file.read_text()
    text += f"  gone:\n    model: x\n    base_url: http://127.0.0.1:{port}/v1\n"
    profile.config_file.write_text(text.replace("scripted\n", "scripted\n  fallback: [gone]\n", 1))
    found = await _of(profile, "provider", offline=False)
    assert [one.level for one in found] == ["ok", "note"]
    profile.config_file.write_text(text.replace("provider: scripted", "provider: gone"))
    (alone,) = await _of(profile, "provider", offline=False)
    assert (alone.level, alone.mend) == ("fault", "parley setup")


async def test_weights_that_are_missing_or_not_whole_can_be_installed(profile: Profile) -> None:
    (missing,) = await _of(profile, "local model")
    assert (missing.level, missing.mend) == ("fault", "parley model install smollm2")
    file = installed_file(CATALOGUE["smollm2"])
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    (part,) = await _of(profile, "local model", offline=False)
    assert (part.level, part.mend) == ("fault", "parley model install smollm2")
    assert part.what == "the weights of smollm2 are not whole."
    with file.open("r+b") as sparse:
        sparse.truncate(CATALOGUE["smollm2"].size)
    (whole,) = await _of(profile, "local model")
    assert whole.level == "ok"


# ── gateway ───────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _listener() -> Iterator[tuple[socket.socket, int]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener, listener.getsockname()[1]


async def test_a_port_in_use_can_be_changed(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARLEY_GATEWAY_PORT")
    with _listener() as (_, port):
        profile.config_file.write_text(f"gateway:\n  port: {port}\n")
        (found,) = await _of(profile, "port")
        assert found.level == "fault"
        assert found.what == f"{port} is in use by another program."
        _mend(profile, found)
        assert [one.level for one in await _of(profile, "port")] == ["ok"]


async def test_a_running_gateway_is_described_and_a_second_one_is_recognised(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    other = tmp_path / "other"
    with Parley(other, {"PARLEY_GATEWAY_PORT": str(port)}).gateway() as gateway:
        (found,) = await _of(Profile("default", other), "gateway")
        assert found.level == "ok"
        assert f"process {gateway.pid}) runs since 20" in found.what
        assert f"api (http://127.0.0.1:{port})" in found.what
        monkeypatch.setenv("PARLEY_GATEWAY_PORT", str(port))
        (used,) = await _of(profile, "port")
        assert (used.level, "a second Parley gateway" in used.what) == ("fault", True)
        assert used.mend.startswith("export PARLEY_GATEWAY_PORT=")

        gateway.send_signal(signal.SIGSTOP)
        (frozen,) = await _of(Profile("default", other), "gateway")
        assert (frozen.level, "does not answer" in frozen.what) == ("fault", True)
        assert frozen.mend == f"kill {gateway.pid} && parley gateway run"
        gateway.kill()
        gateway.wait()
        found, *_ = await _of(Profile("default", other), "gateway")
        assert (found.level, found.mend) == ("note", "parley gateway run")
        assert f"the last one (process {gateway.pid}) was killed" in found.what


async def test_a_gateway_that_lost_its_lock_is_a_fault(tmp_path: Path) -> None:
    parley = Parley(tmp_path / "home")
    with parley.gateway() as gateway:
        (parley.profile.run / "lock").unlink()
        (found,) = await _of(parley.profile, "gateway")
        assert found.level == "fault"
        assert found.mend == f"kill {gateway.pid} && parley gateway run"


async def test_a_surface_that_is_not_served_is_a_fault(tmp_path: Path) -> None:
    with _listener() as (_, port):
        parley = Parley(tmp_path / "home", {"PARLEY_GATEWAY_PORT": str(port)})
        with parley.gateway():
            found = await _of(parley.profile, "gateway")
    assert [one.level for one in found] == ["ok", "fault"]
    assert found[1].what.startswith("api is not served: ")


# ── the API, and a remote agent ───────────────────────────────────────────────────────────────


async def test_an_address_that_others_reach_wants_a_key(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = await _of(profile, "api")
    assert found.level == "ok"
    assert "parley keys local" in found.what
    monkeypatch.setenv("PARLEY_GATEWAY_HOST", "0.0.0.0")
    (found,) = await _of(profile, "api")
    assert found.level == "fault"
    assert found.what == "it is not opened on 0.0.0.0 while there is no key."
    _mend(profile, found)
    (found,) = await _of(profile, "api")
    assert found.level == "fault"
    assert found.what.startswith("HTTP without TLS is not served on 0.0.0.0: set gateway.tls.")
    assert found.mend == "export PARLEY_GATEWAY_HOST=127.0.0.1"
    monkeypatch.setenv("PARLEY_GATEWAY_PUBLIC_URL", "https://agent.example.org")
    (found,) = await _of(profile, "api")
    assert (found.level, found.what) == ("ok", "1 key lets programs in.")


async def test_certificate_files_that_cannot_be_used_are_told(
    profile: Profile, tmp_path: Path
) -> None:
    tls = "gateway:\n  tls:\n    certificate: tls.pem\n    key: tls.key\n"
    profile.config_file.write_text(tls)
    (found,) = await _of(profile, "api")
    assert found.level == "fault"
    assert "tls.pem cannot be read: no such file" in found.what
    make_certificate(profile.home / "tls.pem", profile.home / "tls.key")
    (profile.home / "tls.key").chmod(0o644)
    (found,) = await _of(profile, "api")
    assert found.level == "note"
    _mend(profile, found)
    (found,) = await _of(profile, "api")
    assert found.level == "ok"


async def test_a_key_of_any_profile_opens_the_address_of_a_gateway_for_all(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(profile.home))
    profile.config_file.write_text(
        "gateway:\n  host: 0.0.0.0\n  public_url: https://a.example\n  multiplex_profiles: true\n"
    )
    coder = Profile("coder", profile.home / "profiles" / "coder")
    coder.home.mkdir(parents=True)
    coder.config_file.write_text("")
    assert [one.level for one in await _of(profile, "api")] == ["fault"]
    KeyFile(coder).create("laptop", ["chat"])
    assert [one.level for one in await _of(profile, "api")] == ["ok"]
    profile.config_file.write_text("gateway:\n  host: 0.0.0.0\n")
    assert [one.level for one in await _of(profile, "api")] == ["fault"]


async def test_keys_that_let_nobody_in_are_not_counted(profile: Profile) -> None:
    KeyFile(Profile("before", profile.home)).create("laptop", ["chat"])
    (found,) = await _of(profile, "api")
    assert (found.level, found.mend) == ("note", "parley keys create")
    assert found.what.startswith("no program is let in: ")
    _mend(profile, found)
    (found,) = await _of(profile, "api")
    assert (found.level, found.what) == ("ok", "1 key lets programs in.")


async def test_a_damaged_file_of_keys_can_be_moved_away(profile: Profile) -> None:
    file = KeyFile(profile).path
    file.write_text("{")
    (found,) = await _of(profile, "api")
    assert found.level == "fault"
    assert "api_keys.json is damaged" in found.what
    _mend(profile, found)
    assert [one.level for one in await _of(profile, "api")] == ["ok"]
    assert file.with_name("api_keys.json.old").read_text() == "{"


def _hand_over(profile: Profile, port: int, *, key: str = "") -> None:
    """Let the agent there answer."""
    profile.config_file.write_text(f"gateway:\n  proxy_url: http://127.0.0.1:{port}\n")
    profile.env_file.write_text(f"GATEWAY_PROXY_KEY={key}\n")
    profile.env_file.chmod(0o600)


async def test_a_remote_agent_is_asked_instead_of_the_models(
    profile: Profile, model: ScriptedModel
) -> None:
    _hand_over(profile, model.port, key=_KEY)
    found = {one.check: one for one in await _found(profile, offline=False)}
    assert found["remote agent"].level == "ok"
    assert found["remote agent"].what == (
        f"the agent at http://127.0.0.1:{model.port} answers, with GATEWAY_PROXY_KEY from .env."
    )
    assert found["local model"].what == "is not in use: a remote agent answers."
    assert "provider" not in found
    (offline,) = await _of(profile, "remote agent")
    assert offline.what.endswith("from .env; not asked.")


async def test_a_remote_agent_that_is_not_there_is_a_fault(profile: Profile) -> None:
    port = free_port()
    _hand_over(profile, port)
    (found,) = await _of(profile, "remote agent", offline=False)
    assert (found.level, found.mend) == ("fault", "parley doctor")
    assert found.what.startswith("Proxy connection error: nothing answers at http://127.0.0.1:")
    assert [one.level for one in await _of(profile, "remote agent")] == ["ok"]


async def test_a_remote_agent_that_takes_no_such_key_is_a_fault(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = Parley(tmp_path / "far")
    with far.gateway():
        port = _port_of(far)
        for key, advice in (("", "put the key into"), (_KEY, "check the key in")):
            _hand_over(profile, port, key=key)
            (found,) = await _of(profile, "remote agent", offline=False)
            assert (found.level, found.mend) == ("fault", "parley config set GATEWAY_PROXY_KEY")
            assert found.what.startswith("Proxy error (401): ")
            assert f"{advice} GATEWAY_PROXY_KEY" in found.what
            assert _KEY not in found.what
        monkeypatch.setenv("GATEWAY_PROXY_KEY", _KEY)
        (found,) = await _of(profile, "remote agent", offline=False)
        assert found.mend.startswith("unset GATEWAY_PROXY_KEY && ")
        monkeypatch.setenv("GATEWAY_PROXY_KEY", far.run("keys", "local").stdout.strip())
        (found,) = await _of(profile, "remote agent", offline=False)
        assert found.level == "ok"


def _port_of(parley: Parley) -> int:
    """Where its gateway is."""
    places = parley.json("gateway", "status", "--json")["surfaces"]
    [where] = (place["where"] for place in places if place["platform"] == "api")
    return int(where.rpartition(":")[2])


async def test_a_direct_agent_is_greeted_and_one_that_is_not_named_or_not_there_is_a_fault(
    profile: Profile, tmp_path: Path
) -> None:
    profile.config_file.write_text("backend: direct\n")
    (found,) = await _of(profile, "direct agent", offline=False)
    assert (found.level, found.what) == ("fault", "it is to answer, but nobody is named.")
    assert found.mend.startswith("parley config set direct.url ws://")
    far = Parley(tmp_path / "far")
    with far.gateway():
        where = f"ws://127.0.0.1:{_port_of(far)}"
        profile.config_file.write_text(f"backend: direct\ndirect: {{url: {where}/agent_ws/}}\n")
        (found,) = await _of(profile, "direct agent", offline=False)
        assert (found.level, found.mend) == ("fault", "parley config set AGENT_WS_KEY")
        profile.env_file.write_text(f"AGENT_WS_KEY={far.run('keys', 'local').stdout.strip()}\n")
        profile.env_file.chmod(0o600)
        (found,) = await _of(profile, "direct agent", offline=False)
        assert found.what == f"the agent at {where} answers, with AGENT_WS_KEY from .env."
    (found,) = await _of(profile, "direct agent", offline=False)
    assert found.what.startswith(f"Nothing answers at {where}")
    checks = {one.check: one for one in await _found(profile, offline=True)}
    assert checks["local model"].what == "is not in use: a remote agent answers."
    assert "provider" not in checks


def test_it_is_quick(tmp_path: Path) -> None:
    """Not a time, but what takes it: no surface's library and no model is loaded."""
    script = (
        "import sys; from parley.cli import run\n"
        "try: run(['doctor', '--offline'])\n"
        "except SystemExit: print(*sys.modules)"
    )
    parley = Parley(tmp_path / "home", {"PARLEY_CACHE": str(tmp_path)})
    loaded = parley.execute([sys.executable, "-c", script]).stdout.splitlines()[-1].split()
    assert "parley.cli._checks.rounds" in loaded
    assert not {"aiohttp", "xllamacpp", "prompt_toolkit", "rich"} & set(loaded)
