"""List the tools of a server again when they have changed.

One task per connection, in the tree of the actor's owner. It does not use the session but sends a request through the
mailbox of the actor, as any caller does. So a refresh is one of the ``max_in_flight`` requests and has a
``request_timeout``, and an observer of the change may call the server. While a server is not connected there is no
refresh, and none is needed: each connect lists the tools. Of the replicas of a server one lists them for all
(`Freshness.turn`); when its connection ends, the next one takes over.

The delay between a notification and the request (`Pace`) is the longest of these:

- 0.1 s, because several notifications may come at once; up to 2 s while results are overtaken by new notifications;
- while results bring no change, twice the previous delay, up to a minute. A server may send a notification after each
  of its results, and would be asked for ever. A real change, or a minute without a notification, resets this;
- the duration of the last request, up to 10 s, so that refreshing takes at most half of the time of a slow server.

A server with a ``refresh_interval`` is also asked if it has not sent a notification for so long. Such a request has no
delay and does not count for later ones.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio
from attrs import define, field

from ...._backoff import Backoff
from ...._text import problem_of
from ...requests import ListTools, request_internally
from ._retrying import keep_trying

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....kernel import ActorRef
    from ...record import ServerRecord
    from ...requests import Request
    from ...tools import Freshness

SETTLE: Final = Backoff(first=0.1, initial=0.2, maximum=2.0)
"""Seconds from a notification to the request. Servers send several at once, and a change seldom has one step only. Each
result in a row that was overtaken by another notification makes it longer, for servers that change without pause."""

AFTER_NOTHING_NEW: Final = Backoff(first=0.0, initial=0.2, maximum=60.0)
"""Seconds from a notification to the request if the last results brought no change."""

LONGEST_REST: Final = 10.0
"""Longest delay, in seconds, that follows from the duration of the last request."""

AFTER_FAILURE: Final = Backoff(first=1.0, initial=2.0, maximum=60.0, jitter=0.1)
"""Seconds from a failed refresh to the next."""


class Kept(Protocol):
    """A list that the server may change."""

    @property
    def freshness(self) -> Freshness:
        """Whether the last answer is outdated."""

    @property
    def answers(self) -> int:
        """The number of answers that differed from the answer before."""


@define
class Pace:
    """The delay before the next refresh. A pure rule: no clock, no tasks.

    It counts results in a row that were overtaken, and results in a row that brought no change.
    """

    _overtaken: int = field(default=0, init=False)
    _vain: int = field(default=0, init=False)
    _took: float = field(default=0.0, init=False)
    _answered: float = field(default=-math.inf, init=False)

    def delay(self, now: float) -> float:
        """Return the seconds to wait after a notification that has arrived now."""
        if now - self._answered >= AFTER_NOTHING_NEW.maximum:
            self._vain = 0
        rest = min(self._took, LONGEST_REST)
        return max(SETTLE.delay(self._overtaken + 1), AFTER_NOTHING_NEW.delay(self._vain + 1), rest)

    def answered(self, asked: float, now: float, *, overtaken: bool, news: bool) -> None:
        """Note a result.

        Args:
            asked: the time of the request.
            now: the time of the result.
            overtaken: True if another notification has arrived meanwhile.
            news: True if the result differs from the one before.
        """
        self._overtaken = self._overtaken + 1 if overtaken else 0
        self._vain = 0 if news else self._vain + 1
        self._took, self._answered = now - asked, now


async def keep_refreshed(record: ServerRecord, actor: ActorRef) -> None:
    """List the tools whenever they are stale, until the connection ends."""

    def describe(error: Exception, delay: float) -> str:
        return (
            f"server {record.config.name!r}: its tools may have changed, but tools/list failed: {problem_of(error)}; "
            f"the catalogue keeps the last list, and the request is repeated in {delay:.3g} s"
        )

    interval = record.config.refresh_interval or math.inf
    attempt = partial(refresh, record, actor, record.catalog, ListTools, Pace(), interval)
    async with record.catalog.freshness.turn:
        while await keep_trying(attempt, AFTER_FAILURE, describe):
            pass


async def refresh(
    record: ServerRecord,
    actor: ActorRef,
    kept: Kept,
    request: Callable[[], Request[Any]],
    pace: Pace,
    interval: float = math.inf,
) -> None:
    """Wait until a list is stale, and have the server list it once.

    Args:
        record: the record of the server.
        actor: the server actor.
        kept: the list.
        request: makes the request whose answer replaces the list.
        pace: the delay between a notification and the request.
        interval: seconds after which the list counts as stale without a notification.
    """
    freshness = kept.freshness
    with trio.move_on_after(interval) as silence:
        await freshness.wait_stale()
    if silence.cancelled_caught:
        freshness.mark_stale(trio.current_time())
        await _list_again(record, actor, request())
        return
    await trio.sleep(pace.delay(trio.current_time()))
    if freshness.is_stale:  # else a caller has listed it meanwhile
        asked, known = trio.current_time(), kept.answers
        await _list_again(record, actor, request())
        news = kept.answers != known
        pace.answered(asked, trio.current_time(), overtaken=freshness.is_stale, news=news)


async def _list_again(record: ServerRecord, actor: ActorRef, request: Request[Any]) -> None:
    """List once, within ``request_timeout``, or within ``connect_timeout`` if that is unlimited."""
    config, bound = record.config, math.inf
    if config.request_timeout is None and config.connect_timeout is not None:
        bound = config.connect_timeout
    with trio.move_on_after(bound):
        await request_internally(record, actor, request)
        return
    raise TimeoutError(f"{request.operation} timed out after {bound:g} s (connect_timeout)")
