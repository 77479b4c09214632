"""The pins of tests/clients install on every Python that Parley supports, from any registry."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distributions

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.clients.conftest import HERE
from tests.servers.gateway_process import REPOSITORY

_SUPPORTED = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")


def _pins() -> dict[str, str]:
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def _installed() -> dict[str, Distribution]:
    where = [str(path) for path in REPOSITORY.glob(".venv-clients/lib/python*/site-packages")]
    if not where:
        pytest.skip("the client libraries are not installed (`./scripts/test` installs them)")
    return {canonicalize_name(each.name): each for each in distributions(path=where)}


def test_every_library_is_pinned_for_every_supported_python() -> None:
    installed, pins = _installed(), _pins()
    assert {name: installed[name].version for name in pins} == pins
    assert set(installed) - set(pins) <= {"pip", "setuptools"}
    for name in pins:
        needed = SpecifierSet(installed[name].metadata["Requires-Python"] or "")
        assert all(needed.contains(python) for python in _SUPPORTED), (name, needed)


def test_the_npm_lock_names_versions_and_no_addresses() -> None:
    text = (HERE / "node" / "package-lock.json").read_text()
    assert not re.search(r"https?:|resolved", text)
    packages = json.loads(text)["packages"]
    wanted = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
    assert all(each.get("integrity") for name, each in packages.items() if name)
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
