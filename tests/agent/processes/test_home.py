"""The home of a command is empty: what lies in the workspace does not run unasked."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.agent.sandbox import SandboxMode
from tests.agent.processes.house import House, needs_bubblewrap, open_house

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.fixture(params=[pytest.param("required", marks=needs_bubblewrap), "off"])
def mode(request: pytest.FixtureRequest) -> SandboxMode:
    found: SandboxMode = request.param
    return found


@pytest.fixture
async def house(tmp_path: Path, mode: SandboxMode) -> AsyncIterator[House]:
    async with open_house(tmp_path / "home", mode=mode) as house:
        yield house


async def test_python_takes_no_code_from_the_workspace(house: House) -> None:
    version = sysconfig.get_python_version()
    for number in (version, "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"):
        packages = house.workspace / f".local/lib/python{number}/site-packages"
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "usercustomize.py").write_text("print('planted')")
    _, text = await house.run("p1", "python3 -c 'print(1)'")
    assert text == "1\n"


@needs_git
async def test_git_takes_no_settings_from_the_workspace(house: House) -> None:
    (house.workspace / ".gitconfig").write_text("[core]\n\tfsmonitor = echo planted > planted; :\n")
    config = house.workspace / ".config" / "git"
    config.mkdir(parents=True)
    (config / "config").write_text("[alias]\n\tplant = !echo planted > planted\n")
    _, text = await house.run("p1", "git init -q . && git status --short; git plant")
    assert "is not a git command" in text
    assert not (house.workspace / "planted").exists()


@needs_git
async def test_without_a_sandbox_a_repository_starts_no_program(tmp_path: Path) -> None:
    async with open_house(tmp_path / "home", mode="off") as house:
        await house.run("p1", "git init -q . && git config core.fsmonitor 'touch planted; :'")
        hook = house.workspace / ".git" / "hooks" / "post-checkout"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\ntouch planted\n")
        hook.chmod(0o755)
        more = "-c user.name=n -c user.email=e commit -q --allow-empty -m one"
        _, text = await house.run("p2", f"git status --short; git {more} && git checkout -q -b two")
        assert "planted" not in text
        assert not (house.workspace / "planted").exists()


async def test_shells_read_nothing_from_the_workspace(house: House) -> None:
    for name in (".bashrc", ".bash_profile", ".profile", ".bash_login", ".inputrc"):
        (house.workspace / name).write_text("echo planted\n")
    _, text = await house.run("p1", "bash -ic true; bash -lc true; sh -lc true; echo over")
    assert "planted" not in text
    assert text.endswith("over\n")


async def test_the_home_is_empty_and_read_only(house: House, mode: SandboxMode) -> None:
    _, text = await house.run("p1", "ls -A ~; test ~ -ef . && echo workspace; touch ~/x; ls -A ~")
    if mode == "required" or os.geteuid() != 0:  # nothing is read-only for root
        assert "denied" in text or "Read-only" in text
        assert "\nx\n" not in text
    assert "workspace" not in text
    process, text = await house.run("p2", "ls -A ~")
    assert (process.exit_code, text) == (0, "")


async def test_there_is_a_place_for_caches_which_ends_with_the_command(house: House) -> None:
    script = "mkdir -p $XDG_CACHE_HOME/a && echo x > $XDG_CACHE_HOME/a/b && echo $XDG_CACHE_HOME"
    _, text = await house.run("p1", script)
    cache = Path(text.strip())
    assert cache.is_absolute()
    assert not cache.exists()
    assert house.workspace not in cache.parents
