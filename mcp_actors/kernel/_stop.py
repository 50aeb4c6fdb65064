"""Stopping in two stages, because Trio cannot kill a task: ask, then cancel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import trio

from . import _events as events

if TYPE_CHECKING:
    from ._incarnation import Incarnation
    from ._restart import Shutdown

OVERDUE_AFTER: Final = 1.0
"""Seconds that a killed incarnation has before it is reported. Synchronous release takes milliseconds; whatever is
still there after this sits in somebody's shield."""


async def stop(incarnation: Incarnation, shutdown: Shutdown | None = None, *, comes_back: bool = False) -> None:
    """Ask an incarnation to stop, kill it when its time is over, and return when nothing of it is left.

    Args:
        incarnation: what to stop.
        shutdown: seconds between asking and killing, ``"brutal_kill"``, ``"infinity"``, or None for the actor's own.
        comes_back: whether another incarnation is going to follow, so that waiting messages are kept.

    **Cancellation**: kills at once. Meant to be called inside a shield, which this then bounds.
    """
    asked_at = trio.current_time()
    if shutdown == "brutal_kill":
        incarnation.kill("brutal_kill")
    else:
        incarnation.end("shutdown", comes_back=comes_back)
        with trio.move_on_after(_seconds(incarnation, shutdown)):
            await incarnation.wait_over()
    if incarnation.final is None:
        incarnation.kill("did not stop within its shutdown time")
        with trio.move_on_after(OVERDUE_AFTER):
            await incarnation.wait_over()
    if incarnation.final is None:
        incarnation.record.note(events.Overdue, seconds=trio.current_time() - asked_at)
        await incarnation.wait_over()


def _seconds(incarnation: Incarnation, shutdown: Shutdown | None) -> float:
    if shutdown is None:
        shutdown = incarnation.actor.default_shutdown if incarnation.actor is not None else 0
    return math.inf if shutdown == "infinity" else float(shutdown)
