"""`python -m parley`, and the `parley` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from parley import __version__

        sys.stdout.write(f"parley {__version__}\n")
        return
    from parley.cli import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
