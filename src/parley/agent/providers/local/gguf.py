"""The head of a GGUF file: whether it is one, and what it says of itself."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from parley.protocol import ParleyError

__all__ = ["GgufError", "GgufHeader", "read_header"]

_Value: TypeAlias = int | float | bool | str | None

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?"}
_SCALARS |= {10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_SIZE_LABEL = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)([KMBT])", re.IGNORECASE)
_SIZES = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
# Bits of a weight by `general.file_type`; those that are not here have about as many as usual.
_BITS = {0: 32.0, 1: 16.0, 7: 8.5, 8: 5.5, 9: 6.0, 10: 3.4, 11: 3.7, 12: 4.0, 13: 4.3}
_BITS |= {16: 5.6, 17: 5.7, 18: 6.6, 32: 16.0}
_USUAL_BITS = 4.8
_LONGEST_NAME = 65_536
_MOST_ENTRIES = 100_000


class GgufError(ParleyError):
    """The file is no GGUF, or cannot be read."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the file says of itself; what it does not say is empty or None."""

    architecture: str
    name: str
    context_window: int | None
    parameters: int | None = None
    """How large the model is, as its label says or as its size on disk lets one guess."""


def read_header(path: Path) -> GgufHeader:
    """Read the head of a GGUF file; raise `GgufError` when it is none."""
    try:
        with path.open("rb") as file:
            entries = _read_entries(file, path)
            size = file.seek(0, 2)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise GgufError(f"The weights {path} cannot be opened: {reason}.") from error
    except (struct.error, UnicodeDecodeError) as error:
        raise GgufError(f"{path} is a damaged GGUF file: fetch it again.") from error
    architecture = entries.get("general.architecture")
    name = entries.get("general.name")
    window = entries.get(f"{architecture}.context_length")
    return GgufHeader(
        architecture=architecture if isinstance(architecture, str) else "",
        name=name if isinstance(name, str) else "",
        context_window=window if isinstance(window, int) and window > 0 else None,
        parameters=_parameters(entries, size),
    )


def _parameters(entries: Mapping[str, _Value], size: int) -> int:
    count, label = entries.get("general.parameter_count"), entries.get("general.size_label")
    if isinstance(count, int) and count > 0:
        return count
    told = _SIZE_LABEL.match(label) if isinstance(label, str) else None
    if told is not None:
        return int(int(told[1] or 1) * float(told[2]) * _SIZES[told[3].upper()])
    kind = entries.get("general.file_type")
    bits = _BITS.get(kind, _USUAL_BITS) if isinstance(kind, int) else _USUAL_BITS
    return int(size * 8 / bits)


def _read_entries(file: BinaryIO, path: Path) -> dict[str, _Value]:
    if file.read(4) != b"GGUF":
        raise GgufError(f"{path} is not a GGUF file: Parley runs models in that format only.")
    version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    if version < 2:
        raise GgufError(f"{path} is a GGUF file of version {version}: fetch a newer one.")
    entries: dict[str, _Value] = {}
    for _ in range(min(count, _MOST_ENTRIES)):
        key = _read_string(file)
        # The vocabulary comes after what we look for, and is long: it is not read.
        if key.startswith("tokenizer."):
            break
        entries[key] = _read_value(file, _read_number(file, "<I"))
    return entries


def _read_value(file: BinaryIO, kind: int) -> _Value:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        inner, length = struct.unpack("<IQ", file.read(12))
        for _ in range(min(length, _MOST_ENTRIES)):
            _read_value(file, inner)
        return None
    layout = _SCALARS.get(kind)
    if layout is None:
        raise struct.error(f"unknown kind {kind}")
    return _read_number(file, layout)


def _read_number(file: BinaryIO, layout: str) -> int:
    value: int = struct.unpack(layout, file.read(struct.calcsize(layout)))[0]
    return value


def _read_string(file: BinaryIO) -> str:
    length = _read_number(file, "<Q")
    if length > _LONGEST_NAME:
        raise struct.error("a string too long")
    raw = file.read(length)
    if len(raw) < length:
        raise struct.error("the file ends in a string")
    return raw.decode("utf-8")
