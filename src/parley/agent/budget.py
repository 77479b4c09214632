"""What may be spent: the settings' limits as moments and numbers, and the purse of one turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from parley.agent.person import Plan
from parley.agent.prices import Price, cost_micros, price_of
from parley.config.zones import time_zone
from parley.protocol import Failed, Usage
from parley.storage.hands import Limit, Overrun, Reservation, Spent

if TYPE_CHECKING:
    from parley.config.hands import BudgetLimits
    from parley.config.settings import Settings
    from parley.storage.hands import HandsStore, Payer

__all__ = ["Budget", "BudgetRefusal", "Purse", "describe"]

Period: TypeAlias = Literal["day", "month"]

_MILLION = 1_000_000
_USUAL_ANSWER = 2_048
_WHOSE = {
    "profile": "This profile's budget",
    "user": "Your budget",
    "session": "This conversation's budget",
}
_PERIOD = {"day": "for today", "month": "for this month"}


class BudgetRefusal(NamedTuple):
    """Why a call is not made. `public` is for people whose own budget or plan it is."""

    sentence: str
    public: str = ""

    def failed(self) -> Failed:
        return Failed(self.sentence, cause="budget", kind="budget", public=self.public)


class Budget:
    """The limits that the settings name, and what calls cost. Pure."""

    def __init__(self, settings: Settings) -> None:
        self._budgets = settings.budgets
        self._prices = settings.prices
        zone = settings.budgets.timezone
        self._zone = time_zone(zone) if zone is not None else None
        all_limits = (self._budgets.profile, self._budgets.user, self._budgets.session)
        set_ones = [name for limits in all_limits for name, value in limits if value is not None]
        self.is_limited = bool(set_ones)
        self.limits_money = any(name.endswith("_money") for name in set_ones)

    def limits(self, now: float, plan: Plan | None = None) -> tuple[Limit, ...]:
        """Those that hold at this moment; that of the plan last."""
        if plan is None:
            return self._of_settings(now)
        theirs = Limit("user", "month", *self._month(now), tokens=plan.tokens, plan=plan.name)
        return (*self._of_settings(now), theirs)

    def _of_settings(self, now: float) -> tuple[Limit, ...]:
        if not self.is_limited:
            return ()
        spans = {"day": self._day(now), "month": self._month(now)}
        found = (
            _limit(whose, period, *spans[period], limits=getattr(self._budgets, whose))
            for whose in ("profile", "user", "session")
            for period in ("day", "month")
        )
        return tuple(limit for limit in found if limit is not None)

    def estimate(self, prompt_tokens: int, max_output: int | None) -> int:
        """How many tokens a call may take, where the longest answer is known; else, as a rule."""
        return prompt_tokens + (_USUAL_ANSWER if max_output is None else max_output)

    def price(self, provider: str, model: str) -> Price | None:
        return price_of(provider, model, self._prices)

    def priced(self, usage: Usage) -> Usage:
        """With what it cost, where that is known."""
        price = self.price(usage.provider, usage.model)
        return usage if price is None else replace(usage, micros=cost_micros(price, usage))

    def sentence(self, overrun: Overrun, needs: Spent) -> str:
        """Why no call is made: whose budget, what is spent of it, and when it begins anew."""
        limit, spent = overrun.limit, overrun.spent
        if limit.plan is not None:
            return (
                f"Your plan {limit.plan} is used up: {spent.tokens:,} of {limit.tokens or 0:,} "
                f"tokens this month; it begins anew on {self._moment(limit.until)}, and an owner "
                "can give you more."
            )
        if limit.tokens is not None and spent.tokens + needs.tokens > limit.tokens:
            taken, most, more = f"{spent.tokens:,}", f"{limit.tokens:,} tokens", f"{needs.tokens:,}"
        else:
            taken, most = _dollars(spent.micros), _dollars(limit.micros or 0)
            more = _dollars(needs.micros)
        return (
            f"{_WHOSE[limit.whose]} {_PERIOD[limit.period]} does not reach for this: {taken} of "
            f"{most} are spent or held, and it may take {more} more, so the model was not asked; "
            f"the budget begins anew on {self._moment(limit.until)}."
        )

    def refusal(self, overrun: Overrun, needs: Spent) -> BudgetRefusal:
        sentence = self.sentence(overrun, needs)
        return BudgetRefusal(sentence, "" if overrun.limit.whose == "profile" else sentence)

    def no_price(self, model: str) -> str:
        return (
            f"There is a budget in money, and the price of {model} is not known, so the model was "
            f"not asked: set `prices.{model}` (`input` and `output`, in US dollars for a million "
            "tokens) in config.yaml."
        )

    def _day(self, now: float) -> tuple[float, float]:
        today = datetime.fromtimestamp(now, self._zone).date()
        # More than the two days at hand: a clock may be put back over midnight, or skip a day.
        return self._around(now, (today + timedelta(days=step) for step in (-2, -1, 0, 1, 2)))

    def _month(self, now: float) -> tuple[float, float]:
        today = datetime.fromtimestamp(now, self._zone).date()
        months = (today.year * 12 + today.month - 1 + step for step in (-1, 0, 1, 2))
        return self._around(now, (date(month // 12, month % 12 + 1, 1) for month in months))

    def _around(self, now: float, days: Iterable[date]) -> tuple[float, float]:
        """The last of these days' beginnings until now, and the next one."""
        begins = [datetime.combine(day, time.min, tzinfo=self._zone).timestamp() for day in days]
        return max(at for at in begins if at <= now), min(at for at in begins if at > now)

    def _moment(self, at: float) -> str:
        local = datetime.fromtimestamp(at, self._zone)
        name = self._zone.key if self._zone is not None else local.astimezone().tzname()
        return f"{local:%Y-%m-%d at %H:%M} ({name})"


