"""The model for meaning: what it needs, and what it does without."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from parley.config.extras import install_command
from parley.memory.embeddings import Embedder, EmbeddingError, WordVectors, find_embedder


def _embedder() -> Embedder:
    found = find_embedder("auto")
    assert found is not None
    return found


def _numbers(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 2}e", vector)


def _likeness(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(_numbers(one), _numbers(other), strict=True))


def test_what_means_the_same_is_nearer_than_what_does_not() -> None:
    asked, dog, server = _embedder().embed(
        ["what pet do they have", "Their dog is called Biscuit", "The staging server is heron"]
    )
    assert _likeness(asked, dog) > 0.3
    assert _likeness(asked, server) < 0.2


def test_vectors_have_length_one_and_silence_has_none() -> None:
    said, silence, long = _embedder().embed(["hello", "", "word " * 50_000])
    assert _likeness(said, said) == pytest.approx(1.0, abs=0.01)
    assert _likeness(long, long) == pytest.approx(1.0, abs=0.01)
    assert len(silence) == len(said) == 512
    assert not any(silence)


def test_it_can_be_switched_off() -> None:
    assert find_embedder("off") is None


def test_without_the_package_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    assert find_embedder("auto") is None


def test_files_that_cannot_be_read_are_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokenizers").mkdir()
    (tmp_path / "tokenizers" / "l2_supercat_tokenizer_config.json").write_text("{")
    broken = WordVectors(tmp_path)
    with pytest.raises(EmbeddingError, match=re.escape(install_command("embeddings"))):
        broken.embed(["hello"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "searched by words only" in caplog.text


_ALONE = """
import sys
from parley.memory.embeddings import find_embedder

def deny(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"it asked the network: {arguments}")

sys.addaudithook(deny)
found = find_embedder("auto")
early = {"numpy", "tokenizers", "wordllama"} & sys.modules.keys()
assert not early, early
assert found.embed(["hello"])
late = {"wordllama", "requests", "huggingface_hub"} & sys.modules.keys()
assert not late, late
"""


def test_nothing_is_loaded_before_the_first_text_and_nobody_is_asked(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _ALONE],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert not list(tmp_path.iterdir())
