"""Let servers finish their requests before they are disconnected.

A server that leaves refuses new requests and finishes those that it has accepted, the queued ones too: it *drains*. A
server that comes back, because it is restarted or has a new configuration, finishes those in flight only; all others
wait for its next connection (`ServerLife.holding`). Then it is disconnected, whatever is left. If it leaves meanwhile,
no other connection follows: this one takes what waits, too, and is not disconnected by that change.

Only a server that answers is drained: not one whose process is suspended, or that has not answered since a check or a
request timed out. And only in a change that was asked for: not if the block is left by an exception or a cancellation,
and not if the connection is lost or given up by the health checks. While it drains it is ``stopping``, so it is not
checked: a server with one thread, busy with the very request that is to be finished, would fail the check.

A signal (``stop_on``) begins the end while the block still runs, because that is where the requests come from. New ones
are neither sent nor refused meanwhile: a worker that is refused would raise, and cancel its siblings and their
requests. They wait until the block is cancelled, as soon as all accepted requests are finished.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ..._foreign import Log
from ..._misuse import is_number
from ..._tasks import Signals, name_of, open_background
from ..._text import bad_option
from ..record import ACTIVE, Drained, left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..record import ServerRecord
    from ._roster import Roster

logger = Log("mcp_actors.servers")

DRAIN_TIMEOUT: Final = 30.0
"""Default of ``drain_timeout``: what service managers wait before they kill a program, less the time for the stop."""


async def drain(record: ServerRecord, seconds: float, *, queued: bool) -> None:
    """Wait until a server has finished its requests, for a limited time; not at all if it has none.

    Args:
        record: the record of the server.
        seconds: the limit; 0 does not wait.
        queued: whether it finishes the queued requests too.
    """
    if _answers(record) and seconds and record.pending(queued=queued):
        await _drain(record, seconds, queued=queued)


def _answers(record: ServerRecord) -> bool:
    return any(
        (each.life.state in ACTIVE or each.life.draining) and not each.health.doubtful for each in record.replicas
    )


async def _drain(record: ServerRecord, seconds: float, *, queued: bool) -> None:
    record.life.begin_to_drain(record.pending(queued=queued), seconds)
    for each in record.replicas if queued else ():
        each.session.take_again()
    try:
        with trio.move_on_after(seconds):
            await record.calls.deadlines.wait_settled(queued=queued, actor=record.share)
    finally:
        record.life.emit(Drained, unfinished=record.pending(queued=queued))


class Departure:
    """The end of a group, which its block or a signal begins.

    Attributes:
        seconds: the ``drain_timeout``.

    Args:
        roster: the servers.
        seconds: see above.
    """

    def __init__(self, roster: Roster, seconds: float) -> None:
        self._roster = roster
        self.seconds: Final = seconds
        self._over: trio.Event | None = None

    async def leave(self, *, ending: bool = False) -> None:
        """Refuse all requests and changes from now on, and let the servers finish what they have accepted.

        Returns at once if there is nothing to finish. If this has begun already, waits for its end.

        **Cancellation**: ends the wait.

        Args:
            ending: whether the block still runs, so that requests wait to be refused.
        """
        if self._over is None:
            self._over = trio.Event()
            try:
                await self._leave(ending=ending)
            finally:
                self._over.set()
        await self._over.wait()

    async def _leave(self, *, ending: bool) -> None:
        self._roster.closing = True
        records = tuple(self._roster.records.values())
        for record in records:
            record.life.want(left(record.life.wanted, "signal" if ending else "block"))
        serving = [record for record in records if _answers(record)]
        if not self.seconds or not any(record.pending(queued=True) for record in serving):
            return
        async with trio.open_nursery() as nursery:
            for record in serving:
                # Also one without requests: in this state it refuses new ones.
                drained = partial(_drain, record, self.seconds, queued=True)
                nursery.start_soon(drained, name=f"{record.config.name}:drain")

    @asynccontextmanager
    async def on_signal(self, signals: Signals) -> AsyncIterator[None]:
        """Let a signal end the block: accepted requests are finished, then the block is cancelled.

        A second signal cancels it at once.

        Raises:
            SystemExit: a signal has come, and the block raised nothing of its own. The exit code is that of a program
                which the signal has killed, as shells show it.
        """
        if not signals:
            yield
            return
        first: list[int] = []

        async def finish(number: int) -> None:
            await self.leave(ending=True)
            block.cancel(f"{name_of(number)} was received, and all requests are finished")

        async def listen() -> None:
            async for number in received:
                if first:
                    logger.warning("received %s again; stopping without waiting for requests", name_of(number))
                    block.cancel("a second signal was received")
                    return
                first.append(number)
                waits = f"finishing requests for at most {self.seconds:g} s, then stopping all servers"
                logger.info("received %s; %s", name_of(number), waits)
                background.start_soon(finish, number, name="servers:finish")

        with signals.receive() as received, trio.CancelScope() as block:
            async with open_background() as background:
                background.start_soon(listen, name="servers:signals")
                yield
        if first:
            raise SystemExit(128 + first[0])


def check_drain(seconds: object) -> float:
    """Validate a ``drain_timeout``.

    Raises:
        ConfigError: it is not a number of seconds.
    """
    if is_number(seconds) and 0 <= seconds < math.inf:
        return seconds
    raise bad_option("drain_timeout", seconds, "is not a number of seconds; pass 0 or more, like drain_timeout=10")
