"""The settings of a profile, typed: what `config.yaml` may hold, with its defaults."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = [
    "BUILT_IN_PROVIDERS",
    "PROVIDER_NAME",
    "AgentSettings",
    "GatewaySettings",
    "LocalModelSettings",
    "LogSettings",
    "ModelSettings",
    "ProviderSettings",
    "Settings",
]

BUILT_IN_PROVIDERS: Final = ("local", "openai", "anthropic")
PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def _no_truth(value: object) -> object:
    """`port: true` is a slip, not the number 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "wants a number")
    return value


Number = BeforeValidator(_no_truth)
Seconds = Annotated[float, Field(ge=0, le=86_400), Number]
Count = Annotated[int, Field(ge=1), Number]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class ModelSettings(_Section):
    """Which provider answers, and which ones stand in for it."""

    provider: str = Field(default="local", description="a name under `providers`")
    name: str | None = Field(
        default=None, description="the model to ask for; the provider's own if unset"
    )
    fallback: list[str] = Field(
        default_factory=list, description="providers to try, in order, when the first one fails"
    )


class ProviderSettings(_Section):
    """How to reach one provider. Its key is in `.env`, under `key_env`."""

    kind: Literal["openai", "anthropic", "local"] = Field(
        default="openai", description="the wire format: `openai` is spoken by most servers"
    )
    base_url: str | None = Field(default=None, description="the address up to and with `/v1`")
    model: str | None = Field(default=None, description="the model to ask for")
    key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")] | None = Field(
        default=None, description="the variable in `.env` that holds the key"
    )
    context_window: Annotated[int, Field(ge=512), Number] | None = Field(
        default=None, description="tokens that fit, prompt and reply together"
    )
    max_output_tokens: Count | None = Field(default=None, description="longest reply, in tokens")
    temperature: Annotated[float, Field(ge=0, le=2), Number] | None = Field(
        default=None, description="0: the likeliest words; higher: more varied ones"
    )
    timeout_seconds: Seconds = Field(default=120.0, description="longest silence of the server")
    tools: bool = Field(default=True, description="whether the model is offered tools")


class LocalModelSettings(_Section):
    """The model that runs on this machine."""

    weights: str = Field(
        default="smollm2", description="an installed model's name, or a path to a .gguf"
    )
    context_tokens: Annotated[int, Field(ge=512), Number] = Field(
        default=8192, description="tokens that fit, prompt and reply together"
    )
    threads: Annotated[int, Field(ge=0), Number] = Field(default=0, description="0: every core")
    tools: Literal["auto", "on", "off"] = Field(
        default="auto", description="`auto`: on for models known to use tools well"
    )


class AgentSettings(_Section):
    """The limits of one turn of the built-in agent."""

    tools: list[str] = Field(
        default_factory=lambda: ["now", "read_file"], description="tools the agent may use"
    )
    max_steps: Count = Field(default=40, description="model calls in one turn")
    turn_seconds: Seconds = Field(default=900.0, description="longest turn")
    turn_tokens: Count = Field(
        default=400_000, description="tokens, in and out, that one turn may use"
    )


class GatewaySettings(_Section):
    """The process that serves the surfaces."""

    host: str = Field(default="127.0.0.1", description="the address HTTP is served on")
    port: Annotated[int, Field(ge=0, le=65_535), Number] = Field(
        default=8642, description="0: any free port"
    )
    drain_seconds: Seconds = Field(
        default=10.0, description="how long running turns may finish when the gateway stops"
    )
    running_turns: Count = Field(default=1000, description="turns that run side by side")
    busy: Literal["steer", "queue", "interrupt"] = Field(
        default="steer", description="what a message does that arrives during a turn of its session"
    )


class LogSettings(_Section):
    """What is written to `logs/parley.log`."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least important thing that is written"
    )


class Settings(_Section):
    """Everything in `config.yaml`."""

    model: ModelSettings = ModelSettings()
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict, description="`local`, `openai` and `anthropic` are always there"
    )
    local: LocalModelSettings = LocalModelSettings()
    agent: AgentSettings = AgentSettings()
    gateway: GatewaySettings = GatewaySettings()
    log: LogSettings = LogSettings()
