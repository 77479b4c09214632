"""A model of a hub is found, fetched, checked and kept; what goes wrong is one sentence."""

from __future__ import annotations

import random
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from parley.agent.providers.local.errors import (
    ChecksumError,
    DiskFullError,
    InstallError,
    OfflineError,
)
from parley.agent.providers.local.gguf import GgufError
from parley.agent.providers.local.hub import (
    RECOMMENDED,
    HubReference,
    find_file,
    hub_files,
    install_from_hub,
    parse_reference,
)
from tests.cli.command import Parley
from tests.servers.hub import Hub, hub_server

_HEAD = b"GGUF\x03\0\0\0" + b"\0" * 16
_REPOSITORY = "someone/Good-GGUF"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint + "/")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        content = _HEAD + random.Random(7).randbytes(700_000)
        server.files[_REPOSITORY] = {
            "good-Q8_0.gguf": _HEAD + b"8",
            "good-Q4_K_M.gguf": content,
            "good-Q4_K_M-00001-of-00002.gguf": b"half",
            "mmproj-good.gguf": b"eyes",
        }
        yield server


def _named(text: str) -> HubReference:
    reference = parse_reference(text)
    assert reference is not None
    return reference


def _install(text: str, cache: Path) -> Path:
    return install_from_hub(find_file(_named(text)), cache=cache)


def test_a_repository_gives_its_usual_file_and_the_token_stays_at_home(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.gated, hub.token = {_REPOSITORY}, "hf_secret"
    path = _install(f"hf:{_REPOSITORY}", tmp_path)
    assert path.name == "good-Q4_K_M.gguf"
    assert path.read_bytes() == hub.files[_REPOSITORY][path.name]
    shown = {
        where: {each[2] for each in hub.asked if each[0] == where} for where in ("hub", "storage")
    }
    assert shown == {"hub": {"Bearer hf_secret"}, "storage": {None}}
    assert hub_files(tmp_path) == [(HubReference(_REPOSITORY, path.name), path)]


def test_a_file_can_be_named(hub: Hub, tmp_path: Path) -> None:
    assert _install(f"hf:{_REPOSITORY}/good-Q8_0.gguf", tmp_path).read_bytes() == _HEAD + b"8"


def test_a_second_install_fetches_nothing(hub: Hub, tmp_path: Path) -> None:
    _install(f"hf:{_REPOSITORY}", tmp_path)
    hub.asked.clear()
    _install(f"hf:{_REPOSITORY}", tmp_path)
    assert [where for where, *_ in hub.asked] == ["hub"]


def test_a_download_that_broke_off_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = 300_000
    path = _install(f"hf:{_REPOSITORY}", tmp_path)
    assert path.read_bytes() == hub.files[_REPOSITORY][path.name]
    ranges = [span for where, _, _, span in hub.asked if where == "storage"]
    assert ranges == ["bytes=0-", "bytes=300000-"]


def test_another_checksum_than_the_hub_names_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.wrong_checksum = True
    with pytest.raises(ChecksumError):
        _install(f"hf:{_REPOSITORY}", tmp_path)
    assert hub_files(tmp_path) == []
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    "name",
    [
        "../../../../evil-Q4_K_M.gguf",
        "sub/../../../../../evil-Q4_K_M.gguf",
        "<absolute>/evil-Q4_K_M.gguf",
        "..\\evil-Q4_K_M.gguf",
        "a//evil-Q4_K_M.gguf",
        "\x1b[2Jevil-Q4_K_M.gguf",
    ],
)
def test_a_hub_cannot_choose_a_place_outside_of_the_repository(
    hub: Hub, tmp_path: Path, name: str
) -> None:
    name = name.replace("<absolute>", str(tmp_path))
    hub.files["someone/evil"] = {name: _HEAD, "plain-Q8_0.gguf": _HEAD + b"8"}
    cache = tmp_path / "a" / "b" / "cache"
    cache.mkdir(parents=True)
    path = _install("hf:someone/evil", cache)
    assert path == cache / "models" / "hf" / "someone" / "evil" / "plain-Q8_0.gguf"
    assert list(tmp_path.rglob("*evil-Q4*")) == []
    with pytest.raises(InstallError) as caught:
        find_file(HubReference("someone/evil", name))
    assert "\x1b" not in str(caught.value).replace(name, "")


def test_what_is_no_gguf_is_removed(hub: Hub, tmp_path: Path) -> None:
    hub.files["someone/odd"] = {"odd.gguf": b"PK\x03\x04 no weights"}
    with pytest.raises(GgufError):
        _install("hf:someone/odd", tmp_path)
    assert hub_files(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:someone/nothing", "There is no repository someone/nothing on the hub"),
        (f"hf:{_REPOSITORY}/no.gguf", "There is no file no.gguf in someone/Good-GGUF; its GGUF"),
        ("hf:someone/gated", "set HF_TOKEN"),
        ("hf:someone/text", "no whole GGUF file"),
        ("hf:../../etc", "names no model of the hub"),
        ("hf:someone", "names no model of the hub"),
        ("hf:someone/Good-GGUF/../x.gguf", "names no model of the hub"),
    ],
)
def test_what_goes_wrong_is_one_sentence(hub: Hub, tmp_path: Path, name: str, said: str) -> None:
    hub.files["someone/text"] = {}
    hub.gated.add("someone/gated")
    with pytest.raises(InstallError, match=said):
        _install(name, tmp_path)


def test_a_hub_that_cannot_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(OfflineError, match="The hub cannot be reached"):
        find_file(_named("hf:a/b"))
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    with pytest.raises(InstallError, match="HF_ENDPOINT must be"):
        find_file(_named("hf:a/b"))


def test_a_full_disk_is_said_before_anything_is_fetched(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 1000))
    with pytest.raises(DiskFullError):
        _install(f"hf:{_REPOSITORY}", tmp_path)
    assert [where for where, *_ in hub.asked] == ["hub"]


def test_the_command_installs_lists_uses_and_removes(hub: Hub, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    more = {"PARLEY_CACHE": str(tmp_path / "cache"), "HF_ENDPOINT": hub.endpoint}
    parley = Parley(tmp_path / "home", more)
    name = f"hf:{_REPOSITORY}/good-Q4_K_M.gguf"
    done = parley.run("model", "install", f"hf:{_REPOSITORY}")
    assert done.returncode == 0, done.stderr
    assert "Installing good-Q4_K_M.gguf" in done.stderr
    assert parley.shell(done.stdout.rpartition("answer: ")[2]).returncode == 0
    rows = parley.json("model", "list", "--json")
    assert next(row["title"] for row in rows if row["in_use"]).endswith("good-Q4_K_M.gguf")
    listed = parley.run("model", "list").stdout
    assert all(one.reference in listed for one in RECOMMENDED)
    assert parley.run("model", "remove", name, "--yes").stdout == f"{name} is removed.\n"
    assert "is not installed" in parley.run("model", "remove", name, "--yes").stderr


def test_three_models_are_recommended_by_memory() -> None:
    assert [one.memory_gb for one in RECOMMENDED] == [4, 8, 16]
    assert all(parse_reference(one.reference) for one in RECOMMENDED)
