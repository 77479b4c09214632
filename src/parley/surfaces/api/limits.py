"""How many requests a key may make: a bucket for each key, in memory."""

from __future__ import annotations

__all__ = ["RateLimits"]

_ROUNDING = 1e-6


class _Bucket:
    """`left` requests at the moment `at`; `per_second` more come until it is full again."""

    __slots__ = ("at", "full", "left", "per_second")

    def __init__(self, per_minute: float, now: float) -> None:
        self.full = max(1.0, per_minute)
        self.per_second = per_minute / 60
        self.left = self.full
        self.at = now

    def left_at(self, now: float) -> float:
        return min(self.full, self.left + max(0.0, now - self.at) * self.per_second)


class RateLimits:
    """Only for names that we gave, such as a key's id: never for what a client may make up.

    A bucket that is full again is forgotten, for a new one is just as full.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self._buckets: dict[str, _Bucket] = {}
        self._most = most

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, key_id: str, per_minute: float | None, now: float) -> float | None:
        """None when one more request may be made now, else the seconds until it may.

        `per_minute` requests may come at once; None is without a limit, 0 is none at all.
        """
        self._forget(now)
        if per_minute is None:
            self._buckets.pop(key_id, None)
            return None
        if per_minute <= 0:
            return 60.0
        bucket = self._buckets.pop(key_id, None)
        if bucket is None:
            bucket = _Bucket(per_minute, now)
        elif bucket.per_second != per_minute / 60:
            # The key's limit was changed: what it has used up, it has used up.
            used = bucket.full - bucket.left_at(now)
            bucket = _Bucket(per_minute, now)
            bucket.left = max(0.0, bucket.left - used)
        self._buckets[key_id] = bucket
        bucket.left, bucket.at = bucket.left_at(now), max(now, bucket.at)
        if bucket.left < 1 - _ROUNDING:
            return (1 - bucket.left) / bucket.per_second
        bucket.left = max(0.0, bucket.left - 1)
        return None

    def _forget(self, now: float) -> None:
        """Two a time: more than one call can add."""
        for _ in range(2):
            oldest = next(iter(self._buckets), None)
            if oldest is None:
                return
            bucket = self._buckets[oldest]
            if bucket.left_at(now) >= bucket.full or len(self._buckets) >= self._most:
                del self._buckets[oldest]
            elif len(self._buckets) > 1:
                # One that fills slowly must not keep those behind it from being looked at.
                self._buckets[oldest] = self._buckets.pop(oldest)
