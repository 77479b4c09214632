"""The plan of guests: what each may use in a month."""

from __future__ import annotations

from pydantic import Field

from parley.config.fields import Count, Section

__all__ = ["PlanSettings"]


class PlanSettings(Section):
    """What each guest may use in a month, unless given a plan of their own; owners have none."""

    name: str = Field(default="Beta", description="what it is called")
    tokens: Count | None = Field(
        default=None, description="tokens, in and out, in a month; `null`: no plan, no limit"
    )
