"""The `parley` command as a whole: its first words, its bad days, and the shell's completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parley import __version__
from parley.cli import VERBS
from tests.cli.command import Parley

_BROKEN_VERB = """
import sys, types
from parley.protocol import ParleyError

def register(app):
    @app.command("doctor")
    def doctor():
        raise {error}

broken = types.ModuleType("parley.cli.doctor")
broken.register = register
sys.modules["parley.cli.doctor"] = broken
from parley.cli import run
run(["doctor"])
"""


@pytest.fixture
def parley(tmp_path: Path) -> Parley:
    return Parley(tmp_path / "home")


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_it_tells_its_version(parley: Parley, option: str) -> None:
    done = parley.run(option)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"parley {__version__}\n", "")


def test_the_version_is_told_by_the_installed_command_as_well(parley: Parley) -> None:
    assert parley.shell("parley --version").stdout == f"parley {__version__}\n"


def test_telling_the_version_loads_nothing_heavy(parley: Parley) -> None:
    script = (
        "import sys; sys.argv = ['parley', '--version']; from parley.__main__ import main; main();"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = parley.execute([sys.executable, "-c", script]).stdout.splitlines()[-1].split()
    assert "parley" in loaded
    heavy = {"typer", "click", "pydantic", "aiohttp", "rich", "ruamel", "prompt_toolkit", "asyncio"}
    assert not heavy & set(loaded)


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_verb(parley: Parley, option: str) -> None:
    done = parley.run(option)
    assert done.returncode == 0
    offered = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert set(VERBS) <= set(offered)


@pytest.mark.parametrize(
    ("verb", "hint"),
    [("sesions", "did you mean `parley sessions`?"), ("xyzzy", "there are chat, ")],
)
def test_an_unknown_verb_gets_one_line(parley: Parley, verb: str, hint: str) -> None:
    done = parley.run(verb, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"parley: There is no verb '{verb}'; {hint}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gateway start", "There is no `parley gateway start`; use `parley gateway run`."),
        ("model instal x", "There is no `parley model instal`; use `parley model install`."),
        ("profile make x", "There is no `parley profile make`; use `parley profile create`."),
        ("gateway xyzzy", "There is no `parley gateway xyzzy`; there are run, status."),
        ("gateway run --prot 3", "`parley gateway run` has no option --prot; did you mean --port?"),
        ("status --xyzzy", "`parley status` has no option --xyzzy; see `parley status --help`."),
        ("model install", "`parley model install` needs NAME; see `parley model install --help`."),
        (
            "model remove nosuch",
            "There is no model called 'nosuch' to remove: choose one of smollm2",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    parley: Parley, line: str, said: str
) -> None:
    done = parley.run(*line.split())
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert done.stderr.startswith(f"parley: {said}")
    assert done.stderr.count("\n") == 1


def test_every_group_without_a_word_shows_its_help(parley: Parley) -> None:
    done = parley.run("gateway")
    assert done.returncode == 2
    assert "status" in done.stderr


def test_an_expected_error_is_its_sentence(parley: Parley) -> None:
    script = _BROKEN_VERB.format(error='ParleyError("It rains; take an umbrella.")')
    done = parley.execute([sys.executable, "-c", script])
    assert (done.returncode, done.stderr) == (1, "parley: It rains; take an umbrella.\n")


def test_an_unexpected_error_is_one_sentence_and_its_traceback_is_in_the_log(
    parley: Parley,
) -> None:
    script = _BROKEN_VERB.format(error='LookupError("a slip of ours")')
    homeless = parley.execute([sys.executable, "-c", script])
    assert (homeless.returncode, homeless.stdout) == (1, "")
    assert homeless.stderr == "parley: Something went wrong inside Parley (LookupError).\n"
    assert not parley.home.exists()

    parley.home.mkdir()
    done = parley.execute([sys.executable, "-c", script])
    assert done.returncode == 1
    assert done.stderr.startswith("parley: Something went wrong inside Parley (LookupError); ")
    assert done.stderr.count("\n") == 1
    log = (parley.profile.logs / "parley.log").read_text()
    assert "a slip of ours" in log
    assert "Traceback" in log


@pytest.mark.parametrize(
    "verb", ["sessions list", "sessions list --json", "doctor --offline --json", "-h"]
)
def test_a_closed_pipe_is_quiet(parley: Parley, verb: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "parley", *verb.split()],
        env=parley.environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode in (1, 141)


def test_a_pipe_that_nobody_reads_is_quiet(parley: Parley) -> None:
    assert parley.shell("parley sessions list | head -0").stderr == ""


def test_no_stdout_at_all_is_no_reason_to_fail(parley: Parley) -> None:
    done = parley.shell("parley sessions list >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_knows_few_characters_gets_every_line(tmp_path: Path) -> None:
    model = {
        "PARLEY_MODEL_PROVIDER": "near",
        "PARLEY_PROVIDERS_NEAR_BASE_URL": "http://127.0.0.1:9/v1",
        "PARLEY_PROVIDERS_NEAR_MODEL": "月-7b",
    }
    parley = Parley(tmp_path / "home", {"PYTHONIOENCODING": "latin-1", **model})
    done = parley.run("doctor", "--offline")
    assert done.stdout.startswith("+ python: ")
    assert "\n    > parley gateway run\n" in done.stdout
    assert "?-7b is set up" in done.stdout


# ── completion ────────────────────────────────────────────────────────────────────────────────


def _completed(home: Path, shell: str, line: str) -> list[str]:
    """What the command offers a shell at the end of `line`."""
    words = line.split(" ")
    request = {
        "_PARLEY_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = Parley(home, request).run()
    assert done.stderr == ""
    if shell == "zsh":
        return [part.split('"')[1] for part in done.stdout.splitlines() if '"' in part]
    return [offered.split("\t")[0] for offered in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_verbs_their_verbs_and_their_options(tmp_path: Path, shell: str) -> None:
    home = tmp_path / "home"
    assert set(_completed(home, shell, "parley ")) == set(VERBS)
    assert _completed(home, shell, "parley se") == ["setup", "sessions"]
    assert _completed(home, shell, "parley sessions ") == ["list", "show", "export", "delete"]
    assert "status" in _completed(home, shell, "parley gateway ")
    assert {"get", "set", "unset", "path", "check"} <= set(
        _completed(home, shell, "parley config ")
    )
    assert _completed(home, shell, "parley sessions export --f") == ["--format", "--force"]
    assert _completed(home, shell, "parley sessions export --format ") == ["md", "json"]
    assert "--offline" in _completed(home, shell, "parley doctor --")
    assert not home.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_can_be_shown_and_installed(tmp_path: Path, shell: str) -> None:
    parley = Parley(tmp_path / "home", {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    shown = parley.run("--show-completion", shell)
    assert shown.returncode == 0
    assert f"_PARLEY_COMPLETE=complete_{shell}" in shown.stdout
    assert parley.run("--install-completion", shell).returncode == 0
    installed = {
        "bash": ".bash_completions/parley.sh",
        "zsh": ".zfunc/_parley",
        "fish": ".config/fish/completions/parley.fish",
    }
    script = (tmp_path / installed[shell]).read_text()
    assert script.strip() == shown.stdout.strip()


def test_a_real_bash_finds_itself_and_completes(parley: Parley) -> None:
    script = """
        parley --install-completion >/dev/null || exit 1
        source ~/.bashrc
        COMP_WORDS=(parley sessions ""); COMP_CWORD=2
        _parley_completion parley
        echo "${COMPREPLY[*]}"
    """
    done = parley.shell(script)
    assert (done.stdout, done.stderr) == ("list show export delete\n", "")


def test_a_closed_stdin_is_no_question(parley: Parley) -> None:
    done = parley.shell("parley chat <&-")
    assert done.returncode == 1
    assert "There is nothing to ask" in done.stderr
