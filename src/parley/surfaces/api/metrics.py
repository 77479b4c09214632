"""`/metrics`: the gateway's counts as Prometheus reads them, each with its profile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from parley.gateway.status import GatewayStatus, ProfileStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["render"]

_Table = Mapping[str, tuple[str, Callable[[ProfileStatus], int]]]

_NOW: _Table = {
    "turns_running": ("Turns that run now.", lambda p: p.running),
    "messages_waiting": ("Messages that wait for their turn.", lambda p: p.queued),
    "replies_undelivered": ("Replies that wait to be delivered.", lambda p: p.undelivered),
    "profile_up": ("Whether the profile is served without a fault.", lambda p: int(p.sound)),
}
_SINCE_START: _Table = {
    "messages_accepted": ("Messages taken in.", lambda p: p.tally.accepted),
    "turns_answered": ("Turns that ended with an answer.", lambda p: p.tally.answered),
    "turns_failed": ("Turns that ended with an error.", lambda p: p.tally.failed),
    "replies_delivered": ("Replies their surface confirmed.", lambda p: p.tally.delivered),
    "tokens_in": ("Tokens the models were given.", lambda p: p.tally.input_tokens),
    "tokens_out": ("Tokens the models gave.", lambda p: p.tally.output_tokens),
}


def render(status: GatewayStatus) -> tuple[bytes, str]:
    """The page, and the type it has."""
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(status.profiles))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Counts:
    def __init__(self, profiles: tuple[ProfileStatus, ...]) -> None:
        self._profiles = profiles

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, (words, read) in _NOW.items():
            gauge = GaugeMetricFamily(f"parley_{name}", words, labels=["profile"])
            for profile in self._profiles:
                gauge.add_metric([profile.name], read(profile))
            yield gauge
        for name, (words, read) in _SINCE_START.items():
            counter = CounterMetricFamily(f"parley_{name}", words, labels=["profile"])
            for profile in self._profiles:
                counter.add_metric([profile.name], read(profile))
            yield counter
