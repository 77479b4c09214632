"""The parts that requests have in common, as programs write them. Unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = [
    "Call",
    "Content",
    "Effort",
    "Function",
    "FunctionCall",
    "MaxTokens",
    "Metadata",
    "ModelName",
    "Part",
    "Penalty",
    "Seed",
    "Stop",
    "StreamOptions",
    "Temperature",
    "ToolName",
    "TopP",
    "User",
    "WireModel",
]

MOST_MESSAGES = 10_000
MOST_TOOLS = 256

ToolName: TypeAlias = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$", examples=["weather"])]
_CallId: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]


class WireModel(BaseModel):
    """A JSON object: types are taken at their word, what is not known is passed over."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


# ── wishes ────────────────────────────────────────────────────────────────────────────────────

ModelName: TypeAlias = Annotated[
    str | None,
    Field(
        description="The profile that answers; without one, that of the key.",
        examples=["parley"],
        max_length=256,
    ),
]
MaxTokens: TypeAlias = Annotated[
    int | None, Field(description="The most tokens the reply may have.", ge=1, le=2**31 - 1)
]
Temperature: TypeAlias = Annotated[
    float | None, Field(description="How freely the model chooses its words.", ge=0, le=2)
]
TopP: TypeAlias = Annotated[
    float | None, Field(description="How much of the likely words it chooses from.", ge=0, le=1)
]
Seed: TypeAlias = Annotated[
    int | None,
    Field(description="The same seed gives much the same reply.", ge=-(2**63), le=2**63 - 1),
]
Penalty: TypeAlias = Annotated[
    float | None, Field(description="Against repetition; the provider applies it.", ge=-2, le=2)
]
Effort: TypeAlias = Annotated[
    str | None,
    Field(
        description="How long a model that reasons may think, in its provider's words.",
        examples=["low"],
        pattern=r"^[a-z_]{1,32}$",
    ),
]
_StopText: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Stop: TypeAlias = Annotated[
    _StopText | Annotated[list[_StopText], Field(max_length=16, fail_fast=True)] | None,
    Field(description="The reply ends before any of these texts.", examples=[["\n\n"]]),
]
MOST_NOTES = 16


def _few(notes: object) -> object:
    """Counted before they are read: each that is wrong costs time."""
    if isinstance(notes, dict) and len(notes) > MOST_NOTES:
        raise PydanticCustomError("too_long", "too many", {"max_length": MOST_NOTES})
    return notes


Metadata: TypeAlias = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None,
    Field(description="Notes of your own, given back with the answer.", max_length=MOST_NOTES),
    BeforeValidator(_few),
]
User: TypeAlias = Annotated[
    str | None, Field(description="Whom you ask for, in your own words.", max_length=512)
]


class StreamOptions(WireModel):
    """What else a stream holds."""

    include_usage: bool | None = Field(None, description="End with a chunk that counts the tokens.")


# ── tools ─────────────────────────────────────────────────────────────────────────────────────


class Function(WireModel):
    """A function of yours that the model may ask you to call."""

    name: ToolName
    description: str | None = Field(None, description="What it does, for the model.")
    parameters: dict[str, Any] | None = Field(
        None,
        description="A JSON schema of its arguments.",
        examples=[{"type": "object", "properties": {"city": {"type": "string"}}}],
    )
    strict: bool | None = Field(
        None, description="Whether calls keep to the schema to the letter; the provider sees to it."
    )


class FunctionCall(WireModel):
    """The function the model asked for."""

    name: str = Field(min_length=1, max_length=128)
    arguments: str = Field(description="A JSON object, as text.", examples=['{"city":"Bern"}'])


class Call(WireModel):
    """A call the model made in an earlier reply."""

    id: _CallId
    type: str = "function"
    function: FunctionCall | None = None


# ── content ───────────────────────────────────────────────────────────────────────────────────


Detail: TypeAlias = Annotated[
    Literal["auto", "low", "high", "original"] | None,
    Field(description="How closely the model looks at a picture."),
]


class ImageUrl(WireModel):
    """A picture."""

    url: str = Field(description="A data URL, or a web address that the provider opens.")
    detail: Detail = None


class FileRef(WireModel):
    """A file."""

    file_data: str | None = Field(None, description="A data URL, or base64.")
    filename: str | None = Field(None, examples=["report.pdf"])
    file_id: str | None = Field(None, description="Refused: there are no uploaded files.")


class Audio(WireModel):
    """A recording."""

    data: str = Field(description="Base64.")
    format: str = Field(examples=["wav", "mp3"])


class Part(WireModel):
    """A piece of a message. Its `type` says which of the other fields it has."""

    type: Literal[
        "text",
        "input_text",
        "output_text",
        "refusal",
        "reasoning_text",
        "image_url",
        "input_image",
        "file",
        "input_file",
        "input_audio",
    ]
    text: str | None = Field(None, description="Of `text`, `input_text` and `output_text`.")
    refusal: str | None = Field(None, description="Of `refusal`.")
    image_url: str | ImageUrl | None = Field(None, description="Of `image_url`, `input_image`.")
    detail: Detail = Field(None, description="Of `input_image`.")
    file: FileRef | None = Field(None, description="Of `file`.")
    file_data: str | None = Field(None, description="Of `input_file`: a data URL, or base64.")
    filename: str | None = Field(None, description="Of `input_file`.")
    file_url: str | None = Field(None, description="Of `input_file`: a web address.")
    file_id: str | None = Field(None, description="Refused: there are no uploaded files.")
    input_audio: Audio | None = Field(None, description="Of `input_audio`.")


Content: TypeAlias = str | Annotated[list[Part], Field(max_length=1000, fail_fast=True)]
