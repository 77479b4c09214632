"""One process a home: its lock, and a socket that is its owner's alone."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.gateway.home import Holder, HomeInUse, HomeLock, holder_of, socket_path
from parley.profiles import Profile
from parley.protocol import ParleyError

_HOLD = """
import sys, pathlib
from parley.gateway.home import HomeLock
from parley.profiles import Profile
with HomeLock(Profile("default", pathlib.Path(sys.argv[1])), "gateway"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return Profile("default", tmp_path / "home")


@contextmanager
def another_process(profile: Profile) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the home."""
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(profile.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    with child:
        assert child.stdout.readline() == b"held\n"
        yield child
        child.stdin.close()


def test_a_second_process_is_refused_and_told_who_serves(profile: Profile) -> None:
    with another_process(profile) as child:
        with pytest.raises(HomeInUse) as refused, HomeLock(profile, "gateway"):
            pass
        assert str(refused.value) == (
            f"{profile.home} is already served by `parley gateway run` (process {child.pid}); "
            "stop it first, or use it as it is."
        )
        assert holder_of(profile) == Holder(child.pid, "gateway")


def test_a_home_that_was_left_is_free(profile: Profile) -> None:
    with another_process(profile):
        pass
    assert holder_of(profile) is None
    with HomeLock(profile, "chat"):
        assert holder_of(profile) == Holder(os.getpid(), "chat")
    assert holder_of(profile) is None


def test_the_lock_of_a_dead_process_is_no_obstacle(profile: Profile) -> None:
    with another_process(profile) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert (profile.run / "lock").read_text() != ""
    assert holder_of(profile) is None
    with HomeLock(profile, "gateway"):
        assert holder_of(profile) == Holder(os.getpid(), "gateway")


def test_asking_who_holds_a_home_never_keeps_another_from_taking_it(profile: Profile) -> None:
    """Whoever asks has the lock for a moment; whoever takes it waits that moment."""
    profile.run.mkdir(parents=True)
    with (profile.run / "lock").open("a+") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        later = threading.Timer(0.1, lambda: fcntl.flock(asking, fcntl.LOCK_UN))
        later.start()
        with HomeLock(profile, "gateway"):
            assert holder_of(profile) == Holder(os.getpid(), "gateway")
        later.join()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "null", '"x"'])
def test_a_lock_file_with_nonsense_is_no_obstacle(profile: Profile, content: str) -> None:
    profile.run.mkdir(parents=True)
    (profile.run / "lock").write_text(content)
    assert holder_of(profile) is None
    with (profile.run / "lock").open("a+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert holder_of(profile) is None
        with pytest.raises(HomeInUse, match="by another process"), HomeLock(profile, "chat"):
            pass
    with HomeLock(profile, "gateway"):
        pass


def test_the_folder_of_the_lock_is_private(profile: Profile) -> None:
    with HomeLock(profile, "gateway"):
        assert stat.S_IMODE(profile.run.stat().st_mode) == 0o700


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    profile = Profile("default", tmp_path / "file" / "home")
    with pytest.raises(ParleyError, match=r"cannot be used .* PARLEY_HOME"):
        HomeLock(profile, "gateway").__enter__()


def test_the_socket_is_in_the_home(profile: Profile) -> None:
    short = Profile("default", Path("/home/ann/.parley"))
    assert socket_path(short) == Path("/home/ann/.parley/run/parley.sock")


def test_a_long_home_gets_a_short_socket_in_a_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    homes = [Profile("default", Path("/home") / ("x" * 120) / name) for name in "ab"]
    first, second = map(socket_path, homes)
    assert first != second
    assert first == socket_path(homes[0])
    assert first.parent == tmp_path / f"parley-{os.getuid()}"
    assert len(os.fsencode(first)) - len(os.fsencode(tmp_path)) < 60
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("trick", ["open to others", "a link", "another's"])
def test_a_folder_that_is_not_private_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trick: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / f"parley-{os.getuid()}"
    if trick == "open to others":
        folder.mkdir()
        folder.chmod(0o755)
    elif trick == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to("elsewhere")
    elif os.geteuid() == 0:
        folder.mkdir(mode=0o700)
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("only root gives a folder away")
    with pytest.raises(ParleyError, match="is not private to you"):
        socket_path(Profile("default", Path("/home") / ("x" * 120)))
