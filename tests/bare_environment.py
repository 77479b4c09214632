"""A Python environment that has Parley's code and nothing else: no pip, no extras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BareEnvironment"]

_PACKAGE = Path(__file__).parents[1] / "src" / "parley"


@dataclass(frozen=True, slots=True)
class BareEnvironment:
    """A virtual environment in `root`, as an installer would leave it."""

    root: Path

    @classmethod
    def make(cls, root: Path) -> BareEnvironment:
        venv.EnvBuilder(with_pip=False, symlinks=True).create(root)
        made = cls(root)
        (made.site / "parley").symlink_to(_PACKAGE)
        return made

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.root / "lib" / version / "site-packages"

    def installed_from(self, origin: dict[str, object]) -> None:
        """Leave the record of an install from somewhere else than a package index."""
        info = self.site / "parley_gateway-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parley-gateway\n")
        (info / "direct_url.json").write_text(json.dumps(origin))

    def run(self, code: str, *, stdin: str = "", **environment: str) -> str:
        """What a program prints there."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PARLEY", "PIP_"))}
        return subprocess.run(
            [str(self.python), "-c", code],
            env=inherited | environment,
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
