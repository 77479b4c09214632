"""The chain: what is written is read back, and no change to it goes unseen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.audit.chain import GENESIS, LONGEST_LINE, parse_record, seal_record
from parley.audit.log_files import CURRENT_NAME, AuditFiles, old_parts
from parley.audit.reading import RecordFilter, newest_records
from parley.audit.verify import verify_log
from tests.audit.logs import ROOMY, SMALL, entry, lines_of, made_log

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(data=st.dictionaries(st.text(), _PLAIN, max_size=6), number=st.integers(1, 10**15))
def test_a_record_says_when_read_what_was_written(data: dict[str, object], number: int) -> None:
    line, digest = seal_record(number, GENESIS, entry("test.kind", **{"held": data}))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = parse_record(line[:-1])
    assert found is not None
    assert found.intact
    assert (found.number, found.hash, found.previous) == (number, digest, GENESIS)
    assert found.data == {"held": data}
    assert all(32 <= byte < 127 for byte in line[:-1])


def test_a_record_of_any_size_fits_a_line() -> None:
    line, _ = seal_record(7, GENESIS, entry("test.kind", text="é" * 1_000_000))
    assert len(line) <= LONGEST_LINE
    found = parse_record(line[:-1])
    assert found is not None
    assert found.intact
    assert found.data["bytes"] > 1_000_000


@settings(max_examples=60)
@given(data=st.data())
def test_every_single_change_of_a_log_is_found(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = made_log(Path(home), data.draw(st.integers(1, 12)))
        file = folder / CURRENT_NAME
        content = bytearray(file.read_bytes())
        match data.draw(st.sampled_from(["change", "remove", "add", "cut"])):
            case "change":
                at = data.draw(st.integers(0, len(content) - 1))
                content[at] ^= data.draw(st.integers(1, 255))
            case "remove":
                at = data.draw(st.integers(0, len(content) - 1))
                # The last line without its line break is torn, as by a kill, and is lost anyway.
                del content[at : at + data.draw(st.integers(1, 2_000))]
            case "add":
                at = data.draw(st.integers(0, len(content) - 1))
                content[at:at] = data.draw(st.binary(min_size=1, max_size=50))
            case "cut":
                del content[data.draw(st.integers(0, len(content) - 1)) :]
        file.write_bytes(content)
        assert not verify_log(folder).ok
        # And it is still found once more was written behind it.
        AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
        assert not verify_log(folder).ok


def _swap(lines: list[bytes]) -> None:
    lines[3], lines[4] = lines[4], lines[3]


def _remove(lines: list[bytes]) -> None:
    del lines[4]


def _remove_first(lines: list[bytes]) -> None:
    del lines[0]


def _cut_off(lines: list[bytes]) -> None:
    del lines[-2:]


def _repeat(lines: list[bytes]) -> None:
    lines.insert(5, lines[4])


def _change(lines: list[bytes]) -> None:
    lines[4] = lines[4].replace(b'"number":4', b'"number":9')


def _change_and_seal(lines: list[bytes]) -> None:
    found = parse_record(lines[4])
    assert found is not None
    lines[4] = seal_record(5, found.previous, entry("test.forged"))[0][:-1]


def _change_the_last_and_seal(lines: list[bytes]) -> None:
    found = parse_record(lines[-1])
    assert found is not None
    lines[-1] = seal_record(found.number, found.previous, entry("test.forged"))[0][:-1]


def _insert_sealed(lines: list[bytes]) -> None:
    found = parse_record(lines[4])
    assert found is not None
    lines.insert(5, seal_record(6, found.hash, entry("test.forged"))[0][:-1])


def _insert_words(lines: list[bytes]) -> None:
    lines.insert(5, b"nothing to see here")


def _empty(lines: list[bytes]) -> None:
    lines.clear()


@pytest.mark.parametrize(
    ("tamper", "told"),
    [
        (_change, "record 5 was changed"),
        (_change_and_seal, "does not follow on record 5"),
        (_change_the_last_and_seal, "the last one, is not the one that was written"),
        (_remove, "record 5 is missing before record 6"),
        (_remove_first, "missing at the beginning, and no anchor"),
        (_cut_off, "Records 9 to 10 are missing at the end"),
        (_empty, "Records 1 to 10 are missing at the end"),
        (_swap, "stands behind record 5"),
        (_repeat, "stands behind record 5"),
        (_insert_sealed, "stands behind record 6"),
        (_insert_words, "this is no record"),
    ],
)
def test_tampering_is_told_in_words(
    tamper: Callable[[list[bytes]], None], told: str, tmp_path: Path
) -> None:
    folder = made_log(tmp_path, 10)
    assert verify_log(folder).ok
    lines = lines_of(folder)
    tamper(lines)
    (folder / CURRENT_NAME).write_bytes(b"".join(line + b"\n" for line in lines))
    verdict = verify_log(folder)
    assert any(told in finding for finding in verdict.findings), verdict.findings


@pytest.mark.parametrize("junk", [65_536, 10])
def test_what_has_no_line_break_is_found_and_not_shown(junk: int, tmp_path: Path) -> None:
    folder = made_log(tmp_path, 10)
    lines = lines_of(folder)
    forged = seal_record(5, "0" * 64, entry("test.forged"))[0][:-1]
    filled = forged + b" " * (junk - len(forged))
    body = b"".join(line + b"\n" for line in lines[:4]) + filled
    body += b"".join(line + b"\n" for line in lines[4:])
    (folder / CURRENT_NAME).write_bytes(body)
    verdict = verify_log(folder)
    assert any("no record" in each or "was changed" in each for each in verdict.findings)
    shown = newest_records(folder, RecordFilter(), 100)
    assert "test.forged" not in {record.kind for record in shown}


def test_a_record_behind_an_old_part_is_found_and_not_shown(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 40, SMALL, fill=10_000)
    [oldest, *_] = old_parts(folder)
    forged = seal_record(99, "0" * 64, entry("test.forged"))[0][:-1]
    with oldest.open("ab") as part:
        part.write(forged)
    verdict = verify_log(folder)
    assert any("it was added" in each for each in verdict.findings), verdict.findings
    shown = newest_records(folder, RecordFilter(), 100)
    assert "test.forged" not in {record.kind for record in shown}


def test_what_was_cut_off_stays_known_when_more_is_written(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 10)
    lines = lines_of(folder)
    (folder / CURRENT_NAME).write_bytes(b"".join(line + b"\n" for line in lines[:-3]))
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    verdict = verify_log(folder)
    assert any("records 8 to 10 are missing before record 11" in each for each in verdict.findings)
    assert any("the log ended at record 7" in each for each in verdict.findings)


def test_a_chain_written_anew_is_found_by_a_head_noted_elsewhere(tmp_path: Path) -> None:
    folder = made_log(tmp_path / "first", 10)
    noted = verify_log(folder).head
    AuditFiles(folder, lambda: ROOMY).append([entry("test.later")])
    assert verify_log(folder, noted=noted.hash).ok
    assert verify_log(folder, noted=f"{noted.number}:{noted.hash}").noted_at
    forged = made_log(tmp_path / "second", 11)
    assert verify_log(forged).ok
    verdict = verify_log(forged, noted=noted.hash)
    assert any("the log was rewritten since" in each for each in verdict.findings)


def test_a_head_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = made_log(tmp_path, 1)
    assert "64 digits" in verify_log(folder, noted="latest").findings[0]
