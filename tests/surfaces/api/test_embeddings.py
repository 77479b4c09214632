"""Texts as vectors, as OpenAI's own client asks for them and reads them."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, PermissionDeniedError

from parley.config.extras import install_command
from parley.memory import embeddings
from tests.surfaces.api.served import Served, a_key

NAME = "wordllama-l2-supercat-256"
TEXTS = ["what pet do they have", "Their dog is called Biscuit", "The staging server is heron"]


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_what_means_the_same_is_nearer_than_what_does_not(client: AsyncOpenAI) -> None:
    got = await client.embeddings.create(model="parley", input=TEXTS)
    assert [each.index for each in got.data] == [0, 1, 2]
    pet, dog, server = (each.embedding for each in got.data)
    assert len(pet) == 256
    assert likeness(pet, pet) == pytest.approx(1.0, abs=0.001)
    assert likeness(pet, dog) > 0.3 > 0.2 > likeness(pet, server)
    assert got.model == NAME


async def test_floats_and_base64_are_the_same_numbers(client: AsyncOpenAI) -> None:
    formats: tuple[Literal["float", "base64"], ...] = ("float", "base64")
    plain, packed = [
        (await client.embeddings.create(model=NAME, input="heron", encoding_format=each)).data[0]
        for each in formats
    ]
    usual = (await client.embeddings.create(model=NAME, input="heron")).data[0]
    sent: object = packed.embedding
    assert isinstance(sent, str)  # as it was asked for, so the client does not unpack it
    assert struct.unpack("<256f", b64decode(sent)) == pytest.approx(plain.embedding, abs=1e-7)
    assert usual.embedding == pytest.approx(plain.embedding, abs=1e-7)


async def test_all_tokens_are_counted(client: AsyncOpenAI) -> None:
    one = await client.embeddings.create(model="parley", input="heron")
    two = await client.embeddings.create(model="parley", input=["heron", "heron"])
    long = await client.embeddings.create(model="parley", input="heron " * 2000)
    assert 0 < one.usage.prompt_tokens == one.usage.total_tokens < 10
    assert two.usage.total_tokens == 2 * one.usage.total_tokens
    assert long.usage.total_tokens >= 2000


async def test_the_end_of_a_long_text_counts_too(client: AsyncOpenAI) -> None:
    start = "The harbour is calm. " * 400
    got = await client.embeddings.create(model="parley", input=[start, start + "Tax law. " * 400])
    assert got.data[0].embedding != got.data[1].embedding


async def test_a_vector_is_cut_to_the_sizes_that_the_model_knows(client: AsyncOpenAI) -> None:
    for size in (64, 128, 256):
        got = await client.embeddings.create(model="parley", input=TEXTS, dimensions=size)
        pet, dog, server = (each.embedding for each in got.data)
        assert len(pet) == size
        assert likeness(pet, pet) == pytest.approx(1.0, abs=0.001)
        assert likeness(pet, dog) > likeness(pet, server)
    with pytest.raises(BadRequestError, match="`dimensions` must be 64, 128 or 256"):
        await client.embeddings.create(model="parley", input="heron", dimensions=1536)


@pytest.mark.parametrize(
    ("given", "param", "sentence"),
    [
        ("", "input", "is empty"),
        ([], "input", "is empty"),
        (["heron", ""], "input[1]", "is empty"),
        ([[1, 2, 3]], "input[0]", "must be a string"),
        (["x"] * 2049, "input", "may have 2048 entries at most"),
        ("x" * 40_000, "input", "may have 32768 characters at most"),
        (["ok", "é" * 20_000], "input[1]", "may have 32,768 bytes at most"),
        (["q7" * 8_000], "input[0]", "may have 8,192 tokens at most"),
        (["the " * 4000] * 80, "input", "may have 300,000 tokens in all at most"),
    ],
)
async def test_what_is_too_much_or_no_text_is_refused(
    client: AsyncOpenAI, given: Any, param: str, sentence: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        await client.embeddings.create(model="parley", input=given)
    assert refused.value.param == param
    assert sentence in str(refused.value)


async def test_a_model_that_nobody_knows_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError) as refused:
        await client.embeddings.create(model="text-embedding-3-small", input="heron")
    assert refused.value.code == "model_not_found"


async def test_a_key_needs_the_scope_chat(served: Served) -> None:
    client = await served.client(a_key(served.house.profile, "runner", "runs"))
    with pytest.raises(PermissionDeniedError):
        await client.embeddings.create(model="parley", input="heron")


async def test_it_is_there_below_a_profile_and_only_below_one_that_is_served(
    served: Served,
) -> None:
    body = {"input": "heron"}
    got = await served.post("/p/default/v1/embeddings", body)
    assert (got.status, json.loads(got.body)["model"]) == (200, NAME)
    assert (await served.post("/p/nobody/v1/embeddings", body)).status == 404


async def test_without_the_model_only_an_operator_is_told_what_to_install(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    program = await served.client(a_key(served.house.profile, "program", "chat"))
    with pytest.raises(NotFoundError) as refused:
        await program.embeddings.create(model="parley", input="heron")
    assert refused.value.body["message"] == "There is no embedding model here."  # type: ignore[index]
    assert refused.value.code == "embeddings_not_installed"
    operator = await served.client(a_key(served.house.profile, "boss", "chat,admin"))
    with pytest.raises(NotFoundError) as refused:
        await operator.embeddings.create(model="parley", input="heron")
    assert install_command("embeddings") in str(refused.value)


async def test_the_capabilities_name_it_where_it_is_installed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = json.loads((await served.get("/v1/capabilities")).body)["features"]
    monkeypatch.setitem(sys.modules, "wordllama", None)
    gone = json.loads((await served.get("/v1/capabilities")).body)["features"]
    assert "embeddings" in there
    assert "embeddings" not in gone


async def test_the_event_loop_goes_on_meanwhile(served: Served) -> None:
    """The gateway and this test share their loop."""
    texts = ["The harbour is calm tonight. " * 15] * 2000
    longest, last = 0.0, time.monotonic()
    asked = asyncio.create_task(served.post("/v1/embeddings", {"input": texts}))
    began = time.monotonic()
    while not asked.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    took = time.monotonic() - began
    got = await asked
    assert got.status == 200
    assert len(json.loads(got.body)["data"]) == 2000
    assert longest < took / 3


def test_all_profiles_share_one_loaded_model() -> None:
    assert embeddings.find_embedder("auto") is embeddings.find_embedder("auto")
