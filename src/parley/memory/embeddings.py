"""Words as vectors, so that memory is found by meaning, where the extra `embeddings` is installed.

The model is a table of vectors that comes inside the `wordllama` package. Only its two files are
read: the package itself would set up logging and look for files on the network.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from parley.config.extras import install_command
from parley.protocol import ParleyError

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

__all__ = ["Embedder", "EmbeddingError", "WordVectors", "find_embedder"]

logger = logging.getLogger(__name__)

_PACKAGE: Final = "wordllama"
_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENS: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_TABLE: Final = "embedding.weight"
_MOST_OF_A_TEXT: Final = 4_000


class EmbeddingError(ParleyError):
    """The model cannot be used."""


class Embedder(Protocol):
    """A model that makes vectors of texts. It blocks: call it in a thread."""

    @property
    def name(self) -> str:
        """Vectors of one name can be compared with each other."""

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """A vector each: 16-bit floats, little-endian, of length 1, or all 0 where nothing is said.

        Raises `EmbeddingError` when it cannot.
        """


def find_embedder(setting: Literal["auto", "off"]) -> Embedder | None:
    """The installed model; None where there is none, or it is switched off. Nothing is loaded."""
    if setting == "off":
        return None
    package = find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        return None
    return WordVectors(Path(package.submodule_search_locations[0]))


class WordVectors:
    """The mean of the vectors of a text's words. The table is loaded by the first text."""

    name = "wordllama-l2-supercat-256"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loading = threading.Lock()
        self._loaded: tuple[Tokenizer, NDArray[numpy.float16]] | None = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            tokenizer, table = self._loaded
        # One by one: its batches start threads of their own, which do not outlive a fork.
        return [
            _mean(table, tokenizer.encode(text[:_MOST_OF_A_TEXT], add_special_tokens=False).ids)
            for text in texts
        ]


def _load(folder: Path) -> tuple[Tokenizer, NDArray[numpy.float16]]:
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(folder / _TOKENS)), _table(folder / _WEIGHTS)
    # Its tokenizer raises a bare Exception for a file it cannot read.
    except Exception as error:
        logger.warning("Memory is searched by words only: %s cannot be loaded (%s).", folder, error)
        raise EmbeddingError(
            f"The embedding model cannot be loaded: run `{install_command('embeddings')}` again."
        ) from error


def _table(file: Path) -> NDArray[numpy.float16]:
    """Mapped, not read: only what is looked up takes memory."""
    import numpy

    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        head = json.loads(stream.read(size))[_TABLE]
    if head["dtype"] != "F16":
        raise ValueError(f"its numbers are {head['dtype']}")
    start = 8 + size + head["data_offsets"][0]
    return numpy.memmap(file, "<f2", mode="r", offset=start, shape=tuple(head["shape"]))


def _mean(table: NDArray[numpy.float16], ids: Sequence[int]) -> bytes:
    import numpy

    known = [id for id in ids if id < len(table)]
    if not known:
        return bytes(2 * table.shape[1])
    mean = table[known].mean(axis=0, dtype=numpy.float32)
    length = float(numpy.linalg.norm(mean))
    vector: bytes = (mean / length if length else mean).astype("<f2").tobytes()
    return vector
