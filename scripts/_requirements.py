"""Print the requirements in the [project] table of a TOML file.

python scripts/_requirements.py FILE [EXTRA,EXTRA…]; without the last, those of every extra.
"""

import sys
import tomllib
from pathlib import Path


def main(file: str, extras: str | None = None) -> None:
    project = tomllib.loads(Path(file).read_text())["project"]
    optional = project.get("optional-dependencies", {})
    lines = dict.fromkeys(project.get("dependencies", []))
    for extra in optional if extras is None else extras.split(","):
        lines |= dict.fromkeys(optional.get(extra, []))
    sys.stdout.writelines(f"{line}\n" for line in lines)


main(*sys.argv[1:])
