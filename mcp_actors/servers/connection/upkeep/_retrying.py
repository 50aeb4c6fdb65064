"""Repeat a task of the connection until it succeeds."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import trio

from ...._errors import ActorCrashed, ActorStopped
from ...._foreign import Log
from ...policy import asked_to_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...._backoff import Backoff

logger = Log("mcp_actors.servers")


async def keep_trying(
    attempt: Callable[[], Awaitable[None]],
    backoff: Backoff,
    describe: Callable[[Exception, float], str | None],
    *,
    failures: int = 0,
    level: int = logging.WARNING,
) -> bool:
    """Repeat an attempt until it succeeds; return False if it never will, or if the connection has ended.

    Args:
        attempt: makes one attempt.
        backoff: the delays after failures. A longer ``Retry-After`` of the server wins.
        describe: returns the log message about a failure, given the seconds until the next attempt; None if there is
            none.
        failures: the failures in a row before this call; if there were any, the first attempt is delayed too.
        level: the level of the first message; the rest is logged at DEBUG.
    """
    if failures:
        await trio.sleep(backoff.delay(failures, random=random.random))
    while True:
        try:
            await attempt()
        except (ActorCrashed, ActorStopped):
            return False
        except Exception as exc:
            failures += 1
            delay = max(backoff.delay(failures, random=random.random), asked_to_wait(exc))
            if (message := describe(exc, delay)) is None:
                return False
        else:
            return True
        logger.log(level, "%s", message)
        level = logging.DEBUG
        await trio.sleep(delay)
