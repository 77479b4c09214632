"""People as an owner sees them in a terminal, and as scripts do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from parley.agent.person import Plan, UserSettings
from parley.cli._plain import one_line
from parley.storage.people import Chat, User

__all__ = ["Shown", "as_list", "as_record", "as_text", "plan_words"]

_WIDEST = 60


@dataclass(frozen=True, slots=True)
class Shown:
    """One person and all that is told of them. `used` is what they used of the plan this month."""

    user: User
    settings: UserSettings
    plan: Plan | None
    used: int
    chats: Sequence[Chat] = ()


def as_list(people: Sequence[Shown], zone: tzinfo | None = None) -> str:
    """One line a person: who, what they are called, since when, and their plan."""
    rows = [("person", "name", "since", "plan")]
    for shown in people:
        user = shown.user
        name = one_line(user.display_name or "", longest=30)
        since = f"{datetime.fromtimestamp(user.created_at, zone):%Y-%m-%d}"
        rows.append((one_line(user.person, longest=_WIDEST), name, since, plan_words(shown)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join(f"{row[i]:<{widths[i]}}" for i in range(3)) + f"  {row[3]}" for row in rows]
    return "\n".join(lines) + "\n"


def as_text(shown: Shown) -> str:
    """All of it, a line each."""
    theirs, user = shown.settings, shown.user
    soul = " ".join(part for part in (theirs.soul.name, theirs.soul.instructions) if part)
    lines = [
        ("person", user.person),
        ("name", user.display_name or "none"),
        ("plan", plan_words(shown)),
        ("skills", _listed(theirs.skills)),
        ("connectors", _listed(theirs.connectors)),
        ("safety", _listed(theirs.safety)),
        ("soul", soul or "none"),
        ("chats", str(len(shown.chats))),
    ]
    return "".join(f"{name:<11} {one_line(text, longest=400)}\n" for name, text in lines)


def as_record(shown: Shown) -> dict[str, object]:
    theirs, user, plan = shown.settings, shown.user, shown.plan
    return {
        "person": user.person,
        "platform": user.platform,
        "external_id": user.external_id,
        "display_name": user.display_name,
        "created_at": datetime.fromtimestamp(user.created_at, UTC).isoformat(),
        "plan": None
        if plan is None
        else {"name": plan.name, "tokens": plan.tokens, "used": shown.used},
        "skills": dict(theirs.skills),
        "connectors": dict(theirs.connectors),
        "safety": dict(theirs.safety),
        "soul": {"name": theirs.soul.name, "instructions": theirs.soul.instructions},
        "chats": [
            {"label": chat.label, "name": chat.name, "archived": chat.archived}
            for chat in shown.chats
        ],
    }


def plan_words(shown: Shown) -> str:
    plan = shown.plan
    if plan is None:
        return "none"
    return f"{one_line(plan.name, longest=40)}: {shown.used:,} of {plan.tokens:,} tokens this month"


def _listed(switches: Mapping[str, bool]) -> str:
    return ", ".join(f"{name} {'on' if on else 'off'}" for name, on in switches.items()) or "none"
