"""Stop an incarnation: ask it to stop, then cancel it."""

from __future__ import annotations

import math
from logging import WARNING
from typing import TYPE_CHECKING, Final, Literal

import trio

if TYPE_CHECKING:
    from ._incarnation import Incarnation

Shutdown = float | Literal["brutal_kill", "infinity"]

OVERDUE_AFTER: Final = 1.0
"""Seconds after which a killed incarnation is reported. Synchronous clean-up takes milliseconds; an incarnation that
still runs after this time is inside a shield."""


async def stop(incarnation: Incarnation) -> None:
    """Ask an incarnation to stop, kill it after its actor's own bound, and wait until it has ended."""
    if not await stop_within(incarnation, None, asked_at=trio.current_time()):
        await incarnation.wait_over()


@trio.lowlevel.enable_ki_protection
async def stop_within(incarnation: Incarnation, shutdown: Shutdown | None, *, asked_at: float) -> bool:
    """Ask an incarnation to stop, and kill it after its time.

    **Cancellation**: the stop continues. A later call with the same `asked_at` keeps its bound.

    Args:
        incarnation: the incarnation. If its end has been decided already, that decision is kept.
        shutdown: seconds between asking and killing, ``"brutal_kill"``, ``"infinity"``, or None for the actor's own.
        asked_at: the Trio time of the first request to stop.

    Returns:
        True if it has ended. False if it is overdue: it was killed, is inside a shield, and has been reported.
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
        incarnation.record.hub.log(
            WARNING,
            "actor %r: did not stop within %g s and was killed, so its clean-up may be incomplete; raise its shutdown "
            "time, or find out what running() waits for while stopping",
            incarnation.record.name,
            seconds,
        )
    incarnation.kill("did not stop within its shutdown time")


def _seconds(incarnation: Incarnation, shutdown: float | str | None) -> float:
    if shutdown is None:
        # Without an actor there is no clean-up to wait for.
        shutdown = incarnation.default_shutdown if incarnation.actor is not None else 0.0
    return math.inf if shutdown == "infinity" else float(shutdown)
