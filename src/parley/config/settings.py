"""The settings of a profile, typed: what `config.yaml` may hold, with its defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from parley.config.backends import BackendName, DirectSettings
from parley.config.fields import Count, Id, Minutes, Number, Seconds, Section, TimeOfDay, TimeZone
from parley.config.hands import (
    AccessSettings,
    BudgetSettings,
    McpServerSettings,
    PriceSettings,
    TerminalSettings,
    WebSettings,
)
from parley.config.memory import MemorySettings
from parley.config.network import HostName, ProxyNetwork, PublicUrl, TlsSettings
from parley.config.people import PlanSettings
from parley.config.surfaces import SurfaceSettings, WebhookSettings

__all__ = [
    "BUILT_IN_PROVIDERS",
    "DEFAULT_TOOLS",
    "LEAN_TOOLS",
    "PROVIDER_NAME",
    "AgentSettings",
    "ApiConfig",
    "AuditSettings",
    "GatewayConfig",
    "LocalModelSettings",
    "LogSettings",
    "ModelSettings",
    "ProviderSettings",
    "RouteSettings",
    "SessionSettings",
    "Settings",
    "SurfaceSessionSettings",
    "SurfaceSettings",
    "TlsSettings",
    "WebhookSettings",
]

BUILT_IN_PROVIDERS: Final = ("local", "openai", "anthropic")
DEFAULT_TOOLS: Final = (
    "clarify",
    "delegate_task",
    "edit_file",
    "mcp",
    "memory",
    "now",
    "process",
    "read_file",
    "read_skill",
    "schedule",
    "search_files",
    "send_file",
    "send_message",
    "session_search",
    "terminal",
    "todo",
    "web_fetch",
    "web_search",
    "write_file",
)
LEAN_TOOLS: Final = (
    "now",
    "list_files",
    "read_file",
    "write_file",
    "run_command",
    "remind",
    "remember",
)
PROVIDER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def _address(value: object) -> object:
    """Blank is unset: a line that is left there to be filled in harms nobody."""
    from parley.config.proxy import clean_address

    return clean_address(value) if isinstance(value, str) else value


def _address_of_an_agent(value: str | None) -> str | None:
    from parley.config.proxy import address_fault

    fault = None if value is None else address_fault(value)
    if fault is not None:
        raise PydanticCustomError(fault, "wants the address of a server")
    return value


def _origin(value: str) -> str:
    from parley.config.hosts import is_origin

    if not is_origin(value):
        raise PydanticCustomError("origin_name", "wants an origin")
    return value


Reset = Literal["never", "idle", "daily", "both"]
AgentAddress = Annotated[
    str | None, BeforeValidator(_address), AfterValidator(_address_of_an_agent)
]


Origin = Annotated[str, AfterValidator(_origin)]


class ModelSettings(Section):
    """Which provider answers, and which ones stand in for it."""

    provider: str = Field(default="local", description="a name under `providers`")
    name: str | None = Field(
        default=None, description="the model to ask for; the provider's own if unset"
    )
    fallback: list[str] = Field(
        default_factory=list, description="providers to try, in order, when the first one fails"
    )


class ProviderSettings(Section):
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


class LocalModelSettings(Section):
    """The model that runs on this machine."""

    weights: str = Field(
        default="smollm2", description="an installed model's name, or a path to a .gguf"
    )
    context_tokens: Annotated[int, Field(ge=512), Number] = Field(
        default=8192, description="tokens that fit, prompt and reply together"
    )
    threads: Annotated[int, Field(ge=0), Number] = Field(default=0, description="0: every core")
    tools: Literal["auto", "on", "off"] = Field(
        default="auto", description="`auto`: on for models that are large enough to use them well"
    )


class AgentSettings(Section):
    """The limits of one turn of the built-in agent."""

    tools: list[str] = Field(
        default_factory=lambda: list(DEFAULT_TOOLS),
        description="tools the agent may use; `mcp` stands for those of all MCP servers",
    )
    surfaces: dict[str, list[str]] = Field(
        default_factory=dict,
        description="a surface, such as `webhook`: the tools there, instead of `tools`",
    )
    prompt: Literal["auto", "lean", "full"] = Field(
        default="auto",
        description="`lean`: a short prompt and `lean_tools`; `auto`: so for small local models",
    )
    lean_tools: list[str] = Field(
        default_factory=lambda: list(LEAN_TOOLS),
        description="the few tools of a lean prompt, in this order; about seven are best",
    )
    max_steps: Count = Field(default=40, description="model calls in one turn")
    turn_seconds: Seconds = Field(default=900.0, description="longest turn")
    turn_tokens: Count = Field(
        default=400_000, description="tokens, in and out, that one turn may use"
    )
    running_tasks: Count = Field(default=16, description="delegated tasks that run side by side")
    answer_minutes: Minutes = Field(
        default=10, description="how long a question to a person may wait for its answer"
    )
    safety: dict[str, bool] = Field(
        default_factory=dict,
        description="`email-send`, `file-delete`, `social-post`: ask a person first; on if unset",
    )
    taint: Literal["ask", "block", "off"] = Field(
        default="ask",
        description=(
            "what remembers, schedules, sends, spends or reaches a new host after text from "
            "outside was read: `ask` a person first, `block` it, or `off`"
        ),
    )


class RouteSettings(Section):
    """Whose messages on a shared account go to which profile. What is left out matches all."""

    profile: Id = Field(description="who answers")
    platform: Id | None = Field(default=None, description="such as `telegram`")
    account: Id | None = Field(default=None, description="the account it came in by")
    guild: Id | None = Field(default=None, description="the server, space or workspace")
    chat: Id | None = Field(default=None, description="the room, group or direct chat")
    thread: Id | None = Field(default=None, description="the thread or topic in it")
    user: Id | None = Field(default=None, description="who speaks")


class ApiConfig(Section):
    """The API server: who may ask from a browser, and how much."""

    origins: list[Origin] = Field(
        default_factory=list,
        description="web pages that may ask, such as https://chat.example.org; none if empty",
    )
    models: dict[str, Id] = Field(
        default_factory=dict,
        description="other names of profiles for programs, such as `gpt-4o: default`",
    )
    requests_per_minute: Annotated[int, Field(ge=0), Number] = Field(
        default=0, description="of one key; 0: no limit. A key may have its own"
    )
    body_mb: Annotated[int, Field(ge=1, le=1024), Number] = Field(
        default=32, description="the largest request, files and all, in megabytes"
    )


class GatewayConfig(Section):
    """The process that serves the surfaces."""

    host: str = Field(default="127.0.0.1", description="the address HTTP is served on")
    port: Annotated[int, Field(ge=0, le=65_535), Number] = Field(
        default=8642, description="0: any free port"
    )
    public_url: PublicUrl = Field(
        default=None,
        description=(
            "the address people use, such as https://agent.example.org; with https:// it says that "
            "a proxy in front terminates TLS"
        ),
    )
    hosts: list[HostName] = Field(
        default_factory=list,
        description="further names that HTTP requests may use for this server in `Host`",
    )
    trusted_proxies: list[ProxyNetwork] = Field(
        default_factory=list,
        description="addresses of proxies whose `X-Forwarded-For` is believed, such as 127.0.0.1",
    )
    tls: TlsSettings = TlsSettings()
    drain_seconds: Seconds = Field(
        default=10.0, description="how long running turns may finish when the gateway stops"
    )
    running_turns: Count = Field(
        default=1000,
        description="turns that run side by side; programs leave a tenth of them to people",
    )
    busy: Literal["steer", "queue", "interrupt"] = Field(
        default="steer", description="what a message does that arrives during a turn of its session"
    )
    multiplex_profiles: bool = Field(
        default=False, description="one gateway serves every profile; read from the default profile"
    )
    profiles: list[Id] = Field(
        default_factory=list, description="of all profiles serve only these; empty: every one"
    )
    routes: list[RouteSettings] = Field(
        default_factory=list, description="which profile answers where; see docs/profiles.md"
    )
    api: ApiConfig = ApiConfig()
    proxy_url: AgentAddress = Field(
        default=None,
        description="a remote agent that answers instead; its key is `GATEWAY_PROXY_KEY`",
    )
    proxy_model: str | None = Field(
        default=None, description="the model to ask the remote agent for; `parley` if unset"
    )
    proxy_tools: bool = Field(
        default=False,
        description="a remote server that is not Parley takes `tools` and `response_format`",
    )
    proxy_timeout_seconds: Seconds = Field(
        default=300.0, description="longest silence of the remote agent; 0: any"
    )

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Self:
        """From a whole configuration, or from its `gateway` section alone."""
        from parley.config.gateway import gateway_values

        return cls.model_validate(gateway_values(record, environ or {}))

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class SurfaceSessionSettings(Section):
    """What is different about sessions on one surface."""

    group_sessions_per_user: bool | None = Field(default=None, description="as above")
    thread_sessions_per_user: bool | None = Field(default=None, description="as above")
    reset: Reset | None = Field(default=None, description="as above")
    idle_minutes: Minutes | None = Field(default=None, description="as above")
    daily_at: TimeOfDay | None = Field(default=None, description="as above")
    reset_triggers: list[str] | None = Field(default=None, description="as above")


class SessionSettings(Section):
    """Which messages share a conversation, and when a new one begins by itself."""

    group_sessions_per_user: bool = Field(
        default=True, description="in a group everyone has a conversation of their own"
    )
    thread_sessions_per_user: bool = Field(
        default=False, description="in a thread of a group too; else the thread is one conversation"
    )
    reset: Reset = Field(
        default="never",
        description="when a new conversation begins: after a pause (`idle`), each day, or `both`",
    )
    idle_minutes: Minutes = Field(default=1440, description="how long a pause is, for `idle`")
    daily_at: TimeOfDay = Field(default="04:00", description="the time of day, for `daily`")
    timezone: TimeZone | None = Field(
        default=None, description="whose time of day, such as Europe/Paris; the machine's if unset"
    )
    reset_triggers: list[str] = Field(
        default_factory=lambda: ["/new", "/reset"],
        description="messages that begin a new conversation",
    )
    reset_notice: bool = Field(
        default=True, description="say so when a conversation was begun anew by itself"
    )
    surfaces: dict[str, SurfaceSessionSettings] = Field(
        default_factory=dict,
        description="a surface, such as `webhook`; what is set there wins on it",
    )


class LogSettings(Section):
    """What is written to `logs/parley.log`."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least important thing that is written"
    )


