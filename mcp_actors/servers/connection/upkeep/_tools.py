"""Keeps the catalogue of a server up to date: asks for the tools again when they have changed.

One task for each connection, in the tree of the actor's owner. It does not touch the session: what it wants it asks of
the server's actor, through the mailbox, like everybody else. So a refresh is one of the ``max_in_flight`` requests, has
the time that requests have, and whoever is told of a change may call the server. There is none while the server is not
connected, and none is needed: a connect lists the tools.

How long after a notification the server is asked (`Pace`) is the longest of these:

- 0.1 s, as several may come at once; longer, up to 2 s, while answers are overtaken by other notifications;
- while answers bring nothing new, twice as long as the time before, up to a minute. A server may give notice after each
  of its answers, and would be asked for ever. A real change, or a minute without notification, begins this anew;
- as long as the last answer took, up to 10 s: so no server gets more than half of anybody's time.
"""

from __future__ import annotations

import logging
import math
import random
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field

from ...._backoff import Backoff
from ...._errors import ActorCrashed, ActorStopped
from ...basics import problem_of
from ...policy import asked_to_wait
from ...requests import ListTools, request_internally

if TYPE_CHECKING:
    from ....kernel import ActorRef
    from ...record import ServerRecord

__all__ = ["keep_refreshed"]

logger = logging.getLogger("mcp_actors.servers")

SETTLE: Final = Backoff(first=0.1, initial=0.2, maximum=2.0)
"""Seconds from a notification to the question. Servers send several at once, and a change is seldom made of one step
only. It is longer the more often in a row the answer was overtaken by another notification: who changes without pause
is not to be asked without pause."""

AFTER_NOTHING_NEW: Final = Backoff(first=0.0, initial=0.2, maximum=60.0)
"""Seconds from a notification to the question if the last answers were what was known already."""

LONGEST_REST: Final = 10.0
"""Seconds: the most that the time of the last answer counts for."""

AFTER_FAILURE: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a refresh that failed to the next."""


@define
class Pace:
    """How soon a server is asked. A pure rule: no clock, no tasks.

    It counts answers in a row: those that were overtaken, and those in which nothing was new.
    """

    _overtaken: int = field(default=0, init=False)
    _vain: int = field(default=0, init=False)
    _took: float = field(default=0.0, init=False)
    _answered: float = field(default=-math.inf, init=False)

    def delay(self, now: float) -> float:
        """For how many seconds to wait after a notification that has come now."""
        if now - self._answered >= AFTER_NOTHING_NEW.maximum:
            self._vain = 0
        rest = min(self._took, LONGEST_REST)
        return max(SETTLE.delay(self._overtaken + 1), AFTER_NOTHING_NEW.delay(self._vain + 1), rest)

    def answered(self, asked: float, now: float, *, overtaken: bool, news: bool) -> None:
        """An answer has come.

        Args:
            asked: when the server was asked.
            now: the time now.
            overtaken: whether there was another notification meanwhile.
            news: whether it is another answer than the one before.
        """
        self._overtaken = self._overtaken + 1 if overtaken else 0
        self._vain = 0 if news else self._vain + 1
        self._took, self._answered = now - asked, now


async def keep_refreshed(record: ServerRecord, actor: ActorRef) -> None:
    """Ask for the tools whenever they are out of date, until the connection ends."""
    catalog, pace, failures = record.catalog, Pace(), 0
    while True:
        await catalog.wait_stale()
        await trio.sleep(pace.delay(trio.current_time()))
        if not catalog.is_stale():
            continue  # somebody else has asked
        asked, known = trio.current_time(), catalog.answers
        try:
            await _refresh(record, actor)
        except (ActorCrashed, ActorStopped):
            return  # the connection has ended
        except Exception as exc:
            failures += 1
            await trio.sleep(_told_delay(record, exc, failures))
        else:
            failures = 0
            news = catalog.answers != known
            pace.answered(asked, trio.current_time(), overtaken=catalog.is_stale(), news=news)


async def _refresh(record: ServerRecord, actor: ActorRef) -> None:
    """Ask once, within the time that requests have; if that is unbounded, that a connect has, which asks for it too."""
    config, bound = record.config, math.inf
    if config.request_timeout is None and config.connect_timeout is not None:
        bound = config.connect_timeout
    with trio.move_on_after(bound):
        await request_internally(record, actor, ListTools())
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
