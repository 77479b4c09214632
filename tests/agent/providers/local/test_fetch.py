"""Downloads go on where they stopped, and only the right bytes are kept."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from parley.agent.providers.local.errors import ChecksumError, OfflineError
from parley.agent.providers.local.fetch import DirectFetchError, fetch
from parley.agent.providers.local.locate import Wheel
from tests.agent.providers.local.file_server import FileServer

BODY = random.Random(1).randbytes(1_000_000)
SHA = hashlib.sha256(BODY).hexdigest()


def _wheel(files: FileServer) -> Wheel:
    files.files["a.whl"] = BODY
    return Wheel(files.url("a.whl"), SHA)


def _fetch(wheel: Wheel, part: Path) -> list[int]:
    sizes: list[int] = []
    fetch(wheel, part, on_bytes=sizes.append, pause=0.001)
    return sizes


def test_a_file_is_fetched_and_its_progress_told(files: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    sizes = _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(BODY)


def test_a_cut_connection_is_taken_up_again_at_the_byte_it_stopped(
    files: FileServer, tmp_path: Path
) -> None:
    part = tmp_path / "a.part"
    files.cut_after, files.cuts = 150_000, 4
    _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY
    assert [asked for _, asked in files.asked] == [
        f"bytes={n}-" for n in (0, 150_000, 300_000, 450_000, 600_000)
    ]
    assert files.sent == len(BODY)


def test_what_an_earlier_process_left_is_not_fetched_again(
    files: FileServer, tmp_path: Path
) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(BODY[:700_000])
    _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY
    assert files.sent == 300_000


def test_a_file_that_was_complete_costs_no_download(files: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(BODY)
    _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY
    assert files.sent == 0


def test_a_leftover_longer_than_the_file_is_thrown_away(files: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(BODY + b"more")
    _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY


def test_a_server_without_ranges_sends_all_of_it_again(files: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(b"x" * 5000)
    files.knows_ranges = False
    _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY


def test_wrong_bytes_are_removed_and_said(files: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(b"wrong")
    with pytest.raises(ChecksumError, match=r"a\.part had a wrong checksum and was removed"):
        _fetch(_wheel(files), part)
    assert not part.exists()


def test_a_connection_that_always_breaks_gives_up_and_keeps_what_came(
    files: FileServer, tmp_path: Path
) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(BODY[:1000])
    files.cut_after, files.cuts = 0, 1000
    with pytest.raises(OfflineError, match="it goes on where it stopped"):
        _fetch(_wheel(files), part)
    assert part.read_bytes() == BODY[:1000]


def test_a_refusal_is_not_mistaken_for_being_offline(files: FileServer, tmp_path: Path) -> None:
    files.refuse = 403
    with pytest.raises(DirectFetchError, match="403"):
        _fetch(_wheel(files), tmp_path / "a.part")


def test_nobody_at_the_address_is_being_offline(files: FileServer, tmp_path: Path) -> None:
    with pytest.raises(OfflineError):
        _fetch(Wheel("http://127.0.0.1:9/a.whl", SHA), tmp_path / "a.part")


def test_a_file_address_is_read_from_where_it_stopped(tmp_path: Path) -> None:
    source, part = tmp_path / "with space.whl", tmp_path / "a.part"
    source.write_bytes(BODY)
    part.write_bytes(BODY[:400_000])
    sizes = _fetch(Wheel(source.as_uri(), SHA), part)
    assert part.read_bytes() == BODY
    assert sizes[0] == 400_000