class AuditSettings(Section):
    """What is kept in the audit log; read from the default profile, for all of them."""

    keep_mb: Annotated[int, Field(ge=1, le=102_400), Number] = Field(
        default=64, description="how much of it is kept, in megabytes"
    )
    keep_days: Annotated[int, Field(ge=0, le=36_500), Number] = Field(
        default=365, description="how long it is kept; 0: until it is too large"
    )
    on_failure: Literal["warn", "refuse"] = Field(
        default="warn",
        description=(
            "when it cannot be written: say so and go on, or `refuse` tool calls that change "
            "something"
        ),
    )


class Settings(Section):
    """Everything in `config.yaml`."""

    backend: BackendName | None = Field(
        default=None,
        description=(
            "who answers: the built-in `agent`, a `proxy`, a `direct` agent, or a `mock` that only "
            "repeats; unset: the `proxy` where `gateway.proxy_url` is set, else the `agent`"
        ),
    )
    direct: DirectSettings = DirectSettings()
    model: ModelSettings = ModelSettings()
    providers: dict[str, ProviderSettings] = Field(
        default_factory=dict,
        description="yours to choose; `local`, `openai` and `anthropic` are always there",
    )
    local: LocalModelSettings = LocalModelSettings()
    agent: AgentSettings = AgentSettings()
    gateway: GatewayConfig = GatewayConfig()
    sessions: SessionSettings = SessionSettings()
    memory: MemorySettings = MemorySettings()
    terminal: TerminalSettings = TerminalSettings()
    web: WebSettings = WebSettings()
    mcp: dict[str, McpServerSettings] = Field(
        default_factory=dict,
        description="yours to choose; its tools are named after it",
    )
    access: AccessSettings = AccessSettings()
    plan: PlanSettings = PlanSettings()
    budgets: BudgetSettings = BudgetSettings()
    prices: dict[str, PriceSettings] = Field(
        default_factory=dict, description="the name of a model, or its beginning and `*`"
    )
    surfaces: SurfaceSettings = SurfaceSettings()
    log: LogSettings = LogSettings()
    audit: AuditSettings = AuditSettings()
