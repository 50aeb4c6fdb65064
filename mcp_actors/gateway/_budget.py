"""Bound what clients make this process hold, and share it fairly.

A `Budget` belongs to a run of Trio, so all gateways of a process and all ways to them share it. It bounds three sums:

- **What waits for clients** is counted exactly. At the bound log messages are dropped first, then clients that have
  read nothing for a while are disconnected, the longest first, then new requests are refused. The identity for which
  most waits is hit first. The result of a request that was begun may also use the room that requests have left.
- **What is in flight** is counted when `Budget.room` is used up, from what each source has then. So a plain call costs
  a subtraction, nothing has to be given back, and a mistake cannot add up.
- **Processes of servers that sessions have for themselves.** At the bound the session that was idle longest ends.

If there are several identities, each may have as much of the last two as it leaves free, so the others find room.

`Output` and sessions over HTTP count what waits. `Session` and the readers of messages ask before a request takes room.
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
IN_FLIGHT: Final = 256 * 1024 * 1024  # bytes of memory that requests without an answer take
COPIES: Final = 4  # of the bytes of a request, in memory until it is answered: two of the gateway, two for the server
OF_A_CALL: Final = 4096  # bytes of memory that each request takes in addition
PROCESSES: Final = 64  # of servers that sessions have for themselves
STALLED: Final = 3.0  # seconds in which a client that reads takes something, also over a slow network
REPORT: Final = 60.0  # seconds after which a line says how many log messages were dropped, if they still are


class Budget:
    """The budget of this process. Each part has the ``identity`` of its client, which is "" without several of them.

    A holder has the bytes that wait for a client (``waiting``, ``moved``), and can give some back (``give_back``). A
    source has requests ``in_flight``, in bytes of memory. An owner is a session with ``processes``. Its ``outlet`` can
    end it; an outlet without ``idle_since`` has a client that is connected, and is never asked to.

    Attributes:
        waiting: the bytes that wait for clients.
        room: the bytes that further requests may take before all are counted. A session that begins a request subtracts
            its size.
        sources: all sources.
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
        """Count bytes that have begun to wait for a client, or, if negative, do not wait any more.

        Further bytes may make this holder, or another one, drop messages or disconnect its client.
        """
        self.waiting += size
        self._holders[holder] = None
        if not holder.waiting:
            del self._holders[holder]
        if size > 0 and self.waiting > WAITING:
            self.make_room()
            self.room = 0  # so that the next request is looked at
        if self._dropped and (not self._holders or trio.current_time() - self._since > REPORT):
            text = "%d log messages for clients that do not read were dropped: more than %d bytes waited for clients"
            logger.warning(text, self._dropped, WAITING)
            self._dropped = 0

    def make_room(self, more: int = 0) -> None:
        """Make holders give back bytes until so many more may wait, or until none gives back any more."""
        for identity, _ in _sums(self._holders, "waiting").most_common():
            holders = sorted((each for each in self._holders if each.identity == identity), key=lambda each: each.moved)
            for gently in (True, False):
                for each in holders:
                    if self.waiting + more > WAITING:
                        self._since = self._since if self._dropped else trio.current_time()
                        self._dropped += each.give_back(gently=gently)

    def passes(self, size: int) -> bool:
        """Return True if a result of so many bytes may wait for its client."""
        if self.waiting + size > WAITING:
            self.make_room(size)
        over = self.waiting + size - WAITING  # this much is taken from the room of requests
        return over <= 0 or over <= IN_FLIGHT - _sums(self.sources, "in_flight").total()

    # --- what is in flight ------------------------------------------------------------------------------------------

    def refusal(self, identity: str, size: int) -> str | None:
        """Return why a request that takes so many bytes of memory may not be begun; None if it may be."""
        self.make_room()
        held, waits = _sums(self.sources, "in_flight"), _sums(self._holders, "waiting")
        full = self.waiting > WAITING
        left = {each: self._left(IN_FLIGHT, held, each) for each in (identity, *held)}
        # Half of it, because a byte of one identity takes two of what that may have (`_left`).
        self.room = 0 if full else (min(left.values()) - size) // 2
        # Only an identity for which more than an equal share waits is refused.
        if full and waits[identity] * len(waits) > WAITING:
            return f"{self.waiting} bytes wait for clients that do not read them, and the limit is {WAITING}"
        if size > left[identity]:
            return f"the requests in flight take {held.total()} bytes of memory, and the limit is {IN_FLIGHT}"
        return None

    def has_room(self, identity: str, size: int) -> bool:
        """Count so many bytes of requests that have just arrived. Return False if there is no room for them."""
        self.room -= size
        return self.room >= 0 or self.refusal(identity, size) is None

    def _left(self, limit: int, held: Counter[str], identity: str) -> int:
        """Return how much more an identity may hold. Of several, none may hold more than it leaves to others."""
        return limit - held.total() - (held[identity] if identity else 0)

    # --- processes of servers that sessions have for themselves -----------------------------------------------------

    def reserve(self, owner: Any) -> bool:
        """Reserve the processes of a session, for which idle sessions may end. Return False if there are too many."""
        while self._left(PROCESSES, held := _sums(self._owners, "processes"), owner.identity) < owner.processes:
            hit = max((owner.identity, *held), key=held.__getitem__)  # its own, if that is one of those with the most
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
        """Forget the processes of a session that ends."""
        self._owners.pop(owner, None)

    async def run_processes(self, count: int, fn: Callable[[], Awaitable[Any]]) -> None:
        """Run a function that starts so many reserved processes, once those of sessions that have ended are gone."""
        with ExitStack() as stack:
            for _ in range(count):
                await self._slots.acquire()
                stack.callback(self._slots.release)
            await fn()


def _sums(each_of: Iterable[Any], name: str) -> Counter[str]:
    """Return the sum of an attribute for each identity."""
    sums = Counter[str]()
    for each in each_of:
        sums[each.identity] += getattr(each, name)
    return sums


_of_run: Final = trio.lowlevel.RunVar[Budget]("mcp_actors.gateway.budget")


def budget() -> Budget:
    """Return the budget of this process."""
    try:
        return _of_run.get()
    except LookupError:
        _of_run.set(found := Budget())
        return found
