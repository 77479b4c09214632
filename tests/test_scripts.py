"""scripts/_env.sh installs only files with a pinned hash; if it fails, one sentence says why."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]

# A project that builds itself, which costs no download.
_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "made-up"
version = "1.0"
dependencies = ["{dependency}"]
"""
_BUILD_TOOLS = """
[project]
dependencies = ["pip"]
"""
_BACKEND = """
import zipfile

def build_editable(directory, settings=None, metadata=None):
    with zipfile.ZipFile(f"{directory}/made_up-1.0-py3-none-any.whl", "w") as wheel:
        info = "made_up-1.0.dist-info"
        text = "Metadata-Version: 2.1\\nName: made-up\\nVersion: 1.0\\n"
        wheel.writestr(f"{info}/METADATA", text)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return "made_up-1.0-py3-none-any.whl"
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    (root / "scripts").mkdir()
    for name in ("_env.sh", "_requirements.py"):
        shutil.copy(_ROOT / "scripts" / name, root / "scripts")
    (root / "scripts" / "build-tools.toml").write_text(_BUILD_TOOLS)
    (root / "backend.py").write_text(_BACKEND)
    return root


# ── a package index ──


class Index:
    """Package indexes on loopback, and the hashes of what the first of them offers."""

    def __init__(self, root: Path, address: str) -> None:
        self._root = root
        self.as_pinned = f"{address}/as-pinned/"
        self.changed = f"{address}/changed/"  # with the hash of the changed file
        self.lying = f"{address}/lying/"  # with the hash of the file before it was changed
        self.with_another_pip = f"{address}/with-another-pip/"
        self.hashes: dict[str, str] = {}

        pip = _pip_wheel()
        self.pip_pin = f"pip=={metadata.version('pip')}"
        self.hashes[self.pip_pin] = _sha256(pip)
        name = f"pip-{metadata.version('pip')}-py3-none-any.whl"
        for where in ("as-pinned", "changed", "lying"):
            self._add(where, "pip", name, pip)
        self._add("with-another-pip", "pip", name, pip + b"\0")

        for version, python in (("1.0", ">=3.11"), ("2.0", ">=3.99")):
            wheel, name = _wheel(version, python), f"needed-{version}-py3-none-any.whl"
            self.hashes[f"needed=={version}"] = _sha256(wheel)
            self._add("as-pinned", "needed", name, wheel, python=python)
            other = _wheel(version, python, summary="changed")
            self._add("changed", "needed", name, other, python=python)
            self._add("lying", "needed", name, other, python=python, says=_sha256(wheel))

        source = _source("unbuilt-1.0")
        self.hashes["unbuilt==1.0"] = _sha256(source)
        self._add("as-pinned", "unbuilt", "unbuilt-1.0.tar.gz", source)

    def _add(
        self, where: str, project: str, name: str, content: bytes, python: str = "", says: str = ""
    ) -> None:
        folder = self._root / where / project
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        with (folder / "index.html").open("a") as page:
            page.write(
                f'<a href="{name}#sha256={says or _sha256(content)}" '
                f'data-requires-python="{escape(python)}">{name}</a>\n'
            )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    root = tmp_path_factory.mktemp("index")
    handler = partial(SimpleHTTPRequestHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        offered = Index(root, f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield offered
        server.shutdown()
        thread.join()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _wheel(version: str, python: str, summary: str = "") -> bytes:
    info = f"needed-{version}.dist-info"
    text = f"Metadata-Version: 2.1\nName: needed\nVersion: {version}\nSummary: {summary}\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"{text}Requires-Python: {python}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return buffer.getvalue()


def _source(name: str) -> bytes:
    """A source archive whose backend is nowhere."""
    text = b'[build-system]\nrequires = ["nowhere"]\nbuild-backend = "nowhere"\n'
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(f"{name}/pyproject.toml")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


def _pip_wheel() -> bytes:
    """The pip of this environment, which is the pinned one, as a wheel again."""
    pip = metadata.distribution("pip")
    pinned = f"pip=={pip.version}"
    assert pinned in (_ROOT / "constraints.txt").read_text().splitlines(), "run ./scripts/test"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in pip.files or []:
            if file.parts[0] != ".." and file.suffix != ".pyc":
                archive.write(str(pip.locate_file(file)), str(file))
    return buffer.getvalue()


# ── an install ──


def _install(
    checkout: Path, index: Index, *pins: str, dependency: str = "needed", **pip: str
) -> subprocess.CompletedProcess[str]:
    (checkout / "pyproject.toml").write_text(_PROJECT.format(dependency=dependency))
    (checkout / "hashes.txt").write_text(
        "".join(
            f"{pin} \\\n    --hash=sha256:{index.hashes.get(pin, '0' * 64)}\n"
            for pin in (index.pip_pin, *pins)
        )
    )
    # As if nothing of it had been installed by the test before.
    (checkout / ".venv" / "installed-run").unlink(missing_ok=True)
    for found in checkout.glob(".venv/lib/python*/site-packages/needed-*.dist-info"):
        shutil.rmtree(found)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    settings = {f"PIP_{name.upper()}": value for name, value in pip.items()}
    settings |= {"PIP_NO_CACHE_DIR": "1"}
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PARLEY_PYTHON": sys.executable}
    return subprocess.run(
        ["bash", "-uc", ". scripts/_env.sh; ensure_env run local"],
        cwd=checkout,
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
    )


def _said_by_install(
    checkout: Path, index: Index, *pins: str, dependency: str = "needed", **pip: str
) -> str:
    """The last line of what the script says when it fails."""
    done = _install(checkout, index, *pins, dependency=dependency, **pip)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def _installed(checkout: Path) -> dict[str, str]:
    folders = [str(path) for path in checkout.glob(".venv/lib/python*/site-packages")]
    return {each.name: each.version for each in metadata.distributions(path=folders)}


def test_what_matches_its_hash_is_installed_by_the_pinned_pip(checkout: Path, index: Index) -> None:
    done = _install(checkout, index, "needed==1.0", index_url=index.as_pinned)
    assert done.returncode == 0, done.stderr
    assert _installed(checkout) == {
        "pip": metadata.version("pip"),
        "made-up": "1.0",
        "needed": "1.0",
    }


@pytest.mark.parametrize("which", ["changed", "lying"])
def test_a_changed_file_is_refused(checkout: Path, index: Index, which: str) -> None:
    said = _said_by_install(checkout, index, "needed==1.0", index_url=getattr(index, which))
    assert said.startswith(
        "needed==1.0 does not match the hash in hashes.txt: the file was changed"
    )
    assert "Do not install it another way" in said
    assert "network" not in said
    assert "needed" not in _installed(checkout)


def test_another_pip_is_refused(tmp_path: Path, checkout: Path, index: Index) -> None:
    fresh = Path(shutil.copytree(checkout, tmp_path / "fresh", ignore=lambda *_: [".venv"]))
    said = _said_by_install(fresh, index, "needed==1.0", index_url=index.with_another_pip)
    assert said.startswith(f"{index.pip_pin} does not match the hash in hashes.txt: ")


def test_a_package_without_a_hash_is_refused(checkout: Path, index: Index) -> None:
    said = _said_by_install(checkout, index, index_url=index.as_pinned)
    assert said.startswith("needed has no hash in hashes.txt: update this checkout, or run ")
    assert "needed" not in _installed(checkout)


def test_nothing_is_fetched_for_a_build(checkout: Path, index: Index) -> None:
    said = _said_by_install(
        checkout, index, "unbuilt==1.0", dependency="unbuilt", index_url=index.as_pinned
    )
    assert said.startswith(
        "unbuilt has no wheel for this system, and what builds it is not in hashes.txt: "
    )


def test_a_pin_that_this_python_cannot_have_is_no_network_fault(
    checkout: Path, index: Index
) -> None:
    said = _said_by_install(checkout, index, "needed==2.0", index_url=index.as_pinned)
    assert said.startswith(
        f"The pins in hashes.txt do not fit Python {platform.python_version()} "
        "(needed==2.0): update this checkout, or use another Python with PARLEY_PYTHON="
    )
    assert "network" not in said


def test_a_pin_that_exists_nowhere_is_no_network_fault(checkout: Path, index: Index) -> None:
    said = _said_by_install(checkout, index, "needed==7.7", index_url=index.as_pinned)
    assert "(needed==7.7)" in said
    assert "network" not in said


def test_an_index_that_cannot_be_reached_is_a_network_fault(checkout: Path, index: Index) -> None:
    said = _said_by_install(
        checkout, index, "needed==1.0", index_url="http://127.0.0.1:9/simple", retries="1"
    )
    assert said.startswith("The package index cannot be reached: check the network")
