"""Compute delays between attempts; end a sleep on time after a suspend.

A `Backoff` uses no clock, and the caller passes random numbers. `sleep_through_suspend` checks the wall clock too,
because Trio's clock stops while a machine is suspended.

Owns: nothing.
Writes: nothing.
Calls: _errors, _exports, _misuse.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from inspect import signature
from typing import Any, Final

import attrs
import trio

from ._errors import ConfigError
from ._exports import publish
from ._misuse import explained, is_number


def _check_range(lowest: float, highest: float, remedy: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Make a validator for a finite number in ``[lowest, highest]``, with a remedy for other values."""

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        # The comparison also refuses NaN (never in range) and integers too large for a float.
        if not is_number(value) or not lowest <= value <= highest:
            owner = type(instance).__name__
            message = f"{attribute.name}={value!r} is not valid; {remedy}"
            raise ConfigError(message, owner=owner, source=owner, path=attribute.name)

    return check


_FLOAT_MAX = sys.float_info.max
_check_seconds = _check_range(0.0, _FLOAT_MAX, "give a finite number of seconds, 0 or more")
_check_factor = _check_range(1.0, _FLOAT_MAX, "give a finite number of 1 or more (1 keeps the delay constant)")
_check_jitter = _check_range(0.0, 1.0, "give a number from 0 (no jitter) to 1 (up to twice the delay)")


def _check_growth(instance: Any, attribute: attrs.Attribute[Any], value: float) -> None:
    if instance.initial > value:
        owner = type(instance).__name__
        message = f"initial={instance.initial!r} is more than maximum={value!r}; lower initial, or raise maximum"
        raise ConfigError(message, owner=owner, source=owner, path=attribute.name)


@explained
@attrs.frozen(kw_only=True)
class Backoff:
    """The delays between attempts: `first`, then `initial`, growing by `factor` up to `maximum`.

    The delay before attempt 1 is `first`; before attempt ``n``, ``min(initial * factor**(n - 2), maximum)``. Both are
    then multiplied by ``1 + jitter * U`` with ``U`` uniform in [0, 1). So `maximum` bounds neither `first` nor the
    jitter. By default no attempt waits, as in Erlang/OTP's supervisor.

    Args:
        first: seconds before the first attempt. Default 0.
        initial: seconds before the second attempt. Default 0: no later attempt waits either.
        maximum: the most seconds after growth. Default 60.
        factor: the ratio of each delay to the previous delay, 1 or more. Default 2.
        jitter: the largest random part that is added to a delay, from 0 to 1. Default 0.

    Raises:
        ConfigError: a value is not a finite number in range, or `initial` is more than `maximum`. A bool is not a
            number here.
    """

    first: float = attrs.field(default=0.0, validator=_check_seconds)
    initial: float = attrs.field(default=0.0, validator=_check_seconds)
    maximum: float = attrs.field(default=60.0, validator=[_check_seconds, _check_growth])
    factor: float = attrs.field(default=2.0, validator=_check_factor)
    jitter: float = attrs.field(default=0.0, validator=_check_jitter)

    def __init_subclass__(cls) -> None:
        """Refuse a wrong signature of `delay` before the first failure needs it."""
        delay = object.__new__(cls).delay
        try:
            signature(delay).bind(1, random=None)
        except TypeError as exc:
            call = f"{cls.__name__}.delay() does not take (attempt, random=...), but {signature(delay)}"
            raise TypeError(f"{call}; write: def delay(self, attempt, *, random=None)") from exc

    def delay(self, attempt: int, *, random: Callable[[], float] | None = None) -> float:
        """Return the seconds to wait before an attempt.

        Args:
            attempt: the number of the attempt, from 1.
            random: a source of uniform numbers in [0, 1), such as `random.random`. None leaves out the jitter.

        Raises:
            ValueError: `attempt` is less than 1.
        """
        if attempt < 1:
            raise ValueError(f"attempts are counted from 1, not from {attempt!r}")
        delay = float(self.first) if attempt == 1 else self._grown(attempt - 2)
        return delay if random is None else delay * (1.0 + self.jitter * random())

    def total(self, attempts: int) -> float:
        """Return the sum of the delays before the first `attempts` attempts, in seconds and without jitter.

        Fast for many attempts: only growing delays are added separately.

        Raises:
            ValueError: `attempts` is negative.
        """
        if attempts < 0:
            raise ValueError(f"a number of attempts cannot be negative: {attempts!r}")
        if attempts == 0:
            return 0.0
        constant = self.factor == 1 or self.initial == 0
        growing: list[float] = []
        for growth in range(attempts - 1):
            delay = self._grown(growth)
            if constant or delay >= self.maximum:
                return math.fsum([self.first, *growing, delay * (attempts - 1 - growth)])
            growing.append(delay)
        return math.fsum([self.first, *growing])

    def _grown(self, growth: int) -> float:
        """Return `initial`, grown `growth` times, but no more than `maximum`."""
        if self.initial == 0:
            return 0.0
        try:
            # As a float: an integer factor to a large power is a number of many megabytes.
            scale = float(self.factor) ** min(growth, sys.maxsize)
        except OverflowError:
            return float(self.maximum)
        return float(min(self.initial * scale, self.maximum))


publish("mcp_actors", {"Backoff": Backoff})


# --- Sleep, and count the time for which the machine is suspended -----------------------------------------------------

# By Trio's clock, a retry that is due in fifty seconds when a laptop is closed is still due in fifty seconds the next
# morning. The wall clock goes on, but can be set, also backwards. So the sleep ends when either clock reaches its
# deadline, and both are checked every few seconds.


GLANCE: Final = 10.0
"""Seconds on Trio's clock between checks of the wall clock: the longest delay after the machine wakes up."""


async def sleep_through_suspend(seconds: float) -> None:
    """Sleep until `seconds` have passed on Trio's clock or on the wall clock, whichever comes first.

    Setting the wall clock forward ends the sleep early; setting it back changes nothing.
    """
    deadline, wall_deadline = trio.current_time() + seconds, time.time() + seconds
    left = seconds
    while True:
        # All sleepers wake at the same moments, so a thousand parked servers cost one wake-up of the process.
        await trio.sleep(max(0.0, min(left, GLANCE - trio.current_time() % GLANCE)))
        left = min(deadline - trio.current_time(), wall_deadline - time.time())
        if left <= 0:
            return
