"""Settings of what the agent may do with its hands: run, fetch, spend, and whom it asks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parley.config.fields import Count, Id, Number, Seconds, Section, TimeZone

__all__ = [
    "AccessSettings",
    "BudgetLimits",
    "BudgetSettings",
    "McpServerSettings",
    "PriceSettings",
    "SearchSettings",
    "TerminalSettings",
    "WebSettings",
]

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Money = Annotated[float, Field(ge=0, le=1_000_000), Number]
Megabytes = Annotated[int, Field(ge=1, le=1_048_576), Number]


class TerminalSettings(Section):
    """How commands and files are kept in bounds."""

    sandbox: Literal["auto", "required", "off"] = Field(
        default="auto",
        description=(
            "`auto`: bubblewrap where it works, else an owner is asked about each command; "
            "`required`: no command without it; `off`: always ask an owner"
        ),
    )
    network: bool = Field(default=False, description="commands in the sandbox may use the network")
    timeout_seconds: Seconds = Field(
        default=120.0, description="longest command, where the agent names no other time"
    )
    memory_mb: Megabytes = Field(
        default=4096, description="memory of one command with all that it started, in megabytes"
    )
    processes: Count = Field(default=200, description="processes of one command at a time")
    file_mb: Megabytes = Field(
        default=1024, description="the largest file a command may write, in megabytes"
    )
    workspace_mb: Megabytes = Field(
        default=10_240,
        description="disk space of the workspace and all conversations' files, in megabytes",
    )
    person_mb: Megabytes = Field(
        default=2048,
        description=(
            "disk space of one person's conversations, with what a running command of theirs adds "
            "to the workspace, in megabytes"
        ),
    )
    workspace_files: Count = Field(
        default=200_000, description="files and folders in the workspace and all conversations"
    )
    output_kb: Annotated[int, Field(ge=4, le=1_048_576), Number] = Field(
        default=1024, description="how much of a command's output is kept, in kilobytes"
    )


class SearchSettings(Section):
    """Who searches the web. Its key is in `.env`, under `key_env`."""

    provider: Literal["searxng", "brave", "tavily"] | None = Field(
        default=None, description="whom to ask; nobody if unset"
    )
    url: str | None = Field(default=None, description="its address; `searxng` has none of its own")
    key_env: EnvName | None = Field(
        default=None, description="the variable in `.env` that holds the key"
    )


class WebSettings(Section):
    """What is fetched from the web."""

    allow: list[Id] = Field(
        default_factory=list,
        description="private hosts that may be fetched all the same, as host or host:port",
    )
    fetch_mb: Megabytes = Field(default=5, description="the largest page, in megabytes")
    timeout_seconds: Seconds = Field(default=30.0, description="longest fetch")
    search: SearchSettings = SearchSettings()


class McpServerSettings(Section):
    """One MCP server: a `command` that is started, or a `url`."""

    command: str | None = Field(default=None, description="the program to start")
    args: list[str] = Field(default_factory=list, description="what it is started with")
    env: dict[EnvName, str] = Field(
        default_factory=dict, description="variables it is given, beside `PATH` and the like"
    )
    secrets: list[EnvName] = Field(
        default_factory=list, description="variables of `.env` that it is given too"
    )
    url: str | None = Field(default=None, description="the address of one that runs already")
    token_env: EnvName | None = Field(
        default=None, description="the variable in `.env` that holds the token for `url`"
    )
    enabled: bool = Field(default=True, description="use it")
    trusted: bool = Field(
        default=False,
        description="what it says of its tools is your own word; its results never are",
    )
    tools: list[str] = Field(
        default_factory=list, description="of its tools offer only these; all if empty"
    )
    ask: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="`auto`: ask a person before calls not marked read-only",
    )
    triggers: dict[str, str] = Field(
        default_factory=dict,
        description="one of its tools: the safety trigger it falls under, such as `email-send`",
    )
    skill: Id | None = Field(
        default=None,
        description="offered to those who have this skill on, such as `email`; to all if unset",
    )
    timeout_seconds: Seconds = Field(default=60.0, description="longest call")


class AccessSettings(Section):
    """Whose word counts."""

    owners: list[Id] = Field(
        default_factory=list,
        description=(
            "who may allow everything, as `platform:user id`; "
            "whoever is at this machine's terminal always may"
        ),
    )


class BudgetLimits(Section):
    """What may be spent; no limit where unset."""

    day_tokens: Count | None = Field(default=None, description="tokens, in and out, in a day")
    month_tokens: Count | None = Field(default=None, description="tokens in a month")
    day_money: Money | None = Field(default=None, description="US dollars in a day")
    month_money: Money | None = Field(default=None, description="US dollars in a month")


class BudgetSettings(Section):
    """What may be spent on models by the whole profile, by each person, in each session."""

    profile: BudgetLimits = BudgetLimits()
    user: BudgetLimits = BudgetLimits()
    session: BudgetLimits = BudgetLimits()
    timezone: TimeZone | None = Field(
        default=None, description="whose days and months; the machine's if unset"
    )


class PriceSettings(Section):
    """US dollars for a million tokens."""

    input: Money = Field(description="of the prompt")
    output: Money = Field(description="of the answer")
    cached: Money | None = Field(default=None, description="of the part the provider had cached")
