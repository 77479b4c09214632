"""Becomes a program that dies with whoever started it, even if that one is killed.

Run as a script, before anything of ours is imported: `child.py <pid of the parent> <program> …`.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)  # it died before we could ask
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)  # the interpreter's own choice, and no one else's
    try:
        os.execvp(command[0], command)  # noqa: S606 - a shell is what is not wanted here
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main()
