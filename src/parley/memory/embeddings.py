"""Words as vectors, so that memory is found by meaning, where the extra `embeddings` is installed.

The model is a table of vectors that comes inside the `wordllama` package. Only its two files are
read: the package itself would set up logging and look for files on the network.
"""

from __future__ import annotations

import functools
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


def find_embedder(setting: Literal["auto", "off"]) -> WordVectors | None:
    """The installed model; None where there is none, or it is switched off. Nothing is loaded."""
    if setting == "off":
        return None
    package = find_spec(_PACKAGE)
    if package is None or not package.submodule_search_locations:
        return None
    return _shared(Path(package.submodule_search_locations[0]))


@functools.cache
def _shared(folder: Path) -> WordVectors:
    """One for all who ask, as it takes memory once it is loaded."""
    return WordVectors(folder)


class WordVectors:
    """The mean of the vectors of a text's words. The table is loaded by the first text."""

    name = "wordllama-l2-supercat-256"
    sizes = (64, 128, 256)
    """How many numbers a vector may be cut to and still be compared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loading = threading.Lock()
        self._loaded: tuple[Tokenizer, NDArray[numpy.float16]] | None = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        tokenizer, table = self._model()
        # One by one: its batches start threads of their own, which do not outlive a fork.
        return [
            _mean(table, _tokens(tokenizer, text[:_MOST_OF_A_TEXT])).astype("<f2").tobytes()
            for text in texts
        ]

    def count_and_embed(self, text: str, *, most: int) -> tuple[int, NDArray[numpy.float32] | None]:
        """The number of tokens in all of the text, and its vector unless they are too many."""
        tokenizer, table = self._model()
        ids = _tokens(tokenizer, text)
        return len(ids), _mean(table, ids) if len(ids) <= most else None

    def _model(self) -> tuple[Tokenizer, NDArray[numpy.float16]]:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._folder)
            return self._loaded


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


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _mean(table: NDArray[numpy.float16], ids: Sequence[int]) -> NDArray[numpy.float32]:
    """Of length 1, or all 0 where no word is known."""
    import numpy

    known = [id for id in ids if id < len(table)]
    if not known:
        return numpy.zeros(table.shape[1], dtype=numpy.float32)
    mean: NDArray[numpy.float32] = table[known].mean(axis=0, dtype=numpy.float32)
    length = float(numpy.linalg.norm(mean))
    return mean / length if length else mean
