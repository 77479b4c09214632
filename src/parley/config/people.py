"""Settings of what everyone may use who is no owner."""

from __future__ import annotations

from pydantic import Field

from parley.config.fields import Count, Section

__all__ = ["PlanSettings"]


class PlanSettings(Section):
    """What each person may use in a month, unless they were given more; owners have no plan."""

    name: str = Field(default="Beta", description="what it is called")
    tokens: Count | None = Field(
        default=1000, description="tokens, in and out, in a month; `null`: no limit"
    )
