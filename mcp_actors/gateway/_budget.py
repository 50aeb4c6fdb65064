"""Limit the memory and processes that clients take, and share them fairly.

One budget limits three sums for all gateways of a run of Trio: the bytes waiting for clients, the bytes of requests in
flight, and the processes of ``per-session`` servers. Clients with the same token share an identity, and must not keep
out other clients.

Owns: the three sums; slots of processes.
Writes: the log. Drops waiting messages; disconnects clients; ends sessions.
Calls: nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import trio

from .._foreign import Log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

logger = Log("mcp_actors.gateway")

WAITING: Final = 256 * 1024 * 1024  # bytes that wait for clients
IN_FLIGHT: Final = 256 * 1024 * 1024  # bytes of memory for unanswered requests
COPIES: Final = 4  # of a request in memory: two in the gateway, two for the server
CALL_OVERHEAD: Final = 4096  # bytes per request besides the copies
PROCESSES: Final = 64  # of ``per-session`` servers
STALLED: Final = 3.0  # seconds without a byte read, after which a client may be disconnected
REPORT: Final = 60.0  # seconds between log lines about dropped messages


class Budget:
    """The budget of a run, for objects of three kinds.

    Each has its client's ``identity``, or "" if all clients share one.

    ============  ======================================  ==================================================
    kind          counted                                 asked to
    ============  ======================================  ==================================================
    holder        bytes for a client (``waiting``)        drop bytes or disconnect (``give_back``)
    source        bytes of requests (``request_bytes``)   nothing
    owner         a session's ``processes``               end (``outlet.end``) if idle (``idle_since``)
    ============  ======================================  ==================================================

    Attributes:
        waiting: bytes waiting for clients.
        room: bytes for further requests before all requests are counted again. A request subtracts its size when it
            begins, and adds nothing when it ends, so a mistake cannot add up.
    """

    def __init__(self) -> None:
        self.waiting: int = 0
        self.room: int = 0
        self.sources: WeakSet[Any] = WeakSet()
        self._holders: dict[Any, None] = {}
        self._dropped, self._since = 0, 0.0
        self._owners: dict[Any, None] = {}
        self._slots = trio.Semaphore(PROCESSES)

    # --- what waits for clients -------------------------------------------------------------------------------------

    def count(self, holder: Any, size: int) -> None:
        """Count bytes that begin to wait for a client, or, if negative, wait no longer.

        Over the limit, any holder may drop messages or disconnect its client.
        """
        self.waiting += size
        self._holders[holder] = None
        if not holder.waiting:
            del self._holders[holder]
        if size > 0 and self.waiting > WAITING:
            self.make_room()
            self.room = 0  # count everything at the next request
        if self._dropped and (not self._holders or trio.current_time() - self._since > REPORT):
            text = "%d messages for clients that do not read were dropped: more than %d bytes waited for clients"
            logger.warning(text, self._dropped, WAITING)
            self._dropped = 0

    def make_room(self, more: int = 0) -> None:
        """Make holders give back bytes, until `more` bytes fit or no holder has any to give.

        The identity with the most waiting bytes comes first. Its log messages, and messages kept for a closed HTTP
        stream, are dropped. Then its clients that have read nothing for a while are disconnected, the longest first.
        """
        for identity, _ in _sums(self._holders, "waiting").most_common():
            holders = sorted((each for each in self._holders if each.identity == identity), key=lambda each: each.moved)
            for gently in (True, False):
                for each in holders:
                    if self.waiting + more > WAITING:
                        self._since = self._since if self._dropped else trio.current_time()
                        self._dropped += each.give_back(gently=gently)

    def passes(self, size: int) -> bool:
        """Return True if a result of `size` bytes may wait for its client."""
        if self.waiting + size > WAITING:
            self.make_room(size)
        over = self.waiting + size - WAITING  # over the limit: taken from what requests leave free
        return over <= 0 or over <= IN_FLIGHT - _sums(self.sources, "request_bytes").total()

    # --- what is in flight ------------------------------------------------------------------------------------------

    def refusal(self, identity: str, size: int) -> str | None:
        """Return why a request of `size` bytes may not begin, or None."""
        self.make_room()
        held, waits = _sums(self.sources, "request_bytes"), _sums(self._holders, "waiting")
        full = self.waiting > WAITING
        left = {each: self._left(IN_FLIGHT, held, each) for each in (identity, *held)}
        # Half: a byte held by one identity takes two from its own limit (`_left`).
        self.room = 0 if full else (min(left.values()) - size) // 2
        # Refuse only identities for which more than an equal share waits.
        if full and waits[identity] * len(waits) > WAITING:
            return f"{self.waiting} bytes wait for clients that do not read them, and the limit is {WAITING}"
        if size > left[identity]:
            return f"the requests in flight take {held.total()} bytes of memory, and the limit is {IN_FLIGHT}"
        return None

    def has_room(self, identity: str, size: int) -> bool:
        """Count `size` bytes of an arriving request; return False if there is no room."""
        self.room -= size
        return self.room >= 0 or self.refusal(identity, size) is None

    def _left(self, limit: int, held: Counter[str], identity: str) -> int:
        """Return how much more an identity may hold.

        With several identities, no request or process begins if its identity would then hold more than was free before.
        """
        return limit - held.total() - (held[identity] if identity else 0)

    # --- processes of servers that sessions have for themselves -----------------------------------------------------

    def reserve(self, owner: Any) -> bool:
        """Reserve a session's processes, ending idle sessions if needed. Return False if there are too many.

        The longest idle session of the identity with the most processes ends first.
        """
        while self._left(PROCESSES, held := _sums(self._owners, "processes"), owner.identity) < owner.processes:
            hit = max((owner.identity, *held), key=held.__getitem__)  # has most; on a tie, the owner's
            found = [each for each in self._owners if each.identity in (hit, owner.identity)]
            idle = [each for each in found if getattr(each.outlet, "idle_since", math.inf) < math.inf]
            if not idle:
                return False
            longest = min(idle, key=lambda each: (each.identity != hit, each.outlet.idle_since))
            self.release(longest)
            longest.outlet.end()
        self._owners[owner] = None
        return True

    def release(self, owner: Any) -> None:
        self._owners.pop(owner, None)

    async def run_processes(self, count: int, fn: Callable[[], Awaitable[Any]]) -> None:
        """Run a function that starts `count` reserved processes, once ended sessions have freed theirs."""
        with ExitStack() as stack:
            for _ in range(count):
                await self._slots.acquire()
                stack.callback(self._slots.release)
            await fn()


def _sums(each_of: Iterable[Any], name: str) -> Counter[str]:
    sums = Counter[str]()
    for each in each_of:
        sums[each.identity] += getattr(each, name)
    return sums


_of_run: Final = trio.lowlevel.RunVar[Budget]("mcp_actors.gateway.budget")


def budget() -> Budget:
    try:
        return _of_run.get()
    except LookupError:
        _of_run.set(found := Budget())
        return found
