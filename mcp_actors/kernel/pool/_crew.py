"""Give each message to the member with the most free slots.

Theory of operation
-------------------
Messages to a pool wait in the pool's own mailbox, in the order of arrival. The mailbox sees one taker, the `Crew`; its
free slots are those of the freest member. A member has a mailbox too, its `Lane`, for what only this member may handle:
control messages, and messages to its own reference. It serves its lane first.

The freest member is found without a search. `Crew` keeps the members in *ranks* by their number of free slots. A member
moves to its rank when it frees a slot (`Crew.place`). When it takes a message it stays where it is, and moves only when
it is next but has fewer free slots than its rank says. So a message moves its member twice at most, however many
members there are, and once if that member is free again before another one is needed. A member may also take messages
that do not pass through here, as those of its own lane: it has the wrong rank then, too, until it is next.

Within a rank the last one is next. So a pool with little to do leaves its other members idle until they are stopped
(see ``_pool``), and the idle members are in the order in which they became idle.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ..._errors import ActorStopped
from .. import _events as events
from ..mailbox import Mailbox
from ..ref import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from ..._errors import ActorError
    from .._circles import Node, Sender
    from ..mailbox import Accepts, Envelope, Message, Taker
    from ..ref import Record


class Lane(Mailbox):
    """The mailbox of one member, which also takes from the mailbox of the pool. See the top of the file.

    Attributes:
        crew: the members that it is one of.
    """

    __slots__ = ("crew",)

    crew: Crew

    @trio.lowlevel.enable_ki_protection
    def attach(self, taker: Taker) -> None:
        """Serve with an incarnation, whose actor also says which messages the pool accepts."""
        if self.accepts is not None:
            self.crew.mailbox.accepts = partial(_unless_control, self.accepts)
        self.crew.away.pop(self, None)
        super().attach(taker)

    @trio.lowlevel.enable_ki_protection
    def put(self, envelope: Envelope, *, wait: bool | None = None) -> bool:
        """Give an envelope to this member and no other; see `Mailbox.put`."""
        accepted = super().put(envelope, wait=wait)
        self.feed()  # if it was taken without a task, the member has looked busy meanwhile
        return accepted

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
        """Fill the free slots from its own queue, then from that of the pool. Called for every slot that gets free."""
        if self._queue:
            super().feed()
        if self.taker is not None:
            self.crew.place(self.taker)
        # Also after its end: a handler that raises `NotSent` then has returned its message to the pool.
        self.crew.mailbox.feed()

    def detach(self) -> None:
        """Give the incarnation, whose end was decided, no more envelopes."""
        if self.taker is not None:  # else an observer has ended it before it was attached
            self.crew.leave(self.taker)
        super().detach()
        if not self.closed:
            self.crew.away[self] = None

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Close it, and refuse the messages to the pool if this was the last member that could handle them."""
        dropped = super().close(refusal)
        self.crew.closed(self, refusal)
        return dropped

    def reopen(self) -> None:
        """Accept messages again, for the pool too."""
        super().reopen()
        self.crew.opened(self)
        self.crew.mailbox.route = None