class Purse:
    """What one turn pays from. Nothing is held, and no store is asked, where there is no limit."""

    def __init__(
        self,
        store: HandsStore,
        budget: Budget,
        *,
        payer: Payer,
        turn: int,
        owner: str,
        plan: Plan | None = None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._budget = budget
        self._payer = payer
        self._turn = turn
        self._owner = owner
        self._held_at: Price | None = None

    @property
    def is_limited(self) -> bool:
        planned = self._plan is not None and self._plan.tokens is not None
        return planned or self._budget.is_limited

    async def reserve(
        self,
        provider: str,
        model: str,
        *,
        prompt_tokens: int,
        max_output_tokens: int | None,
        now: float,
    ) -> BudgetRefusal | None:
        """Hold what a call may cost; a refusal where it must not be made."""
        budget = self._budget
        if not self.is_limited:
            return None
        price = budget.price(provider, model)
        if price is None and budget.limits_money:
            return BudgetRefusal(budget.no_price(model))
        self._held_at = price
        tokens = budget.estimate(prompt_tokens, max_output_tokens)
        most = Usage(provider, model, prompt_tokens, tokens - prompt_tokens)
        micros = cost_micros(price, most) if price is not None else 0
        reservation = Reservation(
            turn=self._turn,
            payer=self._payer,
            owner=self._owner,
            provider=provider,
            model=model,
            input_tokens=prompt_tokens,
            tokens=tokens,
            micros=micros,
        )
        overrun = await self._store.reserve(reservation, budget.limits(now, self._plan))
        return None if overrun is None else budget.refusal(overrun, Spent(tokens, micros))

    def priced(self, usage: Usage) -> Usage:
        """With what it cost.

        A stand-in that answered, and whose price is not known, costs what the model did that
        was to answer.
        """
        price = self._budget.price(usage.provider, usage.model) or self._held_at
        return usage if price is None else replace(usage, micros=cost_micros(price, usage))


def describe(limit: Limit, spent: Spent) -> str:
    """How much of a budget is spent, in a line."""
    if limit.plan is not None:
        used = f"{spent.tokens:,} of {limit.tokens or 0:,} tokens this month"
        return f"Your plan {limit.plan}: {used}."
    said = []
    if limit.tokens is not None:
        said.append(f"{spent.tokens:,} of {limit.tokens:,} tokens")
    if limit.micros is not None:
        said.append(f"{_dollars(spent.micros)} of {_dollars(limit.micros)}")
    return f"{_WHOSE[limit.whose]} {_PERIOD[limit.period]}: {' and '.join(said)}."


def _limit(
    whose: Literal["profile", "user", "session"],
    period: Period,
    since: float,
    until: float,
    *,
    limits: BudgetLimits,
) -> Limit | None:
    if period == "day":
        tokens, money = limits.day_tokens, limits.day_money
    else:
        tokens, money = limits.month_tokens, limits.month_money
    if tokens is None and money is None:
        return None
    micros = None if money is None else int(Decimal(str(money)) * _MILLION)
    return Limit(whose, period, since, until, tokens, micros)


def _dollars(micros: int) -> str:
    """To the cent, and more exactly where a cent is too coarse."""
    digits = 2 if micros % 10_000 == 0 or micros >= 10 * _MILLION else 4
    return f"${Decimal(micros) / _MILLION:,.{digits}f}"
