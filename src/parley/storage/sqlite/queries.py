"""The SQL of this engine, by name: each statement in `sql/*.sql` under a line `-- name: …`."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["SQL"]


def _load() -> dict[str, str]:
    statements: dict[str, str] = {}
    for file in files("parley.storage.sqlite").joinpath("sql").iterdir():
        for block in file.read_text(encoding="utf-8").split("-- name:")[1:]:
            name, _, body = block.partition("\n")
            lines = (line for line in body.splitlines() if not line.startswith("--"))
            statements[name.strip()] = "\n".join(lines).strip().rstrip(";")
    return statements


SQL = _load()
