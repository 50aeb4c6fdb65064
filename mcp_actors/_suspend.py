"""Sleep, with the time for which the machine was suspended counted.

While a machine is suspended, the clock that Trio sleeps by stands still, on Linux and on macOS. Somebody who closes a
laptop for the night would find what was due in fifty seconds still due in fifty seconds. Wall time goes on meanwhile,
but can be set, also backwards. So the sleep ends when either clock says so, and looks at both every few seconds.
"""

from __future__ import annotations

import time
from typing import Final

import trio

__all__ = ["sleep_through_suspend"]

GLANCE: Final = 10.0
"""Seconds of Trio's time between two looks at the wall clock: how late the end of a suspend is noticed."""


async def sleep_through_suspend(seconds: float) -> None:
    """Sleep until so many seconds have passed on Trio's clock or on the wall, whichever comes first.

    A wall clock that is set forward ends the sleep early; one that is set back changes nothing.
    """
    deadline, wall_deadline = trio.current_time() + seconds, time.time() + seconds
    left = seconds
    while True:
        await trio.sleep(max(0.0, min(left, GLANCE)))
        left = min(deadline - trio.current_time(), wall_deadline - time.time())
        if left <= 0:
            return
