"""`parley profile import` of files that somebody else made, or that are damaged."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.protocol import ParleyError
from parley.storage.unpack import open_archive
from tests.cli.command import Parley
from tests.cli.profile_homes import named, refused

_MANIFEST = {"format": 1, "name": "coder", "parley": "0", "secrets": False}


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


def _entry(name: str, content: bytes = b"x", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in more.items():
        setattr(info, field, value)
    return info, content


def _forged(
    file: Path, *entries: tuple[tarfile.TarInfo, bytes], manifest: object = _MANIFEST
) -> Path:
    """An archive with these entries, as somebody else may have written it."""
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        written = _entry("parley-profile.json", json.dumps(manifest).encode())
        for info, content in (written, *entries):
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return file


def _entries(archive: bytes) -> bytes:
    """What is in an archive, without the blocks that say it is over."""
    content = gzip.decompress(archive).rstrip(b"\0")
    return content + bytes(-len(content) % 512)


_SOUL = _entry("home/SOUL.md")


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (_entry("/etc/evil"), "a path that leads elsewhere"),
        (_entry("home/../../evil"), "a path that leads elsewhere"),
        (_entry("home/a/./b"), "a path that leads elsewhere"),
        (_entry("home//etc/evil"), "a path that leads elsewhere"),
        (_entry("evil"), "a path that leads elsewhere"),
        (_entry("home"), "an entry that makes no sense"),
        (_entry("home/x", b"", type=tarfile.SYMTYPE, linkname="/etc"), "neither a file nor"),
        (_entry("home/x", b"", type=tarfile.LNKTYPE, linkname="home/SOUL.md"), "neither a file"),
        (_entry("home/x", b"", type=tarfile.FIFOTYPE), "neither a file nor"),
        (_entry("home/x", b"", type=tarfile.CHRTYPE), "neither a file nor"),
        (_entry("home/x", b"", type=tarfile.BLKTYPE), "neither a file nor"),
        (_entry("home/x", b"", type=b"S"), "neither a file nor"),
        (_entry("home/SOUL.md"), "two things of the same name"),
        (_entry("home/SOUL.md/below"), "two things of the same name"),
        (_entry("home/SOUL.md", b"", type=tarfile.DIRTYPE), "two things of the same name"),
        (_entry("home/big", b"", size=17 * 1024**3, type=tarfile.DIRTYPE), "neither a file"),
        (_entry("home/" + "x" * 300), "cannot be made"),
    ],
)
def test_an_archive_that_could_do_harm_is_refused_and_nothing_stays(
    parley: Parley, tmp_path: Path, entry: tuple[tarfile.TarInfo, bytes], told: str
) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL, entry)
    assert told in refused(parley, "import", str(archive))
    assert list((parley.home / "profiles").iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


def _claiming(size: int, kind: bytes) -> bytes:
    """A header that promises `size` bytes, which do not follow."""
    info = tarfile.TarInfo("home/big")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (_claiming(17 * 1024**3, tarfile.REGTYPE), "more than 100,000 files or 16 GiB"),
        (_claiming(3 * 1024**3, tarfile.XHDTYPE), "or it is damaged"),
        (_claiming(3 * 1024**3, tarfile.GNUTYPE_LONGNAME), "or it is damaged"),
        (_claiming(512, tarfile.REGTYPE), "or it is damaged"),
        (b"".join(_claiming(0, tarfile.XHDTYPE) for _ in range(3000)), "or it is damaged"),
        (b"rubbish" * 100, "or it is damaged"),
    ],
)
def test_what_a_header_promises_is_not_believed(
    parley: Parley, tmp_path: Path, tail: bytes, told: str
) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL)
    archive.write_bytes(gzip.compress(_entries(archive.read_bytes()) + tail))
    assert told in refused(parley, "import", str(archive))
    assert list((parley.home / "profiles").iterdir()) == []


def test_a_header_of_nothing_but_size_does_not_fill_the_memory(tmp_path: Path) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL)
    size = 64 * 1024**2
    bomb = _claiming(size, tarfile.XHDTYPE) + bytes(size)
    archive.write_bytes(gzip.compress(_entries(archive.read_bytes()) + bomb, 1))
    del bomb
    tracemalloc.start()
    with pytest.raises(ParleyError, match="or it is damaged"), open_archive(archive) as opened:
        opened.unpack(tmp_path / "out")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < size / 4


def test_too_many_entries_are_refused(parley: Parley, tmp_path: Path) -> None:
    header = tarfile.TarInfo("home/memory")
    header.type = tarfile.DIRTYPE
    archive = _forged(tmp_path / "it.tar.gz", _SOUL)
    many = _entries(archive.read_bytes()) + header.tobuf() * 100_001
    archive.write_bytes(gzip.compress(many, 1))
    assert "more than 100,000 files" in refused(parley, "import", str(archive))
    assert list((parley.home / "profiles").iterdir()) == []


def _blank(file: Path, *sizes: int, folder: str = "home/workspace") -> Path:
    """An archive of files with nothing but zeros in them: a small one that unpacks to much."""
    with gzip.open(file, "wb", 9) as content:
        manifest = json.dumps(_MANIFEST).encode()
        for name, size in (("parley-profile.json", len(manifest)), ("home/SOUL.md", 1)):
            info = tarfile.TarInfo(name)
            info.size = size
            data = manifest if name.endswith(".json") else b"x"
            content.write(info.tobuf() + data + bytes(-len(data) % 512))
        for number, size in enumerate(sizes):
            info = tarfile.TarInfo(f"{folder}/{number}")
            info.size = size
            content.write(info.tobuf(tarfile.GNU_FORMAT))
            for _ in range(size // 1024**2):
                content.write(bytes(1024**2))
        content.write(bytes(1024))
    return file


def test_a_small_file_that_unpacks_to_much_is_refused_early(parley: Parley, tmp_path: Path) -> None:
    archive = _blank(tmp_path / "it.tar.gz", *[32 * 1024**2] * 8)
    assert archive.stat().st_size < 1024**2
    told = refused(parley, "import", str(archive))
    assert "~/it.tar.gz unpacks to more than 100 times its size; nothing was unpacked." in told
    assert list((parley.home / "profiles").iterdir()) == []
    done = parley.run("profile", "import", str(archive), "--max-gb", "1")
    assert done.returncode == 0, done.stderr
    assert (named(parley, "coder").workspace / "7").stat().st_size == 32 * 1024**2


def test_a_bomb_writes_no_more_than_its_allowance(tmp_path: Path) -> None:
    """Each entry is judged by what it says before a byte of it is written."""
    archive = _blank(tmp_path / "it.tar.gz", *[32 * 1024**2] * 8)
    home = tmp_path / "unpacked"
    with pytest.raises(ParleyError, match="100 times"), open_archive(archive) as opened:
        opened.unpack(home)
    written = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    assert written <= 64 * 1024**2 + 100 * archive.stat().st_size


def test_a_tail_of_zeros_is_not_unpacked_either(parley: Parley, tmp_path: Path) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL)
    whole = gzip.decompress(archive.read_bytes())
    with gzip.open(archive, "wb", 9) as content:
        content.write(whole)
        for _ in range(200):
            content.write(bytes(1024**2))
    assert "100 times its size" in refused(parley, "import", str(archive))


def test_what_does_not_fit_on_the_disk_is_refused_before_it_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL, _entry("home/workspace/a", bytes(5_000_000)))
    full = shutil.disk_usage(tmp_path)._replace(free=258 * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with (
        pytest.raises(ParleyError, match="more than the 2 MiB that may be filled"),
        open_archive(archive) as opened,
    ):
        opened.unpack(tmp_path / "unpacked")
    assert not (tmp_path / "unpacked" / "workspace").exists()


_NAMES = st.lists(
    st.sampled_from(["home", "a", "..", ".", "", "\x1b[31m", "ü", "run", "x" * 300, "\udcff", "b"]),
    min_size=1,
    max_size=5,
).map("/".join) | st.text(max_size=30)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(names=st.lists(_NAMES, max_size=4), data=st.data())
def test_no_name_of_an_entry_leads_out_of_the_home(
    tmp_path: Path, names: list[str], data: st.DataObject
) -> None:
    kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
    entries = []
    for name in names:
        kind = data.draw(kinds)
        content = b"x" if kind == tarfile.REGTYPE else b""
        entries.append(_entry(name, content, type=kind, linkname="../../outside"))
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        top = Path(folder)
        (top / "stage").mkdir()
        home = top / "stage" / "home"
        try:
            archive = _forged(top / "it.tar.gz", *entries)
        except (ValueError, UnicodeError):
            return  # no tar holds such a name
        with suppress(ParleyError), open_archive(archive) as opened:
            opened.unpack(home)
        assert {path.name for path in top.iterdir()} == {"stage", "it.tar.gz"}
        assert {path.name for path in (top / "stage").iterdir()} <= {"home"}
        assert not [path for path in home.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"no archive",
        lambda whole: gzip.compress(b"no archive"),
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-4],
        lambda whole: whole[:-8] + b"\0\0\0\0" + whole[-4:],
        lambda whole: gzip.compress(_entries(whole)),
        lambda whole: whole + b"rubbish",
    ],
)
def test_a_file_that_is_no_whole_archive_is_refused(
    parley: Parley, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL, _entry("home/a", os.urandom(5000)))
    archive.write_bytes(damage(archive.read_bytes()))
    told = refused(parley, "import", str(archive))
    assert told == "~/it.tar.gz is not the archive of a profile, or it is damaged."
    assert not list(parley.home.glob("profiles/*"))


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        ([], "or it is damaged"),
        ({"format": 1}, "or it is damaged"),
        ({"format": 1, "name": 5}, "or it is damaged"),
        ({"format": 2, "name": "coder"}, "was made by a newer Parley"),
        ({"format": 1, "name": "../up"}, "cannot be the name of a profile"),
        ({"format": 1, "name": "\x1b[31mred"}, "cannot be the name of a profile"),
        ({"format": 1, "name": "main"}, "that word is taken"),
        ({"format": 1, "name": "coder", "more": "x" * 70_000}, "or it is damaged"),
    ],
)
def test_a_manifest_is_not_believed_either(
    parley: Parley, tmp_path: Path, manifest: object, told: str
) -> None:
    archive = _forged(tmp_path / "it.tar.gz", _SOUL, manifest=manifest)
    sentence = refused(parley, "import", str(archive))
    assert told in sentence
    assert "\x1b" not in sentence
    assert not list(parley.home.glob("profiles/*"))


def test_what_no_archive_of_ours_holds_stays_out(parley: Parley, tmp_path: Path) -> None:
    names = (
        *("run/lock", "parley.db-wal", "profiles/x/SOUL.md", "active_profile"),
        *("quarantine/settings.json", "processes/1/command"),
    )
    entries = [_entry(f"home/{name}") for name in names]
    loose = _entry("home/.env", b"A_KEY=1\n", mode=0o777)
    archive = _forged(tmp_path / "it.tar.gz", *entries, loose)
    assert parley.run("profile", "import", str(archive), "--trust").returncode == 0
    profile = named(parley, "coder")
    found = {item.name for item in profile.home.iterdir()}
    assert found == {".env", "config.yaml", "workspace", "memory", "skills"}
    assert stat.S_IMODE(profile.env_file.stat().st_mode) == 0o600


def test_a_file_that_is_not_there_is_told(parley: Parley, tmp_path: Path) -> None:
    assert refused(parley, "import", str(tmp_path / "no")) == "There is no file ~/no."
    assert refused(parley, "import", str(tmp_path)).endswith("is not a file.")
    assert not parley.home.exists()
