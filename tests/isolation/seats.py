"""Where people sit: which account they speak by, as whom, and which profile is to answer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from parley.profiles import DEFAULT_PROFILE
from tests.isolation.canaries import Canary

__all__ = ["Seat", "has_webhook", "route_of", "seats_of"]

Kind = Literal["terminal", "lent", "own", "by_chat", "by_user", "by_space"]
_ROUND: Final[tuple[Kind, ...]] = (
    *("terminal", "own", "by_chat", "by_user", "by_space"),
    *("terminal", "own", "by_user", "terminal", "lent"),
)
_SHARED: Final = frozenset({"lent", "by_chat", "by_user", "by_space"})


@dataclass(frozen=True, slots=True)
class Seat:
    """One person's place. Chats, users and events are called the same in every profile, and by
    every account, as far as the routes allow.
    """

    profile: str
    session: str
    kind: Kind
    number: int
    """Among those of its kind."""
    place: int
    """Among those of its account."""

    @property
    def platform(self) -> str:
        return _platform(self.kind)

    @property
    def account(self) -> str:
        """Whose account it is that they speak by."""
        return DEFAULT_PROFILE if self.kind in _SHARED else self.profile

    @property
    def chat(self) -> str:
        if self.kind in {"by_chat", "lent"}:
            return f"{self.profile}-room-{self.number}"
        return f"chat-{self.number}"

    @property
    def chat_type(self) -> str:
        return "group" if self.kind == "by_space" else "dm"

    @property
    def user(self) -> str:
        return f"guest-of-{self.profile}" if self.kind == "by_user" else "ann"

    @property
    def space(self) -> str | None:
        return f"space-of-{self.profile}" if self.kind == "by_space" else None

    @property
    def word(self) -> Canary:
        """What they tell the agent."""
        return Canary(self.profile, "word", self.session)

    @property
    def name(self) -> Canary:
        """What they are called."""
        return Canary(self.profile, "name", self.session)

    @property
    def namespace(self) -> str:
        return "main" if self.profile == DEFAULT_PROFILE else self.profile

    def event(self, number: int) -> str:
        return f"{self.place}-{number}"


def _platform(kind: Kind) -> str:
    return "terminal" if kind in {"terminal", "lent"} else "webhook"


def has_webhook(index: int) -> bool:
    """Every other profile has an account of its own; the default profile's is the shared one."""
    return index % 2 == 0


def seats_of(profiles: Sequence[str], each: int) -> list[Seat]:
    """So many sessions of each profile; neighbours in the list are of different profiles."""
    rows = [list(_row(name, index, each)) for index, name in enumerate(profiles)]
    return [seat for column in zip(*rows, strict=True) for seat in column]


def _row(profile: str, index: int, each: int) -> Iterator[Seat]:
    numbers: Counter[Kind] = Counter()
    places: Counter[tuple[str, bool]] = Counter()
    for position in range(each):
        kind = _ROUND[position % len(_ROUND)]
        if profile == DEFAULT_PROFILE:
            kind = "terminal" if kind in {"terminal", "lent"} else "own"
        elif kind == "own" and not has_webhook(index):
            kind = "terminal"
        account = (_platform(kind), kind in _SHARED)
        yield Seat(profile, f"s{position:02}", kind, numbers[kind], places[account])
        numbers[kind] += 1
        places[account] += 1


def route_of(seat: Seat) -> Mapping[str, Any] | None:
    """The route that brings this seat's messages to its profile; None where none is needed."""
    route = {"platform": seat.platform, "profile": seat.profile}
    match seat.kind:
        case "lent" | "by_chat":
            return {**route, "chat": seat.chat}
        case "by_user":
            return {**route, "user": seat.user}
        case "by_space":
            return {**route, "guild": seat.space}
        case _:
            return None
