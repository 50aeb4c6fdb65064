"""Keeps the catalogue of a server up to date: asks for the tools again when they have changed.

One task for each connection, in the tree of the actor's owner. It does not touch the session: what it wants it asks of
the server's actor, through the mailbox, like everybody else. So a refresh is one of the ``max_in_flight`` requests, has
the time that requests have, and whoever is told of a change may call the server. There is none while the server is not
connected, and none is needed: a connect lists the tools.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Final

import trio

from .._backoff import Backoff
from .._errors import ActorCrashed, ActorStopped
from ._connection_errors import problem_of
from ._requests import ListTools, ask_from_beside
from ._retry import asked_to_wait

if TYPE_CHECKING:
    from ..kernel import ActorRef
    from ._record import ServerRecord

__all__ = ["keep_refreshed"]

logger = logging.getLogger("mcp_actors.servers")

SETTLE: Final = Backoff(first=0.1, initial=0.2, maximum=2.0)
"""Seconds from a notification to the question. Servers send several at once, and a change is seldom made of one step
only. It is longer the more often in a row the answer was overtaken by another notification: who changes without pause
is not to be asked without pause."""

AFTER_FAILURE: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a refresh that failed to the next."""


async def keep_refreshed(record: ServerRecord, actor: ActorRef) -> None:
    """Ask for the tools whenever they are out of date, until the connection ends."""
    catalog, overtaken, failures = record.catalog, 0, 0
    while True:
        await catalog.wait_stale()
        await trio.sleep(SETTLE.delay(overtaken + 1))
        if not catalog.is_stale():
            continue  # somebody else has asked
        try:
            await _refresh(record, actor)
        except (ActorCrashed, ActorStopped):
            return  # the connection has ended
        except Exception as exc:
            failures += 1
            await trio.sleep(_told_delay(record, exc, failures))
        else:
            failures = 0
            overtaken = overtaken + 1 if catalog.is_stale() else 0


async def _refresh(record: ServerRecord, actor: ActorRef) -> None:
    """Ask once, within the time that requests have; if that is unbounded, that a connect has, which asks for it too."""
    config, bound = record.config, math.inf
    if config.request_timeout is None and config.connect_timeout is not None:
        bound = config.connect_timeout
    with trio.move_on_after(bound):
        await ask_from_beside(record, actor, ListTools())
        return
    raise TimeoutError(f"no answer within {bound:g} s")


def _told_delay(record: ServerRecord, error: Exception, failures: int) -> float:
    """Tell of a failed refresh, and return for how long to wait now."""
    delay = max(AFTER_FAILURE.delay(failures, random=random.random), asked_to_wait(error))
    logger.log(
        logging.WARNING if failures == 1 else logging.DEBUG,
        "server %r: its tools have changed, but it does not list them: %s; those that it listed last stay in the "
        "catalogue, and it is asked again in %.3g s",
        record.config.name,
        problem_of(error),
        delay,
    )
    return delay
