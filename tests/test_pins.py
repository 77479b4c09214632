"""The pins in constraints.txt install on every Python that Parley supports."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

_ROOT = Path(__file__).parents[1]
_SUPPORTED = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")


def test_every_pin_admits_every_supported_python() -> None:
    refused = []
    for name in _pins():
        found = _installed(name)
        needed = str(found.metadata["Requires-Python"] or "") if found else ""
        refused += [
            f"{name}: {needed} refuses {python}"
            for python in _SUPPORTED
            if not SpecifierSet(needed).contains(python)
        ]
    assert refused == []


def test_the_pins_are_what_is_installed() -> None:
    """Otherwise the check above reads the metadata of another version."""
    pins = _pins()
    installed = {name: found.version for name in pins if (found := _installed(name))}
    assert {name: version for name, version in installed.items() if version != pins[name]} == {}
    if sys.version_info < (3, 13):  # mautrix and what only it needs are not for newer ones
        assert set(installed) == set(pins)


def test_the_oldest_supported_python_is_the_one_that_the_project_names() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    wanted = SpecifierSet(project["requires-python"])
    assert wanted.contains(_SUPPORTED[0])
    assert not wanted.contains("3.10.99")


def _pins() -> dict[str, str]:
    pins = {}
    for line in (_ROOT / "constraints.txt").read_text().splitlines():
        requirement = Requirement(line)
        (version,) = requirement.specifier
        assert version.operator == "=="
        pins[requirement.name] = version.version
    return pins


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
