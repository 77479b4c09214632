"""The pins install on every Python that Parley supports, and every file of them has a hash."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Environment, default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[1]
_CLIENTS = _ROOT / "tests" / "clients"
_SUPPORTED = ("3.11.0", "3.12.0", "3.13.0", "3.14.0")
_SYSTEMS = {
    "linux x86_64": ("linux", "Linux", "x86_64"),
    "linux aarch64": ("linux", "Linux", "aarch64"),
    "macos arm64": ("darwin", "Darwin", "arm64"),
    "macos x86_64": ("darwin", "Darwin", "x86_64"),
}


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
    """Otherwise the other checks read the metadata of other versions."""
    for_locking = {Requirement(line).name for line in _tables()["build-tools"][1]["lock"]}
    pins = {
        name: _version(pin)
        for name, pin in _pins().items()
        if name not in for_locking and (pin.marker is None or pin.marker.evaluate())
    }
    installed = {name: found.version for name in pins if (found := _installed(name))}
    assert installed == pins


def test_the_oldest_supported_python_is_the_one_that_the_project_names() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    wanted = SpecifierSet(project["requires-python"])
    assert wanted.contains(_SUPPORTED[0])
    assert not wanted.contains("3.10.99")


@pytest.mark.parametrize("system", _SYSTEMS)
@pytest.mark.parametrize("python", _SUPPORTED)
def test_all_that_is_needed_is_pinned(python: str, system: str) -> None:
    """Whatever the extras: pip refuses a package without a hash."""
    here = _environment(python, system)
    pins = _pins()
    missing, seen = set(), set()
    waiting = [
        Requirement(line)
        for always, extras in _tables().values()
        for line in [*always, *(each for lines in extras.values() for each in lines)]
    ]
    while waiting:
        wanted = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": "", **here}):
            continue
        pin = pins.get(canonicalize_name(wanted.name))
        if (
            pin is None
            or not wanted.specifier.contains(_version(pin))
            or (pin.marker is not None and not pin.marker.evaluate(here))
        ):
            missing.add(str(wanted))
        elif (key := (wanted.name, frozenset(wanted.extras))) not in seen:
            seen.add(key)
            waiting += _needed_by(wanted, here)
    assert missing == set()


@pytest.mark.parametrize("file", [_ROOT / "hashes.txt", _CLIENTS / "hashes.txt"])
def test_every_pin_has_the_hashes_of_its_files_and_no_address(file: Path) -> None:
    hashes = _hashes(file)
    names = [canonicalize_name(Requirement(pin).name) for pin in hashes]
    assert len(names) == len(set(names)), "one version of a package for every Python"
    assert [pin for pin, found in hashes.items() if not found] == []
    assert len({each for found in hashes.values() for each in found}) == sum(
        len(found) for found in hashes.values()
    )


def test_the_hashes_are_those_of_the_pins() -> None:
    assert {str(pin) for pin in _pins().values()} == {
        str(Requirement(pin)) for pin in _hashes(_ROOT / "hashes.txt")
    }
    clients = {pin.split(" ")[0] for pin in _hashes(_CLIENTS / "hashes.txt")}
    assert _lines(_CLIENTS / "requirements.txt") - clients == set()


# ── what the files say ──


def _lines(file: Path) -> set[str]:
    return {line for line in file.read_text().splitlines() if not line.startswith("#")}


def _pins() -> dict[str, Requirement]:
    pins: dict[str, Requirement] = {}
    for line in _lines(_ROOT / "constraints.txt"):
        pin = Requirement(line)
        pins[canonicalize_name(pin.name)] = pin
        assert _version(pin)
    return pins


def _version(pin: Requirement) -> str:
    (version,) = pin.specifier
    assert version.operator == "=="
    return version.version


def _hashes(file: Path) -> dict[str, list[str]]:
    """The hashes of each pin. Nothing else may be in the file, such as an address or an option."""
    pin = r"[a-z0-9-]+==[^ ]+(?: ; [^\\\n]+)?"
    text = re.sub(r"\A(?:#.*\n)+", "", file.read_text())
    blocks = re.findall(rf"^({pin})((?: \\\n    --hash=sha256:[0-9a-f]{{64}})*)\n", text, re.M)
    assert "".join(f"{name}{rest}\n" for name, rest in blocks) == text
    return {name: re.findall("sha256:([0-9a-f]+)", rest) for name, rest in blocks}


def _tables() -> dict[str, tuple[list[str], dict[str, list[str]]]]:
    """What Parley and its build need: always, and by extra."""
    files = {
        "parley": _ROOT / "pyproject.toml",
        "build-tools": _ROOT / "scripts" / "build-tools.toml",
    }
    tables = {name: tomllib.loads(file.read_text())["project"] for name, file in files.items()}
    return {
        name: (table["dependencies"], table["optional-dependencies"])
        for name, table in tables.items()
    }


def _installed(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _needed_by(wanted: Requirement, here: Mapping[str, str]) -> list[Requirement]:
    """What a package needs there, as far as it is installed here."""
    found = _installed(wanted.name)
    needed = [Requirement(line) for line in (found.requires if found else None) or []]
    chosen = []
    for each in needed:
        marker, each.marker = each.marker, None
        if marker is None or any(
            marker.evaluate({**here, "extra": extra}) for extra in ("", *wanted.extras)
        ):
            chosen.append(each)
    return chosen


def _environment(python: str, system: str) -> dict[str, str]:
    platform, name, machine = _SYSTEMS[system]
    own: Environment = default_environment()
    return {
        **{key: str(value) for key, value in own.items()},
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": platform,
        "platform_system": name,
        "platform_machine": machine,
    }
