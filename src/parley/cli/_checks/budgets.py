"""Whether budgets can be kept, and whether there is somebody to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parley.cli._checks.answering import who_answers
from parley.cli._checks.finding import Finding, edit, fault, note, ok
from parley.cli._checks.settings import Ground
from parley.protocol import ParleyError

if TYPE_CHECKING:
    from parley.config.settings import Settings

__all__ = ["check_budgets", "check_owners"]


def check_budgets(ground: Ground) -> list[Finding]:
    """That the price of the model is known where there is a budget in money: else it is not asked.

    A stand-in of unknown price is counted like the model that it stands in for.
    """
    settings = ground.settings
    if settings is None or "agent" not in who_answers(settings):
        return []
    from parley.agent.budget import Budget

    budget = Budget(settings)
    if not budget.is_limited:
        return [ok("budgets", "there are none: what may be spent on models is not limited.")]
    chosen = _chosen(ground, settings)
    if chosen is None or not budget.limits_money or budget.price(*chosen) is not None:
        return [ok("budgets", "are set.")]
    model = chosen[1]
    what = (
        f"there is one in money, but the price of {model} is not known, so it is not asked: set "
        f"`prices.{model}` (`input` and `output`, in US dollars for a million tokens)."
    )
    return [fault("budgets", what, edit(ground.profile.config_file))]


def check_owners(ground: Ground) -> list[Finding]:
    """That somebody can allow commands where people chat and no sandbox holds them."""
    settings = ground.settings
    if settings is None or "agent" not in who_answers(settings):
        return []
    chats = [name for name, surface in settings.surfaces if getattr(surface, "enabled", False)]
    if settings.access.owners or not chats or "terminal" not in _tools(settings):
        return []
    from parley.agent.sandbox import find_sandbox

    try:
        if find_sandbox(settings.terminal.sandbox).contains:
            return []
    except ParleyError:
        return []  # no command runs; the check of the sandbox tells why
    what = (
        f"commands run without a sandbox and need an owner's word, but access.owners names nobody "
        f"on {', '.join(chats)}: there they are refused."
    )
    return [note("owners", what, f"parley config set access.owners {chats[0]}:USER")]


def _chosen(ground: Ground, settings: Settings) -> tuple[str, str] | None:
    """Provider and model that answer first; what is wrong with them is told elsewhere."""
    from parley.agent.providers import build_provider

    alone = settings.model.model_copy(update={"fallback": []})
    try:
        found = build_provider(settings.model_copy(update={"model": alone}), ground.secret)
    except ParleyError:
        return None
    return found.label, found.model


def _tools(settings: Settings) -> set[str]:
    agent = settings.agent
    return {*agent.tools, *(name for names in agent.surfaces.values() for name in names)}
