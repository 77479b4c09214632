"""The head of a GGUF file is read without loading the file; what is none is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.agent.providers.local.gguf import GgufError, read_header
from parley.agent.providers.local.weights import CATALOGUE, installed_file


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(*, window: int = 1234, label: str = "") -> bytes:
    """The head of a made-up model."""
    told = _text("general.size_label") + struct.pack("<I", 8) + _text(label) if label else b""
    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 5 + bool(label))
        + told
        + (_text("general.architecture") + struct.pack("<I", 8) + _text("llama"))
        + (_text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + _text("a") + _text("b"))
        + (_text("general.name") + struct.pack("<I", 8) + _text("Made up"))
        + (_text("llama.context_length") + struct.pack("<II", 4, window))
        + (_text("tokenizer.ggml.tokens") + b"never read")
    )


def test_a_head_tells_name_and_window(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(window=777))
    header = read_header(path)
    assert (header.architecture, header.name, header.context_window) == ("llama", "Made up", 777)


@pytest.mark.parametrize(
    ("label", "parameters"),
    [("1.5B", 1_500_000_000), ("135M", 135_000_000), ("8x7B", 56_000_000_000), ("30B-A3B", 3e10)],
)
def test_a_label_tells_how_large_a_model_is(tmp_path: Path, label: str, parameters: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(label=label))
    assert read_header(path).parameters == parameters


def test_without_a_label_the_size_on_disk_tells(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(gguf())
        file.truncate(4_800_000_000)  # sparse: it takes no room
    assert read_header(path).parameters == 8_000_000_000


def test_the_real_model_tells_the_window_that_the_catalogue_says(installed_cache: Path) -> None:
    model = CATALOGUE["smollm2"]
    header = read_header(installed_file(model, installed_cache))
    assert header.context_window == model.context_window


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04 a zip")
    with pytest.raises(GgufError, match="is not a GGUF file"):
        read_header(path)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GgufError, match="cannot be opened: No such file"):
        read_header(tmp_path / "none.gguf")


@given(length=st.integers(0, len(gguf()) - 11), noise=st.binary(max_size=40))
def test_a_damaged_head_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, length: int, noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(gguf()[:length] + noise)
    try:
        read_header(path)
    except GgufError as error:
        assert str(path) in str(error)
