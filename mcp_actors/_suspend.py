"""Sleep, and count the time for which the machine is suspended.

Trio's clock stops while a machine is suspended, on Linux and on macOS: a retry that is due in fifty seconds when
a laptop is closed is still due in fifty seconds the next morning. The wall clock goes on, but can be set, also
backwards. So the sleep ends when either clock reaches its deadline, and both are checked every few seconds.
"""

from __future__ import annotations

import time
from typing import Final

import trio

GLANCE: Final = 10.0
"""Seconds on Trio's clock between two checks of the wall clock: the delay after the machine wakes up."""


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
