"""What a command of Parley writes and holds in memory is for its owner alone."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.household import Household

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is asked of /proc")

SECRET = "sk-in-the-environment-1234567890"


def _without_rights() -> list[str]:
    """Root may look into everything: a test that runs as root gives its rights away."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv takes the rights away that root has")
    return ["setpriv", "--bounding-set=-all"]


def _sees_environment(pid: int) -> bool:
    """Whether another process of the same user reads the secret there."""
    command = [*_without_rights(), "cat", f"/proc/{pid}/environ"]
    return SECRET.encode() in subprocess.run(command, capture_output=True).stdout


@pytest.fixture
def gateway(household: Household) -> subprocess.Popen[str]:
    """Started without the rights that root has over others, and by a careless shell."""
    household.configure()
    process = subprocess.Popen(
        [*_without_rights(), "sh", "-c", f"umask 000; exec {sys.executable} -m parley gateway run"],
        env={**household.parley.environment(), "OPENAI_API_KEY": SECRET},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while "api" not in process.stdout.readline():
        assert process.poll() is None
    return process


def test_nobody_reads_its_memory_and_it_leaves_no_core(gateway: subprocess.Popen[str]) -> None:
    # What it repeats shows that setpriv is over: until then it has rights that the reader has not.
    with subprocess.Popen(
        [*_without_rights(), "cat"],
        env={"OPENAI_API_KEY": SECRET, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("ready\n")
        other.stdin.flush()
        assert other.stdout.readline() == "ready\n"
        seen = _sees_environment(other.pid)
        other.stdin.close()
    assert seen  # an ordinary process shows it
    assert not _sees_environment(gateway.pid)
    limits = Path(f"/proc/{gateway.pid}/limits").read_text()
    [core] = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core.split()[4:6] == ["0", "0"]
    # What everybody may know stays readable, for `top` and the like.
    assert "VmRSS" in Path(f"/proc/{gateway.pid}/status").read_text()
    os.kill(gateway.pid, signal.SIGABRT)
    _, status = os.waitpid(gateway.pid, 0)
    assert (os.WTERMSIG(status), os.WCOREDUMP(status)) == (signal.SIGABRT, False)
    gateway.returncode = -signal.SIGABRT
    assert gateway.stdout is not None
    gateway.stdout.close()


def test_all_that_it_writes_is_private(
    gateway: subprocess.Popen[str], household: Household
) -> None:
    gateway.send_signal(signal.SIGTERM)
    gateway.communicate(timeout=60)
    household.run("chat", "-m", "hello")
    made = [path for path in household.home.rglob("*") if path.name != "config.yaml"]
    open_to_others = {
        str(path.relative_to(household.home))
        for path in made
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    }
    assert len(made) > 5
    assert open_to_others == set()


def test_every_verb_writes_privately(household: Household) -> None:
    household.configure()
    made = household.parley.shell(
        'umask 000; cd "$HOME" && parley profile create coder && parley keys create desk'
        " && parley profile export coder coder.tar.gz"
    )
    assert made.returncode == 0, made.stderr
    profile = household.home / "profiles" / "coder"
    archive = household.home.parent / "coder.tar.gz"
    for path in (archive, household.home / "api_keys.json", profile, *profile.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_home_that_others_could_change_is_fixed_at_the_start(household: Household) -> None:
    household.configure()
    household.home.chmod(0o777)
    (household.home / ".env").write_text("OPENAI_API_KEY=sk-1\n")
    (household.home / ".env").chmod(0o666)
    checks = household.parley.json("doctor", "--offline", "--json")["checks"]
    told = [check["what"] for check in checks if check["check"] in {"home", "env"}]
    assert any("others may change what is in" in each for each in told), told
    assert any("others may read it (mode 666)" in each for each in told), told
    assert stat.S_IMODE(household.home.stat().st_mode) == 0o777  # looking changes nothing
    assert household.run("chat", "-m", "hello").stdout == "echo: hello\n"
    assert stat.S_IMODE(household.home.stat().st_mode) == 0o700
    assert stat.S_IMODE((household.home / ".env").stat().st_mode) == 0o600
    log = (household.home / "logs" / "parley.log").read_text()
    assert "Others could change" in log


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
@pytest.mark.parametrize("name", [".", "config.yaml"])
def test_a_home_of_somebody_else_is_refused_in_one_sentence(
    household: Household, name: str
) -> None:
    household.configure()
    os.chown(household.home / name, 65534, -1)
    for verb in (["gateway", "run"], ["chat", "-m", "hello"]):
        told = household.run(*verb)
        assert told.returncode == 1
        assert told.stderr.count("\n") == 1
        assert "who could change what is in it" in told.stderr
    found = household.parley.json("doctor", "--offline", "--json")["checks"]
    [home] = [check for check in found if check["check"] == "home"]
    assert home["level"] == "fault"
    assert home["mend"].startswith('sudo chown -R "$(id -un)" ')
