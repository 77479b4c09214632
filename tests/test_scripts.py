"""scripts/_env.sh says in one sentence why an install failed."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

_SCRIPTS = Path(__file__).parents[1] / "scripts"

# A project whose metadata costs neither a build nor a download.
_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
_BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_editable(directory, settings=None):
    info = Path(directory) / "made_up-1.0.dist-info"
    info.mkdir()
    text = "Metadata-Version: 2.1\\nName: made-up\\nVersion: 1.0\\n"
    (info / "METADATA").write_text(text + "Requires-Dist: needed\\nProvides-Extra: local\\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return info.name

def build_editable(directory, settings=None, metadata=None):
    raise SystemExit("not built")
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    (root / "scripts").mkdir()
    shutil.copy(_SCRIPTS / "_env.sh", root / "scripts")
    (root / "pyproject.toml").write_text(_PROJECT)
    (root / "backend.py").write_text(_BACKEND)
    return root


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index that offers `needed`: 1.0 for this Python, 2.0 for none that there is."""
    root = tmp_path_factory.mktemp("index")
    page = root / "needed" / "index.html"
    page.parent.mkdir()
    lines = []
    for version, python in (("1.0", ">=3.11"), ("2.0", ">=3.99")):
        name = _wheel(page.parent, version, python=python)
        lines.append(f'<a href="{name}" data-requires-python="{escape(python)}">{name}</a>')
    page.write_text("<!DOCTYPE html>" + "\n".join(lines))
    handler = partial(SimpleHTTPRequestHandler, directory=str(root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def _wheel(directory: Path, version: str, *, python: str) -> str:
    info = f"needed-{version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: needed\nVersion: {version}\nRequires-Python: {python}\n",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    name = f"needed-{version}-py3-none-any.whl"
    (directory / name).write_bytes(buffer.getvalue())
    return name


def _said_by_install(checkout: Path, **pip: str) -> str:
    """The last line of what the script says."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    settings = {f"PIP_{name.upper()}": value for name, value in pip.items()}
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PARLEY_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-uc", ". scripts/_env.sh; ensure_env run local"],
        cwd=checkout,
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_a_pin_that_this_python_cannot_have_is_no_network_fault(checkout: Path, index: str) -> None:
    (checkout / "constraints.txt").write_text("needed==2.0\n")
    said = _said_by_install(checkout, index_url=index)
    assert said.startswith(
        f"The pins in constraints.txt do not fit Python {platform.python_version()} "
        "(needed==2.0): update this checkout, or use another Python with PARLEY_PYTHON="
    )
    assert "network" not in said


def test_a_pin_that_exists_nowhere_is_no_network_fault(checkout: Path, index: str) -> None:
    (checkout / "constraints.txt").write_text("needed==7.7\n")
    said = _said_by_install(checkout, index_url=index)
    assert "(needed==7.7)" in said
    assert "network" not in said


def test_an_index_that_cannot_be_reached_is_a_network_fault(checkout: Path) -> None:
    (checkout / "constraints.txt").write_text("needed==1.0\n")
    said = _said_by_install(checkout, index_url="http://127.0.0.1:9/simple", retries="1")
    assert said.startswith("The package index cannot be reached: check the network")
