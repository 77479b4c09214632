"""What runs local models is fetched into the cache, also where the environment has no pip."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from parley.agent.providers.local.child import Answer, Load
from parley.agent.providers.local.errors import ChecksumError, InstallError
from parley.agent.providers.local.locate import Wheel
from parley.agent.providers.local.runtime import RUNTIME, runtime_directory, unpacked_runtime
from parley.agent.providers.local.runtime_install import install_runtime
from parley.agent.providers.local.weights import Piece
from tests.agent.providers.local.file_server import FileServer
from tests.bare_environment import BareEnvironment

_CODE = "raise RuntimeError('the unpacked runtime was imported')"


def _wheel(members: dict[str, str] | None = None, *, tag: str = "py3-none-any") -> bytes:
    info = f"{RUNTIME.package}-{RUNTIME.version}.dist-info"
    parts = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {RUNTIME.package}\nVersion: {RUNTIME.version}\n"
        ),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in (members or {f"{RUNTIME.package}/__init__.py": _CODE} | parts).items():
            archive.writestr(name, text)
    return buffer.getvalue()


class _Index:
    """Offers `content` as the runtime's wheel."""

    def __init__(self, files: FileServer, content: bytes, *, sha256: str | None = None) -> None:
        files.files["runtime.whl"] = content
        self._wheel = Wheel(files.url("runtime.whl"), sha256 or hashlib.sha256(content).hexdigest())
        self.asked: list[Piece] = []

    def __call__(self, pieces: Sequence[Piece]) -> list[Wheel]:
        self.asked += pieces
        return [self._wheel for _ in pieces]


def test_it_is_unpacked_into_the_cache_once(files: FileServer, tmp_path: Path) -> None:
    index = _Index(files, _wheel())
    assert unpacked_runtime(tmp_path) is None
    install_runtime(cache=tmp_path, locate=index)
    install_runtime(cache=tmp_path, locate=index)
    assert index.asked == [RUNTIME]
    unpacked = unpacked_runtime(tmp_path)
    assert unpacked == runtime_directory(tmp_path)
    assert unpacked is not None
    assert (unpacked / "xllamacpp" / "__init__.py").read_text() == _CODE
    assert [p.name for p in (tmp_path / "downloads").iterdir()] == ["runtime.lock"]
    assert [p.name for p in unpacked.parent.iterdir()] == [unpacked.name]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no zip at all", "was damaged and was removed"),
        (_wheel({"xllamacpp/../../../evil.py": ""}), "is not safe"),
        (_wheel({"other/__init__.py": ""}), "does not hold what it should"),
    ],
)
def test_a_bad_wheel_leaves_nothing_behind(
    files: FileServer, tmp_path: Path, content: bytes, said: str
) -> None:
    with pytest.raises(InstallError, match=said):
        install_runtime(cache=tmp_path, locate=_Index(files, content))
    assert unpacked_runtime(tmp_path) is None
    assert not list(tmp_path.rglob("evil.py"))


def test_a_wheel_with_another_checksum_is_refused(files: FileServer, tmp_path: Path) -> None:
    with pytest.raises(ChecksumError):
        install_runtime(cache=tmp_path, locate=_Index(files, _wheel(), sha256="0" * 64))
    assert unpacked_runtime(tmp_path) is None


def test_an_environment_without_pip_installs_and_runs_it(tmp_path: Path) -> None:
    """By the pip that comes with Python, from the index that pip is set up for."""
    environment = BareEnvironment.make(tmp_path / "env")
    links = tmp_path / "links"
    links.mkdir()
    stem = f"{RUNTIME.package}-{RUNTIME.version}"
    (links / f"{stem}-py3-none-any.whl").write_bytes(_wheel())
    # Another system's, with a more exact tag: it would be taken if tags did not count.
    (links / f"{stem}-cp311-cp311-win_amd64.whl").write_bytes(_wheel(tag="cp311-cp311-win_amd64"))
    said = environment.run(
        "import importlib.util\n"
        "from parley.agent.providers.local.runtime import has_runtime, unpacked_runtime\n"
        "from parley.agent.providers.local.runtime_install import install_runtime\n"
        "assert importlib.util.find_spec('pip') is None and not has_runtime()\n"
        "install_runtime()\n"
        "assert has_runtime()\n"
        "print(unpacked_runtime(), end='')\n",
        PARLEY_CACHE=str(tmp_path / "cache"),
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(links),
        PIP_CONFIG_FILE=os.devnull,
    )
    assert said.startswith(str(tmp_path / "cache" / "runtime"))

    load = Load("weights.gguf", 512, 1, "key", parent=os.getpid(), runtime=said)
    child = subprocess.run(
        [str(environment.python), "-P", "-m", "parley.agent.providers.local.child"],
        input=load.to_line(),
        capture_output=True,
        check=False,
        timeout=30,
    )
    answer = Answer(**json.loads(child.stdout))
    assert answer == Answer("not_loaded", cause="the unpacked runtime was imported")


def test_the_runtime_is_the_version_that_the_tests_run_with() -> None:
    pins = (Path(__file__).parents[4] / "constraints.txt").read_text().splitlines()
    assert RUNTIME.requirement in pins
    assert Requirement(RUNTIME.requirement).name == "xllamacpp"
