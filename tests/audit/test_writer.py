"""Recording: what it costs, what is struck out, floods, and a log that cannot be written."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from parley import audit
from parley.audit.chain import AuditRecord
from parley.audit.log_files import CURRENT_NAME, audit_lock
from parley.audit.verify import verify_log
from parley.config.settings import AuditSettings
from parley.profiles import Profile, profile_scope
from tests.audit.logs import records_of
from tests.waiting import until


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    home = tmp_path / "home"
    home.mkdir()
    return Profile("default", home)


def records(profile: Profile) -> list[AuditRecord]:
    folder = audit.audit_folder(profile)
    return records_of(folder) if folder.exists() else []


def test_a_record_outside_of_an_event_loop_is_written_at_once(profile: Profile) -> None:
    before = threading.active_count()
    with profile_scope(profile):
        audit.record("setting.changed", names=["gateway.port"], nothing=None)
    [found] = records(profile)
    assert found.fields["who"].startswith("local:")
    assert found.fields["from"] == "this machine"
    assert (found.profile, found.data) == ("default", {"names": ["gateway.port"]})
    assert threading.active_count() == before


def test_without_a_profile_nothing_is_recorded(tmp_path: Path) -> None:
    audit.record("setting.changed")
    assert list(tmp_path.iterdir()) == []


def test_a_named_profile_is_recorded_in_the_log_of_its_house(tmp_path: Path) -> None:
    named = Profile("coder", tmp_path / "profiles" / "coder")
    named.home.mkdir(parents=True)
    audit.record("profile.created", profile=named)
    [found] = records_of(tmp_path / "audit")
    assert found.profile == "coder"
    assert audit.audit_folder(Profile("default", Path("/srv/profiles/me"))) == Path(
        "/srv/profiles/me/audit"
    )


async def test_a_record_on_the_event_loop_waits_for_nothing(profile: Profile) -> None:
    folder = audit.audit_folder(profile)
    with audit_lock(folder):
        with profile_scope(profile):
            for number in range(100):
                audit.record("tool.called", who="test:me", number=number)
        assert not (folder / CURRENT_NAME).exists()
    await until(lambda: len(records(profile)) == 100)
    assert [record.data["number"] for record in records(profile)] == list(range(100))


async def test_a_durable_record_is_on_the_disk_when_it_returns(profile: Profile) -> None:
    audit.record("tool.called", who="test:me", profile=profile)
    assert await audit.record_durably("approval.used", who="test:me", profile=profile) == ""
    assert [record.kind for record in records(profile)] == ["tool.called", "approval.used"]


async def test_a_flood_is_counted_and_keeps_nothing_else_out(profile: Profile) -> None:
    for number in range(20_000):
        address = f"192.0.2.{number % 200}"
        audit.count("key.refused", address, profile=profile, origin=address)
    audit.record("tool.called", who="test:me", profile=profile)
    await asyncio.to_thread(audit.flush)
    found = records(profile)
    assert len(found) < 80
    refused = [record for record in found if record.kind == "key.refused"]
    assert sum(record.data.get("times", 1) for record in refused) == 20_000
    assert {record.fields["from"] for record in refused} >= {"192.0.2.0", "others"}
    assert sum(record.kind == "tool.called" for record in found) == 1


async def test_more_than_the_queue_holds_is_dropped_and_said(profile: Profile) -> None:
    with audit_lock(audit.audit_folder(profile)):
        for number in range(6_000):
            audit.record("tool.called", who="test:me", profile=profile, number=number)
    await until(lambda: any(record.kind == "audit.lost" for record in records(profile)))
    await asyncio.to_thread(audit.flush)
    found = records(profile)
    lost = sum(record.data["records"] for record in found if record.kind == "audit.lost")
    assert lost + sum(record.kind == "tool.called" for record in found) == 6_000
    verdict = verify_log(audit.audit_folder(profile))
    assert verdict.ok
    assert "could not be written" in verdict.notes[0]


async def test_a_log_that_cannot_be_written_is_said_and_written_later(
    profile: Profile, caplog: pytest.LogCaptureFixture
) -> None:
    folder = audit.audit_folder(profile)
    folder.write_text("in the way")
    audit.configure(profile.home, AuditSettings())
    assert await audit.record_durably("approval.used", who="test:me", profile=profile) == ""
    assert audit.fault_of(profile) is not None
    assert [each.levelname for each in caplog.records if each.name == "parley.audit"] == ["ERROR"]
    folder.unlink()
    await until(lambda: audit.fault_of(profile) is None)
    assert [record.kind for record in records(profile)] == ["approval.used"]


async def test_where_the_settings_say_so_nothing_is_done_that_cannot_be_recorded(
    profile: Profile,
) -> None:
    folder = audit.audit_folder(profile)
    folder.write_text("in the way")
    audit.configure(profile.home, AuditSettings(on_failure="refuse"))
    refusal = await audit.record_durably("approval.used", who="test:me", profile=profile)
    assert refusal.startswith("This was not done")
    folder.unlink()
    assert await audit.record_durably("approval.asked", who="test:me", profile=profile) == ""
    assert [record.kind for record in records(profile)] == ["approval.asked"]


async def test_secrets_are_struck_out_by_value_and_by_shape(profile: Profile) -> None:
    profile.env_file.write_text("SMTP_WORD=canary-in-env-1\n")
    audit.record(
        "tool.called",
        who="test:me",
        origin="canary-in-env-1",
        profile=profile,
        command="curl -H 'Authorization: Bearer canary-by-shape' https://u:canary-in-url@host/",
        arguments={"api_key": "canary-by-name", "text": "say canary-in-env-1"},
        deep=[{"password": "canary-deep"}],
    )
    await asyncio.to_thread(audit.flush)
    profile.env_file.write_text("SMTP_WORD=canary-in-env-2-set-later\n")
    audit.record("tool.called", profile=profile, text="canary-in-env-2-set-later")
    await asyncio.to_thread(audit.flush)
    text = (audit.audit_folder(profile) / CURRENT_NAME).read_text()
    assert "canary" not in text
    assert text.count("[redacted]") >= 7


async def test_the_secrets_of_other_profiles_are_struck_out_too(profile: Profile) -> None:
    other = profile.home / "profiles" / "other"
    other.mkdir(parents=True)
    (other / ".env").write_text("MAIL_PASSWORD=canary-of-another\n")
    audit.record("tool.called", who="test:me", profile=profile, text="echo canary-of-another")
    await asyncio.to_thread(audit.flush)
    assert "canary" not in (audit.audit_folder(profile) / CURRENT_NAME).read_text()


def test_what_a_process_recorded_is_written_when_it_ends(profile: Profile) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from parley import audit
from parley.profiles import Profile

async def main():
    for number in range(500):
        audit.record("test.made", who="test:me", profile=Profile("default", Path(sys.argv[1])))

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program, str(profile.home)], check=True)
    assert len(records(profile)) == 500


def test_nothing_is_imported_before_it_is_used() -> None:
    program = """
import sys, json
import parley.audit
ours = [name for name in sys.modules if name.startswith("parley.")]
print(json.dumps([ours, "pydantic" in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    ours, pydantic = json.loads(done.stdout)
    assert not any(name.startswith(("parley.audit.", "parley.config")) for name in ours)
    assert not pydantic
