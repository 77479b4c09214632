"""A gateway that kills itself, with SIGKILL, at a chosen step of what it does.

Steps are the statements that SQLite runs and what is done to the files of memory, in their order;
they are watched from outside, by hooks of Python and of SQLite. `choose` says where to die.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["COMMAND", "MOMENTS", "choose", "died_at"]

COMMAND = ("-m", "tests.servers.dying_gateway")
MOMENTS = {
    "look": r"SELECT s\.\*, t\.source.*WHERE s\.id = '",
    "write": r"SELECT s\.\* FROM session s LEFT JOIN lane",
    "fold": r"UPDATE session SET summary",
    "view": r"INSERT INTO memory_place \(place, version, view_version, view\)",
    "edit": r"SELECT \* FROM memory_commit WHERE dedupe = 'view:",
}
"""Where counting begins: a session is read, a consolidation is written, and so on."""

_CHOICE, _DEATHS = "die.json", "deaths.txt"
_connect = sqlite3.connect
_FILES = frozenset({"open", "os.rename", "os.mkdir", "os.remove"})


def choose(home: Path, moment: str | None, steps: int = 0) -> None:
    """The next one on this home dies so many steps after the moment; None: it lives."""
    home.joinpath(_CHOICE).write_text(json.dumps({"moment": moment, "steps": steps}))


def died_at(home: Path) -> list[str]:
    """The steps before which they died, so far."""
    file = home / _DEATHS
    return file.read_text().splitlines() if file.exists() else []


class _Steps:
    def __init__(self, home: Path) -> None:
        choice = json.loads(home.joinpath(_CHOICE).read_text())
        self._begin = re.compile(MOMENTS[choice["moment"]], re.DOTALL)
        self._left = choice["steps"]
        self._moment = choice["moment"]
        self._begun = False
        self._deaths = home / _DEATHS
        self._folder = str(home / "memory")
        self._lock = threading.RLock()

    def watch(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES and self._begun and str(arguments[0]).startswith(self._folder):
            self._step(f"{event} {_name(str(arguments[0]))}")

    def connect(self, *arguments: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = _connect(*arguments, **more)
        connection.set_trace_callback(self._statement)
        return connection

    def _statement(self, text: str) -> None:
        self._begun = self._begun or self._begin.search(text) is not None
        if self._begun:
            self._step(_words(text))

    def _step(self, step: str) -> None:
        with self._lock:
            if self._left > 0:
                self._left -= 1
                return
            self._begun = False
            with self._deaths.open("a") as file:
                file.write(f"{self._moment}: {step}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def _words(statement: str) -> str:
    """What it does and to what, without values."""
    told = " ".join(line for line in statement.splitlines() if not line.startswith("--"))
    found = re.match(r"(?i)(INSERT INTO|DELETE FROM|UPDATE) \w+( SET \w+)?", told)
    if found is not None:
        return found[0]
    table = re.search(r"\bFROM (\w+)", told)
    return f"SELECT … FROM {table[1]}" if table else " ".join(told.split()[:2])


def _name(path: str) -> str:
    name = Path(path).name
    return "a temporary file" if name.startswith(".") else name


def main() -> None:
    from parley.__main__ import main as run

    home = Path(os.environ["PARLEY_HOME"])
    if json.loads(home.joinpath(_CHOICE).read_text())["moment"] is not None:
        steps = _Steps(home)
        sys.addaudithook(steps.watch)
        vars(sqlite3)["connect"] = steps.connect
    sys.argv[1:] = ["gateway", "run"]
    run()


if __name__ == "__main__":
    main()
