"""Count the requests to one server and their durations, in bounded memory.

Theory of operation
-------------------
Exact percentiles would need every duration. Instead each duration is counted in a bucket; the bounds of the buckets
grow by 2 % from one to the next. A percentile is reported as the middle of its bucket, so its error is at most 1 %.
(This is the histogram of DDSketch, Masson et al. 2019, with a relative accuracy of 1 %.) From a microsecond to a day
there are 1273 buckets, of which a server uses some dozens; the first and the last also count shorter and longer
durations. Counting takes one logarithm and one dict entry.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field, frozen

_SHORTEST: Final = 1e-6
"""Seconds. The way through the mailbox alone takes ten times as long."""

_LONGEST: Final = 86_400.0
"""Seconds. A day."""

_GROWTH: Final = 1.02
"""The ratio of the upper bounds of neighbouring buckets. The error is ``(g - 1) / (g + 1)``, 0.99 %."""

_PER_E: Final = 1 / math.log(_GROWTH)
_MIDDLE: Final = 2 / (_GROWTH + 1)
_LAST: Final = math.ceil(math.log(_LONGEST / _SHORTEST) * _PER_E)


@frozen(kw_only=True)
class Latency:
    """A snapshot of how many requests to a server ended, how, and after which time.

    Percentiles cover the requests that had a result. They are in seconds, accurate to 1 % from a microsecond to a day,
    and None before the first result.

    Attributes:
        done: the number of requests that had a result, one with ``is_error`` included.
        failed: the number of requests that raised an error, the server's own errors included. Requests whose caller
            left count in neither.
        p50: the median.
        p95: the 95th percentile.
        p99: the 99th percentile.
    """

    done: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None


@define(eq=False)
class LatencyCounts:
    """Counts the requests to one server while it is in its group."""

    _failed: int = field(default=0, init=False)
    _buckets: dict[int, int] = field(factory=dict, init=False)

    def done(self, seconds: float) -> None:
        """Count a result that took so many seconds."""
        if seconds <= _SHORTEST:  # a mock clock may even say 0
            bucket = 0
        elif seconds >= _LONGEST:
            bucket = _LAST
        else:
            bucket = math.ceil(math.log(seconds / _SHORTEST) * _PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def failed(self) -> None:
        """Count an error, without its duration, which often is just one of our own timeouts."""
        self._failed += 1

    def snapshot(self) -> Latency:
        """Return the counts so far, in some dozens of steps however many requests there were.

        Any thread may call it while the event loop counts, so everything is computed from one copy.
        """
        buckets = self._buckets.copy()
        done = sum(buckets.values())
        p50, p95, p99 = _percentiles(buckets, done, 50, 95, 99)
        return Latency(done=done, failed=self._failed, p50=p50, p95=p95, p99=p99)


def _percentiles(buckets: dict[int, int], done: int, *shares: int) -> list[float | None]:
    """Return the times at these percentages, which must ascend; each has the rank ``ceil(share * done / 100)``."""
    times: list[float | None] = []
    below = 0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        while len(times) < len(shares) and below * 100 >= shares[len(times)] * done:
            times.append(_time_of(bucket))
    return times or [None] * len(shares)


def _time_of(bucket: int) -> float:
    """Return the middle of a bucket: the value with the same relative distance to both of its bounds."""
    return _SHORTEST * _GROWTH**bucket * _MIDDLE if bucket else _SHORTEST
