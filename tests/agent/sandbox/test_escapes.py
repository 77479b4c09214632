"""The sandbox is tried by a script of escapes, run as the agent's commands are."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from parley.agent.processes import registry
from parley.agent.sandbox import bubblewrap
from parley.agent.sandbox.landlock import can_scope_sockets
from parley.agent.sandbox.seccomp.build import AUDIT_ARCH, read_syscalls
from tests.agent.processes.house import needs_bubblewrap, open_house
from tests.agent.sandbox.escapes import ATTEMPTS

pytestmark = [
    needs_bubblewrap,
    pytest.mark.skipif(os.uname().machine not in AUDIT_ARCH, reason="no filter for this machine"),
]

# Outside of a sandbox these lead to what they are after, for whoever runs the tests.
_REAL = (
    *("inherited_files", "read the profile: beside the workspace", "read the profile: a link"),
    *("read the profile: a linked folder", "hard_link_to_the_profile", "write: the profile"),
    *("signal_the_gateway", "see_the_gateway", "shared_memory_of_others"),
    *("abstract_socket_of_the_machine", "abstract_datagram_of_the_machine"),
    *("socket_with_a_path_of_the_machine", "server_of_the_machine", "set_user_id_by_chmod"),
    *("set_user_id_by_its_handle", "set_user_id_when_it_is_made", "set_user_id_by_openat2"),
    *("set_user_id_as_a_node", "trace_a_child", "read_memory_of_a_child"),
)
_FACTS = "facts.json"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What a command must not reach: a profile's secrets, sockets and memory of this process."""
    home = tmp_path / "home"
    workspace = home / "workspace"
    workspace.mkdir(parents=True)
    (home / ".env").write_text("KEY=sk-nobody-may-see-this")
    (workspace / "link-to-env").symlink_to(home / ".env")
    (workspace / "link-to-home").symlink_to(home)
    abstract = f"parley-escape-{os.getpid()}"
    machine = read_syscalls(os.uname().machine)
    numbers = {name: number for kind in machine.values() for name, number in kind.items()}
    libc = ctypes.CDLL(None, use_errno=True)
    key = os.getpid() | 0x50000000
    memory = libc.shmget(key, 4096, 0o1600)
    assert memory >= 0
    with ExitStack() as held:
        held.callback(libc.shmctl, memory, 0, None)
        server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        for kind, name in (
            (socket.SOCK_STREAM, f"\0{abstract}"),
            (socket.SOCK_DGRAM, f"\0{abstract}-datagram"),
            (socket.SOCK_STREAM, str(home / "socket")),
        ):
            own = held.enter_context(socket.socket(socket.AF_UNIX, kind))
            own.bind(name)
            if kind == socket.SOCK_STREAM:
                own.listen()
        facts = {
            "home": str(home),
            "workspace": str(workspace),
            "secret_name": ".env",
            "gateway": os.getpid(),
            "mark": Path("/proc/self/cmdline").read_text()[:40],
            "abstract": abstract,
            "socket": str(home / "socket"),
            "port": server.getsockname()[1],
            "shared_memory": key,
            "numbers": numbers,
        }
        (workspace / _FACTS).write_text(json.dumps(facts))
        shutil.copy(Path(__file__).with_name("escapes.py"), workspace)
        yield facts


async def _tried(facts: dict[str, Any], **more: Any) -> dict[str, str]:
    """What became of each attempt, in the sandbox."""
    async with open_house(Path(facts["home"]), mode="required") as house:
        process, text = await house.run("p1", f"python3 escapes.py {_FACTS}", timeout=60.0, **more)
    assert process.exit_code == 0, text
    found: dict[str, str] = json.loads(text.splitlines()[-1])
    assert set(found) == set(ATTEMPTS)
    if not Path(facts["home"], "planted").exists():  # it was written to the sandbox's own /tmp
        found["write: the profile"] = "barred: nothing came of it"
    return found


def _ways_out(found: dict[str, str]) -> set[str]:
    return {name for name, outcome in found.items() if outcome == "open"}


def test_the_attempts_are_real(outside: dict[str, Any]) -> None:
    """Where nothing keeps them, they succeed; the others would change this machine."""
    handle = os.open(outside["home"], os.O_RDONLY)
    try:
        done = subprocess.run(
            [sys.executable, "escapes.py", _FACTS, *_REAL],
            cwd=outside["workspace"],
            pass_fds=(handle,),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        os.close(handle)
    found = json.loads(done.stdout)
    assert {name: how for name, how in found.items() if how != "open"} == {}


async def test_no_attempt_leads_out_of_the_sandbox(outside: dict[str, Any]) -> None:
    assert _ways_out(await _tried(outside)) == set()


async def test_nor_from_a_terminal(outside: dict[str, Any]) -> None:
    # Its own terminal, which was made for it and ends with it, is there.
    assert _ways_out(await _tried(outside, pty=True)) <= {"keep_a_terminal_of_others"}


@pytest.mark.skipif(not can_scope_sockets(), reason="this kernel does not scope sockets")
async def test_with_the_network_only_servers_are_reached(outside: dict[str, Any]) -> None:
    assert _ways_out(await _tried(outside, network=True)) == {"server_of_the_machine"}


async def test_nor_where_the_kernel_cannot_scope_sockets(
    outside: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (bubblewrap, registry):
        monkeypatch.setattr(module, "can_scope_sockets", lambda: False)
    found = await _tried(outside, network=True)
    assert _ways_out(found) == {"server_of_the_machine"}
    assert "not supported" in found["abstract_socket_of_the_machine"]
