"""What is remembered, and how it is tended."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.config.fields import Count, Number, Section

__all__ = ["MemorySettings"]


class MemorySettings(Section):
    """What the built-in agent remembers, and how it is tended while people are away."""

    enabled: bool = Field(
        default=True, description="remember people, and fold long conversations into summaries"
    )
    learn: bool = Field(
        default=True,
        description="take facts from what was said, by asking the model when a conversation rests",
    )
    groups: bool = Field(
        default=True, description="remember in groups too: what is said in one stays in it"
    )
    idle_check_interval: Annotated[float, Field(ge=0.01, le=86_400), Number] = Field(
        default=60.0,
        description="seconds between looks; a conversation rests after twice that",
    )
    prompt_tokens: Count = Field(
        default=800, description="how much of what is remembered stands in every prompt, in tokens"
    )
    provider: str | None = Field(
        default=None, description="a provider that tends memory; who answers there, if unset"
    )
    model: str | None = Field(default=None, description="the model it is asked for")
    embeddings: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: memory is searched by meaning too if the extra `embeddings` is there",
    )
