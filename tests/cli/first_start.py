"""`parley` with a catalogue of made-up models: `python -m tests.cli.first_start chat`.

`MADE_UP_SHA256` and `MADE_UP_SIZE` are those of the weights in the wheel `made-up-part1`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from types import MappingProxyType

from parley.agent.providers.local import weights
from parley.cli import run

if __name__ == "__main__":
    pieces = (weights.Piece("made-up-part1", "1.0", ".bin"),)
    sha256, size = os.environ["MADE_UP_SHA256"], int(os.environ["MADE_UP_SIZE"])
    weights.CATALOGUE = MappingProxyType(
        {
            name: replace(model, pieces=pieces, sha256=sha256, size=size)
            for name, model in weights.CATALOGUE.items()
        }
    )
    run(sys.argv[1:])
