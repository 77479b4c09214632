"""`python -m parley`, and the `parley` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from parley import __version__

        sys.stdout.write(f"parley {__version__}\n")
        return
    try:
        from parley.cli import run
        from parley.cli._hardening import harden_process

        harden_process()
        run(sys.argv[1:])
    except KeyboardInterrupt:  # while still loading
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
