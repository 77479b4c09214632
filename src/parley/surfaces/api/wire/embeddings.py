"""`/v1/embeddings`: what is asked for, and the vectors as they are answered."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from parley.memory.embeddings import WordVectors
from parley.surfaces.api.wire.body import check, tame
from parley.surfaces.api.wire.errors import BadRequest
from parley.surfaces.api.wire.models import User, WireModel

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

__all__ = ["EmbeddingRequest", "embedding_list", "read_embedding_request"]

MOST_TEXTS: Final = 2048
MOST_BYTES: Final = 32_768
MOST_TOKENS: Final = 8192
MOST_TOKENS_IN_ALL: Final = 300_000

_Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=MOST_BYTES)]


class EmbeddingRequest(WireModel):
    """Texts to be made into vectors."""

    model: str | None = Field(
        None,
        description="The name of the embedding model, or a profile; without one, that of the key.",
        examples=["parley"],
        max_length=256,
    )
    input: _Text | Annotated[list[_Text], Field(min_length=1, max_length=MOST_TEXTS)] = Field(
        description=f"A text or several, each of {MOST_BYTES} bytes and {MOST_TOKENS} tokens at "
        f"most, and {MOST_TOKENS_IN_ALL} tokens in all. Tokens of other models are refused.",
        examples=["The harbour is calm tonight."],
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`base64`: 32-bit floats, little-endian."
    )
    dimensions: int | None = Field(
        None, description="How many numbers a vector has: 64, 128 or 256.", examples=[256]
    )
    user: User = None


def read_embedding_request(body: object) -> EmbeddingRequest:
    return check(EmbeddingRequest, tame(body))


def embedding_list(asked: EmbeddingRequest, embedder: WordVectors) -> bytes:
    """The whole answer as JSON. It blocks: call it in a thread.

    Raises `BadRequest` for what the model cannot do, and `EmbeddingError` when it cannot be used.
    """
    size = _size(asked.dimensions, embedder.sizes)
    texts = [asked.input] if isinstance(asked.input, str) else asked.input
    total = 0
    data: list[str] = []
    for index, text in enumerate(texts):
        param = "input" if isinstance(asked.input, str) else f"input[{index}]"
        if len(text.encode()) > MOST_BYTES:
            raise _too_long(param, f"{MOST_BYTES:,} bytes")
        count, vector = embedder.count_and_embed(text, most=MOST_TOKENS)
        if vector is None:
            raise _too_long(param, f"{MOST_TOKENS:,} tokens")
        total += count
        if total > MOST_TOKENS_IN_ALL:
            raise _too_long("input", f"{MOST_TOKENS_IN_ALL:,} tokens in all")
        # One by one: a large list at once would keep other threads waiting.
        written = _written(_cut(vector, size), asked.encoding_format)
        data.append(f'{{"object":"embedding","index":{index},"embedding":{written}}}')
    tail = {"model": embedder.name, "usage": {"prompt_tokens": total, "total_tokens": total}}
    return f'{{"object":"list","data":[{",".join(data)}],{json.dumps(tail)[1:]}'.encode()


def _size(wanted: int | None, sizes: Sequence[int]) -> int:
    if wanted is not None and wanted not in sizes:
        *others, last = map(str, sizes)
        raise BadRequest(f"`dimensions` must be {', '.join(others)} or {last}.", param="dimensions")
    return wanted or sizes[-1]


def _cut(vector: NDArray[numpy.float32], size: int) -> NDArray[numpy.float32]:
    """Its first numbers, of length 1 again."""
    import numpy

    if size == len(vector):
        return vector
    shorter = vector[:size]
    length = float(numpy.linalg.norm(shorter))
    return shorter / length if length else shorter


def _written(vector: NDArray[numpy.float32], encoding: str | None) -> str:
    if encoding == "base64":
        return f'"{b64encode(vector.astype("<f4").tobytes()).decode()}"'
    return json.dumps(vector.tolist())


def _too_long(param: str, most: str) -> BadRequest:
    sentence = f"`{param}` may have {most} at most."
    return BadRequest(sentence, param=param, code="context_length_exceeded")