class Crew:
    """The members of a pool, as the one taker of its mailbox. See the top of the file.

    Attributes:
        name: the pool's.
        mailbox: the pool's.
        change: wakes the task that adds members and stops them.
        lanes: those that accept messages. They are kept up to date, because a look at all members for each that comes
            or goes would take a time that grows with the square of their number.
        away: those of them that no incarnation serves: their members start, stop, wait, or were stopped.
    """

    def __init__(self, record: Record, *, shrinks: bool) -> None:
        self.mailbox = record.mailbox
        self.name = record.name
        self.change = Change()
        self.lanes: dict[Lane, None] = {}
        self.away: dict[Lane, None] = {}
        self._record = record
        self._shrinks = shrinks
        self._rank: dict[Taker, int] = {}
        self._ranks: list[dict[Taker, float]] = [{}]
        self._top = 0

    @property
    def free(self) -> int:
        """The number of free slots of the member that is next."""
        while self._top:
            rank = self._ranks[self._top]
            if not rank:
                self._top -= 1
                continue
            taker = next(reversed(rank))
            if taker.free == self._top:
                break
            self.place(taker)
        return self._top

    def take(self, envelope: Envelope, *, here: bool = False) -> None:
        """Give an envelope to the member that is next."""
        taker = next(reversed(self._ranks[self._top]))
        taker.take(envelope, here=here)
        if taker.free > self._rank.get(taker, taker.free):
            # Its actor has answered in this step. While an actor takes a message without a task, it looks busy.
            self.place(taker)

    def place(self, taker: Taker) -> None:
        """Put a member at the end of its rank, with the time."""
        ranks, free = self._ranks, max(taker.free, 0)  # less while its actor refuses messages
        ranks[self._rank.get(taker, 0)].pop(taker, None)
        self._rank[taker] = free
        while len(ranks) <= free:
            ranks.append({})
        ranks[free][taker] = trio.current_time() if self._shrinks else 0.0
        if free > self._top:
            self._top = free

    def leave(self, taker: Taker) -> None:
        """Remove a member whose end was decided."""
        # It has no place yet if the first message of its own lane, taken without a task, has ended it.
        self._ranks[self._rank.pop(taker, 0)].pop(taker, None)
        self.change()

    def idle(self) -> Iterator[tuple[str, float]]:
        """Yield the names of the idle members and the times since when, those that are idle the longest first."""
        most = len(self._ranks) - 1
        return ((taker.name, since) for taker, since in self._ranks[-1].items() if most and taker.free == most)

    # --- for the detection of deadlocks -----------------------------------------------------------------------------

    def works(self, sender: Sender) -> bool:
        """Return True if a handler of a member, other than the sender, has made no calls."""
        return any(lane.is_worked_off(sender) for lane in self._all_lanes())

    def slots(self) -> list[Node]:
        """Return what the members wait for, all of them; empty if one can take a message or is about to start."""
        found: list[Node] = []
        for lane in self._all_lanes():
            blockers = lane.blockers()
            if not blockers and not lane.closed:
                return []
            found.extend(blockers)
        return found

    def _all_lanes(self) -> Iterator[Mailbox]:
        return (member.mailbox for member in (self._record.children or {}).values())

    # --- members that accept messages -------------------------------------------------------------------------------

    def opened(self, lane: Lane) -> None:
        """Count a lane whose member is about to start."""
        self.lanes[lane] = self.away[lane] = None

    def closed(self, lane: Lane, refusal: Callable[[], ActorError]) -> None:
        """Answer what waits, and refuse messages from now on, if no member is left that handles any."""
        self.lanes.pop(lane, None)
        self.away.pop(lane, None)
        self.change()
        is_over = self.mailbox.taker is not self  # another incarnation, perhaps of one actor, has the mailbox
        waits = self._record.state == "backoff"
        if is_over or waits or self.mailbox.closed or self.lanes:
            return

        def none_left() -> ActorStopped:
            return ActorStopped(
                f"actor {self.name!r}: all members of this pool have stopped and none restarts by itself; start one "
                f"with restart_child(), or restart the pool. The last of them: {refusal()}",
                actor=self.name,
            )

        def refuse(_: Message) -> NoReturn:
            raise none_left()

        for dropped in self.mailbox.close(none_left):
            self._record.note(events.DeadLetter, message=type(dropped.message).__name__)
        self.mailbox.reopen()  # for control messages, such as that of `restart_child`
        self.mailbox.route = refuse


def _unless_control(accepts: Accepts, name: str, kind: type[Message]) -> None:
    """Check a message to a pool by the class of its members. Control messages are for the pool itself."""
    if not kind.control:
        accepts(name, kind)
