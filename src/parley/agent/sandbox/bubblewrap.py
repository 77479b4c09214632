"""The command line of bubblewrap: what a command in the sandbox can see, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from parley.agent.sandbox.environment import clean_environment, personal_environment
from parley.agent.sandbox.landlock import can_scope_sockets
from parley.agent.sandbox.seccomp import filter_file

__all__ = ["Box", "bubblewrap_command"]

_TMP_BYTES = 512 * 1024 * 1024
_SHM_BYTES = 64 * 1024 * 1024
_SYSTEM = Path("/usr")
_HOME, _CACHE = "/empty-home", "/tmp/cache"  # noqa: S108 - a scratch place of the command alone
_BESIDE_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
    *("fonts", "gai.conf", "group", "host.conf", "hosts", "inputrc", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "networks"),
    *("nsswitch.conf", "os-release", "passwd", "perl", "pki/ca-trust", "pki/tls/cert.pem"),
    *("pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "python3", "resolv.conf", "rpc"),
    *("services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone"),
)
# Beside these a prefix may hold pip's settings, with the password of an index.
_OF_A_PREFIX = ("bin", "include", "lib", "lib64", "libexec", "pyvenv.cfg", "share")


@dataclass(frozen=True, slots=True)
class Box:
    """What one command is given."""

    workspace: Path
    cwd: Path
    network: bool = False
    read_only: tuple[Path, ...] = ()
    terminal: bool = False
    private: tuple[Path, Path] | None = None


def bubblewrap_command(
    program: str, argv: Sequence[str], box: Box, environment: Mapping[str, str]
) -> list[str]:
    workspace = box.workspace.resolve()
    return [
        *_started(program, filter_file(unix_sockets=not box.network or can_scope_sockets())),
        *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc"),
        *("--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"),
        *(() if box.network else ("--unshare-net",)),
        # With a session of its own it would lose the terminal that was made for it.
        *(() if box.terminal else ("--new-session",)),
        *("--hostname", "sandbox", "--clearenv"),
        *_variables(environment),
        *_system(),
        *_etc(),
        *_hidden(workspace),
        # For root all of /proc/sys is writable, and leads out.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *("--dev", "/dev", *_scratch("/dev/shm", _SHM_BYTES), "--remount-ro", "/dev"),  # noqa: S108
        *_scratch("/tmp", _TMP_BYTES),  # noqa: S108
        *("--perms", "0555", "--dir", _HOME),
        *_interpreter(workspace),
        *("--bind", str(workspace), str(workspace)),
        *(("--bind", *map(str, box.private)) if box.private is not None else ()),
        *_read_only(box.read_only),
        *("--remount-ro", "/"),
        *("--chdir", str(box.cwd)),
        "--",
        *argv,
    ]


def _started(program: str, filter: Path | None) -> tuple[str, ...]:
    """Bubblewrap with the filter as an open file, which it closes; it reads it from no path.

    What it was started with can be read inside, as that of process 1, so there is nothing.
    """
    if filter is None:
        return ("/usr/bin/env", "-i", program)
    script = 'exec /usr/bin/env -i "$@" 3<"$0"'
    return ("/bin/sh", "-c", script, str(filter), program, "--seccomp", "3")


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    given = clean_environment(environment) | personal_environment(_HOME, _CACHE)
    path = given.get("PATH", "")
    folders = [*path.split(os.pathsep), "/usr/local/bin", "/usr/bin", "/bin", f"{sys.prefix}/bin"]
    given["PATH"] = os.pathsep.join(dict.fromkeys(filter(None, folders)))
    for name in ("TMPDIR", "TMP", "TEMP"):
        given.pop(name, None)
    for name, value in given.items():
        yield from ("--setenv", name, value)


def _scratch(path: str, size: int) -> tuple[str, ...]:
    return ("--size", str(size), "--perms", "1777", "--tmpfs", path)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", str(_SYSTEM), str(_SYSTEM))
    for path in map(Path, _BESIDE_SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))


def _etc() -> Iterator[str]:
    for name in _ETC:
        path = Path("/etc", name)
        if path.exists():
            yield from ("--ro-bind", str(path), str(path))


def _private(workspace: Path) -> tuple[Path, ...]:
    """The homes that nothing may show: the profile's, that of all profiles, the person's."""
    home = workspace.parent
    every = home.parent.parent if home.parent.name == "profiles" else home
    return (home, every, Path(os.environ.get("HOME") or "/").resolve())


def _hidden(workspace: Path) -> Iterator[str]:
    """A home within the system's folder is covered."""
    for home in dict.fromkeys(_private(workspace)):
        if _SYSTEM in home.parents and home.is_dir():
            yield from ("--tmpfs", str(home))


def _interpreter(workspace: Path) -> Iterator[str]:
    """Where Python lives, when that is not the system's folder."""
    private = _private(workspace)
    for prefix in dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix))):
        if prefix == _SYSTEM or _SYSTEM in prefix.parents or len(prefix.parts) < 2:
            continue
        if any(prefix == home or prefix in home.parents for home in private):
            continue
        for name in _OF_A_PREFIX:
            if (prefix / name).exists():
                yield from ("--ro-bind", str(prefix / name), str(prefix / name))


def _read_only(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from ("--ro-bind-try", str(path), str(path))
