"""The child process that runs the model: llama.cpp's server on a loopback port, behind a key.

Run as `python -m parley.agent.providers.local.child`. One line of JSON on stdin says what to load
and holds the key, so that it stands in no argument list and no environment; one line of JSON on
stdout answers. After that stdin is only watched: when it ends, the parent is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Answer", "Load", "main"]

SLOTS = 2
# A cancelled prompt stops after the batch it is at: small ones stop soon, and cost a tenth more.
_BATCH = 128
_CACHED_PROMPTS_MIB = 256
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What the parent asks for. `context_tokens` is for each request, `threads` 0 is our choice.

    `runtime` is a directory to import xllamacpp from, where the environment has none.
    """

    weights: str
    context_tokens: int
    threads: int
    key: str
    parent: int
    runtime: str | None = None

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it: the server's address, or what went wrong."""

    outcome: Literal["ready", "no_library", "not_loaded"]
    address: str = ""
    cause: str = ""

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> int:
    """Load, answer, serve until the parent goes."""
    with contextlib.suppress(AttributeError, ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    load = Load(**json.loads(sys.stdin.buffer.readline()))
    _die_with(load.parent)
    # The gateway's event loop goes first: generation takes every core there is.
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever llama.cpp prints goes to the log
    try:
        _server, answer = _serve(load)  # it serves for as long as it is held
    except ImportError as error:
        answers.write(Answer("no_library", cause=str(error)).to_line())
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary to a C++ library: it raises anything
        answers.write(Answer("not_loaded", cause=str(error)).to_line())
        return 1
    answers.write(answer.to_line())
    answers.close()
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def _serve(load: Load) -> tuple[object, Answer]:
    if load.runtime is not None:
        sys.path.append(load.runtime)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = load.weights
    params.n_parallel = SLOTS
    params.n_ctx = load.context_tokens * SLOTS
    params.n_batch = params.n_ubatch = _BATCH
    params.cache_ram_mib = _CACHED_PROMPTS_MIB
    if load.threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = load.threads
    params.sampling.temp = 0.0
    params.sampling.penalty_repeat = 1.0
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [load.key]
    params.cors_origins = ""
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.offline = True
    params.verbosity = 1  # errors only
    server = xllamacpp.Server(params)
    return server, Answer("ready", address=str(server.listening_address))


def _die_with(parent: int) -> None:
    """Ask the kernel for a SIGKILL when the parent dies, and to keep our memory to ourselves.

    The signal also works while weights load.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The key and what people say are in its memory: nobody else's to read, nor a core's.
            libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
