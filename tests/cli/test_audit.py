"""`parley audit`, run as a person or a script runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from parley import audit
from parley.audit.log_files import CURRENT_NAME
from parley.profiles import Profile
from tests.cli.command import Parley


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    made = Parley(tmp_path / "home")
    made.profile.home.mkdir()
    return made


def record(parley: Parley, kind: str, name: str = "default", **data: object) -> None:
    home = parley.profile.home
    profile = parley.profile if name == "default" else Profile(name, home / "profiles" / name)
    audit.record(kind, profile=profile, who="test:me", origin="a test", **data)


@contextmanager
def following(parley: Parley, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "parley", "audit", "--follow", *options]
    process = subprocess.Popen(
        command, env=parley.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_without_a_record_it_says_so(parley: Parley) -> None:
    assert parley.run("audit").stdout == "Nothing is recorded yet.\n"
    done = parley.run("audit", "--verify")
    assert (done.returncode, done.stdout) == (0, "~/home/audit holds no records yet.\n")
    assert not (parley.profile.home / "audit").exists()


def test_the_newest_records_come_last_and_can_be_chosen(parley: Parley) -> None:
    for number in range(5):
        record(parley, "tool.called", number=number, text="a\x1b[31m\u202eb")
    record(parley, "approval.asked", "coder")
    shown = parley.run("audit", "-n", "3").stdout.splitlines()
    for line, part in zip(shown, ("number=3", "number=4", "approval.asked"), strict=True):
        assert part in line
    assert "test:me from a test" in shown[0]
    assert r"text=a\u001b[31m\u202eb" in shown[0]
    assert len(parley.run("audit", "--kind", "tool").stdout.splitlines()) == 5
    assert len(parley.run("audit", "--kind", "tool.called,approval").stdout.splitlines()) == 6
    assert parley.run("audit", "--kind", "appro").stdout == "Nothing is recorded.\n"
    (parley.profile.home / "profiles" / "coder").mkdir(parents=True)
    (parley.profile.home / "profiles" / "coder" / "config.yaml").touch()
    [line] = parley.run("--profile", "coder", "audit", "--json").stdout.splitlines()
    assert json.loads(line)["profile"] == "coder"


def test_since_is_a_span_or_a_date(parley: Parley) -> None:
    record(parley, "tool.called")
    assert "tool.called" in parley.run("audit", "--since", "5m").stdout
    assert "tool.called" in parley.run("audit", "--since", "2020-01-31").stdout
    year = datetime.now().year + 1
    assert "tool.called" not in parley.run("audit", "--since", f"{year}-01-31T09:00").stdout
    done = parley.run("audit", "--since", "yesterday")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("parley: --since wants")


def test_verify_prints_the_head_and_what_it_proves(parley: Parley) -> None:
    for _ in range(3):
        record(parley, "tool.called")
    done = parley.run("audit", "--verify")
    assert done.returncode == 0
    assert "the chain is whole" in done.stdout
    assert "cannot show" in done.stdout
    found = json.loads(parley.run("audit", "--verify", "--json").stdout)
    assert (found["ok"], found["records"], found["last"]) == (True, 3, 3)
    head = found["head"]
    assert f"--head 3:{head}" in done.stdout
    record(parley, "tool.called")
    later = parley.run("audit", "--verify", "--head", head)
    assert later.returncode == 0
    assert "The head that you noted is there" in later.stdout
    wrong = parley.run("audit", "--verify", "--head", "0" * 63 + "1")
    assert wrong.returncode == 1
    assert "the chain is BROKEN" in wrong.stdout
    assert parley.run("audit", "--head", head).returncode == 2


def test_verify_fails_when_a_record_was_changed(parley: Parley) -> None:
    for number in range(3):
        record(parley, "tool.called", number=number)
    file = parley.profile.home / "audit" / CURRENT_NAME
    file.write_bytes(file.read_bytes().replace(b'"number":1', b'"number":7'))
    done = parley.run("audit", "--verify")
    assert done.returncode == 1
    assert "record 2 was changed" in done.stdout
    assert json.loads(parley.run("audit", "--verify", "--json").stdout)["ok"] is False


def test_follow_shows_each_record_as_it_is_written(parley: Parley) -> None:
    record(parley, "tool.called", number=0)
    with following(parley, "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["data"] == {"number": 0}
        for number in range(1, 200):  # more than one part holds
            record(parley, "tool.called", number=number, fill="x" * 2_000)
        seen = [json.loads(process.stdout.readline())["data"]["number"] for _ in range(199)]
        assert seen == list(range(1, 200))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_the_log_is_in_no_export(parley: Parley, tmp_path: Path) -> None:
    parley.profile.config_file.write_text("gateway:\n  port: 0\n")
    record(parley, "tool.called")
    file = tmp_path / "out.tar.gz"
    done = parley.run("profile", "export", "default", str(file))
    assert done.returncode == 0, done.stderr
    with tarfile.open(file) as tar:
        assert not [name for name in tar.getnames() if "audit" in name]


def test_a_reader_that_goes_away_ends_it(parley: Parley) -> None:
    for number in range(100):
        record(parley, "tool.called", number=number)
    with following(parley, "-n", "100") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        record(parley, "tool.called")
        process.wait(timeout=60)
