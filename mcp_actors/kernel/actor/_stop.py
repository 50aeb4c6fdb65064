"""Stopping in two stages, because Trio cannot kill a task: ask, then cancel."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, Literal

import trio

if TYPE_CHECKING:
    from ._incarnation import Incarnation

logger = logging.getLogger("mcp_actors.kernel")

Shutdown = float | Literal["brutal_kill", "infinity"]

OVERDUE_AFTER: Final = 1.0
"""Seconds that a killed incarnation has before it is reported. Synchronous release takes milliseconds; whatever is
still there after this sits in somebody's shield."""


async def stop(incarnation: Incarnation) -> None:
    """Ask an incarnation to stop, kill it after its actor's own bound, and return when nothing of it is left."""
    if not await stop_within(incarnation, None, asked_at=trio.current_time()):
        await incarnation.wait_over()


@trio.lowlevel.enable_ki_protection
async def stop_within(incarnation: Incarnation, shutdown: Shutdown | None, *, asked_at: float) -> bool:
    """Ask an incarnation to stop and kill it when its time is over.

    **Cancellation**: it was asked and goes on; a later call with the same `asked_at` keeps its bound.

    Args:
        incarnation: what to stop. If its end was decided already, that stands.
        shutdown: seconds between asking and killing, ``"brutal_kill"``, ``"infinity"``, or None for the actor's own.
        asked_at: when it was first asked to stop, which is now or earlier.

    Returns:
        True if nothing of it is left. False if it is overdue: it was killed, sits in a shield of its own and was
        reported.
    """
    if shutdown == "brutal_kill":
        incarnation.kill("brutal_kill")
    else:
        incarnation.end("shutdown", comes_back=False)
        seconds = _seconds(incarnation, shutdown)
        with trio.move_on_at(asked_at + seconds):
            await incarnation.wait_bounded()
        if incarnation.final is None and not incarnation.overdue:
            _kill(incarnation, seconds)
    if incarnation.final is None and not incarnation.overdue:
        with trio.move_on_after(OVERDUE_AFTER):
            await incarnation.wait_bounded()
        if incarnation.final is None:
            incarnation.report_overdue(trio.current_time() - asked_at)
    return incarnation.final is not None


def _kill(incarnation: Incarnation, seconds: float) -> None:
    if incarnation.actor is not None and not incarnation.killed:
        logger.warning(
            "actor %r: did not stop within %g s and was killed, so its clean-up may be incomplete; raise its shutdown, "
            "or find out what running() waits for on its way out",
            incarnation.record.name,
            seconds,
        )
    incarnation.kill("did not stop within its shutdown time")


def _seconds(incarnation: Incarnation, shutdown: float | str | None) -> float:
    if shutdown is None:
        # Without an actor there is no clean-up that could take time.
        shutdown = incarnation.actor.default_shutdown if incarnation.actor is not None else 0.0
    return math.inf if shutdown == "infinity" else float(shutdown)
