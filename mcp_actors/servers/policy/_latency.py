"""How many requests to one server came to which end, and how long they took: counts, in bounded memory.

Theory of operation
-------------------
A percentile of all durations there ever were would need all of them. Instead each is counted in the bucket of its order
of magnitude: the bounds of the buckets grow by 2 % from one to the next, and a percentile is told as the middle of the
bucket that it is in, so it is never off by more than 1 %. (That is the histogram of DDSketch, Masson et al. 2019, with
a relative accuracy of 1 %.) From a microsecond to a day there are 1273 buckets, of which a server uses some dozens;
what is shorter or longer is counted in the first or the last. To count is one logarithm and one entry of a dict.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field, frozen

__all__ = ["Latency", "LatencyCounts"]

_SHORTEST: Final = 1e-6
"""Seconds. No request takes less: its way through the mailbox alone takes ten times as long."""

_LONGEST: Final = 86_400.0
"""Seconds. A day."""

_GROWTH: Final = 1.02
"""From the upper bound of one bucket to that of the next. The error is half of that: ``(g - 1) / (g + 1)``, 0.99 %."""

_PER_E: Final = 1 / math.log(_GROWTH)
_MIDDLE: Final = 2 / (_GROWTH + 1)
_LAST: Final = math.ceil(math.log(_LONGEST / _SHORTEST) * _PER_E)


@frozen(kw_only=True)
class Latency:
    """How requests to a server ended, and how long they took; a snapshot.

    A percentile is the shortest time within which that share of the requests that had a result had it. Times are in
    seconds and right to 1 %, from a microsecond to a day. None means that no request had a result.

    Attributes:
        done: requests that had a result, one with ``is_error`` included.
        failed: requests that ended with an error, one that the server answered included. A request whose caller left is
            neither.
        p50: half of the results took so long at most.
        p95: 95 in 100.
        p99: 99 in 100.
    """

    done: int
    failed: int
    p50: float | None
    p95: float | None
    p99: float | None


@define(eq=False)
class LatencyCounts:
    """Counts requests to one server, for as long as it is in its group."""

    _failed: int = field(default=0, init=False)
    _buckets: dict[int, int] = field(factory=dict, init=False)

    def done(self, seconds: float) -> None:
        """A request had its result after so many seconds."""
        if seconds <= _SHORTEST:  # a mock clock may even say 0
            bucket = 0
        elif seconds >= _LONGEST:
            bucket = _LAST
        else:
            bucket = math.ceil(math.log(seconds / _SHORTEST) * _PER_E)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def failed(self) -> None:
        """A request ended with an error. How long that took often says how patient we are, and is not counted."""
        self._failed += 1

    def snapshot(self) -> Latency:
        """What was counted so far. Takes some dozens of steps, however many requests there were.

        It may be asked for in any thread, so how many there were is counted in the copy that the rest is made of.
        """
        buckets = self._buckets.copy()
        done = sum(buckets.values())
        p50, p95, p99 = _percentiles(buckets, done, 50, 95, 99)
        return Latency(done=done, failed=self._failed, p50=p50, p95=p95, p99=p99)


def _percentiles(buckets: dict[int, int], done: int, *shares: int) -> list[float | None]:
    """The times of these shares of 100, which must ascend: each of the rank ``ceil(share * done / 100)``."""
    times: list[float | None] = []
    below = 0
    for bucket in sorted(buckets):
        below += buckets[bucket]
        while len(times) < len(shares) and below * 100 >= shares[len(times)] * done:
            times.append(_time_of(bucket))
    return times or [None] * len(shares)


def _time_of(bucket: int) -> float:
    """The time that is told for a bucket: as far from its lower bound as from its upper one, in proportion."""
    return _SHORTEST * _GROWTH**bucket * _MIDDLE if bucket else _SHORTEST
