"""The files of the audit log: many writers, kills, full disks, and retention."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from parley.audit.log_files import (
    CURRENT_NAME,
    AuditFiles,
    AuditLimits,
    audit_lock,
    old_parts,
    read_head,
    stamp,
)
from parley.audit.verify import verify_log
from tests.audit.logs import ROOMY, SMALL, entry, kill, lines_of, made_log, records_of, start_writer


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 2)
    (folder / CURRENT_NAME).chmod(0o644)
    AuditFiles(folder, lambda: ROOMY).append([entry("test.more")])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {CURRENT_NAME: 0o600, "head": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fill", [0, 2_000], ids=["one part", "many parts"])
def test_processes_append_at_the_same_time_and_the_chain_is_one(tmp_path: Path, fill: int) -> None:
    folder = tmp_path / "audit"
    count = 150
    writers = [start_writer(folder, f"test.{n}", count=count, fill=fill) for n in range(4)]
    for writer in writers:
        assert writer.wait(timeout=120) == 0
        assert writer.stdout is not None
        writer.stdout.close()
    verdict = verify_log(folder)
    assert verdict.findings == []
    assert verdict.notes == []
    orders: dict[str, list[int]] = defaultdict(list)
    for record in records_of(folder):
        if record.kind.startswith("test."):
            orders[record.kind].append(record.data["number"])
    if fill == 0:
        assert {len(order) for order in orders.values()} == {count}
    else:
        assert verdict.dropped_through > 0
    for order in orders.values():
        assert order == list(range(order[0], order[-1] + 1))


@pytest.mark.timeout(300)
def test_a_kill_loses_nothing_that_was_said_to_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    said: dict[str, int] = {}
    for number in range(8):
        writer = start_writer(folder, f"test.{number}")
        other = start_writer(folder, f"test.other{number}")
        time.sleep(0.02 * number)  # each is killed somewhere else in its work
        said[f"test.{number}"] = kill(writer)
        said[f"test.other{number}"] = kill(other)
    AuditFiles(folder, lambda: ROOMY).append([entry("test.end")])
    assert verify_log(folder).findings == []
    written: dict[str, int] = defaultdict(int)
    for record in records_of(folder):
        written[record.kind] += 1
    assert all(written[kind] >= count for kind, count in said.items())


_TORN = """
import resource, signal, sys
from pathlib import Path
from tests.audit.logs import ROOMY, entry
from parley.audit.log_files import AuditFiles
files = AuditFiles(Path(sys.argv[1]), lambda: ROOMY)
files.append([entry("test.whole")])
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
files.append([entry("test.torn", fill="x" * 5000)])
"""


def test_a_line_torn_by_a_kill_is_repaired_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    # The file may grow to so many bytes: the kernel writes that part of the line, and then kills.
    done = subprocess.run([sys.executable, "-c", _TORN, str(folder), "2000"])
    assert done.returncode == -signal.SIGXFSZ
    torn = (folder / CURRENT_NAME).read_bytes()
    assert len(torn) == 2000
    assert not torn.endswith(b"\n")
    before = verify_log(folder)
    assert before.ok
    assert "the last line is torn" in before.notes[0]
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    assert [record.kind for record in records_of(folder)] == [
        "test.whole",
        "audit.repaired",
        "test.later",
    ]
    after = verify_log(folder)
    assert after.findings == []
    assert "torn by a kill" in after.notes[0]


def test_a_log_whose_first_line_was_torn_begins_again(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 1)
    (folder / CURRENT_NAME).write_bytes(b'{"n":1,"at":"2026')
    (folder / "head").unlink()
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    assert [record.number for record in records_of(folder)] == [1, 2]
    assert verify_log(folder).ok


def test_a_line_that_was_known_to_be_whole_is_not_repaired_away(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 3)
    file = folder / CURRENT_NAME
    file.write_bytes(file.read_bytes()[:-20])
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    assert b'"number":2' in lines_of(folder)[2]
    assert not verify_log(folder).ok


_FULL = """
import resource, sys
from pathlib import Path
from tests.audit.logs import ROOMY, entry
from parley.audit.log_files import AuditFiles
files = AuditFiles(Path(sys.argv[1]), lambda: ROOMY)
files.append([entry("test.whole")])
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    files.append([entry("test.small"), entry("test.large", fill="x" * 5000)])
except OSError as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
files.append([entry("test.later")])
"""


def test_what_does_not_fit_on_the_disk_leaves_no_part_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(folder)], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"{errno.EFBIG}\n"
    assert [record.kind for record in records_of(folder)] == ["test.whole", "test.later"]
    verdict = verify_log(folder)
    assert (verdict.findings, verdict.notes) == ([], [])


def test_old_parts_are_dropped_and_the_rest_can_still_be_checked(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 400, SMALL, fill=2_000)
    held = sum(path.stat().st_size for path in folder.iterdir())
    assert held <= SMALL.size + SMALL.part_size
    assert len(old_parts(folder)) >= 2
    verdict = verify_log(folder)
    assert verdict.findings == []
    assert verdict.dropped_through > 100
    assert verdict.first == verdict.dropped_through + 1
    noted = records_of(folder)[3]
    assert verify_log(folder, noted=noted.hash).noted_at == noted.at
    early = verify_log(folder, noted=f"5:{'a' * 64}")
    assert "dropped by retention" in early.findings[0]


def test_dropping_a_part_by_hand_is_no_retention(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 400, SMALL, fill=2_000)
    old_parts(folder)[0].unlink()
    assert any("no anchor" in each for each in verify_log(folder).findings)
    folder = made_log(tmp_path / "other", 200, SMALL, fill=2_000)
    old_parts(folder)[1].unlink()
    assert any("are missing before" in each for each in verify_log(folder).findings)


def test_records_go_when_they_are_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "audit"
    files = AuditFiles(folder, lambda: AuditLimits(64 * 1024 * 1024, 30))
    now = time.time()
    for days in (100, 60, 31, 10, 1, 0):
        moment = now - days * 86_400
        clock = SimpleNamespace(
            time=lambda moment=moment: moment, monotonic=time.monotonic, sleep=time.sleep
        )
        monkeypatch.setattr("parley.audit.log_files.time", clock)
        files.append([entry("test.old", days=days) | {"at": stamp(moment)}])
    left = [record.data["days"] for record in records_of(folder) if "days" in record.data]
    assert left == [10, 1, 0]
    assert verify_log(folder).findings == []


def test_a_part_that_is_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 40, SMALL, fill=2_000)
    first = records_of(folder)[-1].number - len((folder / CURRENT_NAME).read_bytes().splitlines())
    planted = folder / f"audit-{first + 1:012d}.jsonl"
    planted.write_text("planted\n")
    made_log(tmp_path, 40, SMALL, fill=2_000)
    assert planted.read_text() == "planted\n"


def test_a_link_in_the_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / "home" / "audit").mkdir(parents=True)
    (tmp_path / "home" / "audit" / CURRENT_NAME).symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        AuditFiles(tmp_path / "home" / "audit", lambda: ROOMY).append([entry("test.made")])
    assert target.read_text() == ""


def test_a_lock_that_is_held_for_too_long_is_an_error_and_no_wait_for_ever(tmp_path: Path) -> None:
    with audit_lock(tmp_path / "audit"), pytest.raises(TimeoutError, match="holds the lock"):  # noqa: SIM117
        with audit_lock(tmp_path / "audit", patience=0.05):
            pass


def test_a_home_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditFiles(tmp_path / "gone" / "audit", lambda: ROOMY).append([entry("test.made")])
    assert not (tmp_path / "gone").exists()


def test_a_missing_note_of_the_head_is_made_again_and_said(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 3)
    (folder / "head").unlink()
    assert "`head` is missing" in verify_log(folder).notes[0]
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    assert read_head(folder).number == 5
    assert verify_log(folder).ok
    assert records_of(folder)[3].kind == "audit.repaired"


def test_the_log_keeps_no_file_open_for_a_child(tmp_path: Path) -> None:
    files = AuditFiles(tmp_path / "audit", lambda: ROOMY)
    files.append([entry("test.made")])
    ours = [
        int(fd)
        for fd in os.listdir("/proc/self/fd")  # noqa: PTH208
        if _target(fd).startswith(str(tmp_path))
    ]
    assert len(ours) == 1
    assert not os.get_inheritable(ours[0])
    files.close()


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
    except OSError:
        return ""
