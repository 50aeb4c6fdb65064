"""Pools: equal actors behind one reference.

A pool is a supervisor of its members. Messages wait in the pool's mailbox, and the member with the most free slots
takes the oldest message. With a ``key`` function, messages wait in members' mailboxes: the hash of a message's key
chooses a member. Control messages are for the pool itself.

Owns: ranks of members by free slots; the resizing task; tasks that await members' starts.
Writes: the table of members; records of pool and members; mailboxes of pool and members; events; the log.
Calls: _actor, _envelope, _events, _mailbox, _record, _ref, _restart, _supervisor.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from heapq import heappop, heappush
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Any, Literal, cast

import outcome
import trio
from attrs import evolve

from .._errors import ActorError, ActorStopped, MailboxFull
from .._foreign import words_of
from .._misuse import check_option, is_seconds, is_whole
from . import _events as events
from ._actor import Actor
from ._envelope import Envelope, M, M_contra
from ._mailbox import Mailbox
from ._record import CUT_SHORT, Change, Record, failure_text
from ._ref import ActorRef, DeleteChild, StartChild
from ._restart import ChildSpec
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from typing import NoReturn

    from .._backoff import Backoff
    from ._circles import Node, Sender
    from ._envelope import Message
    from ._incarnation import Shutdown
    from ._mailbox import Accepts, Owner, Taker
    from ._restart import ParkRetry
    from ._table import Child, Run


# --- Give each message to the freest member ---------------------------------------------------------------------------

# Theory of operation
# -------------------
# The pool's mailbox sees one taker, the `Crew`, with the free slots of the freest member. A member has a mailbox too,
# its `MemberMailbox`, for control messages and messages to its own reference, and serves it first.
#
# The freest member is found without a search. `Crew` keeps the members in *ranks* by free slots. Freeing a slot moves a
# member to its rank (`Crew.place`). Taking a message does not: a member with fewer free slots than its rank says is
# moved once it is next (`Crew.free`). So a message moves its member at most twice.
#
# Within a rank the last member is next. So a pool with little to do leaves the others idle until they are stopped, in
# the order in which they became idle.


class MemberMailbox(Mailbox):
    """The mailbox of one member, which also takes from the mailbox of the pool."""

    __slots__ = ("crew",)

    crew: Crew

    @trio.lowlevel.enable_ki_protection
    def attach(self, owner: Owner) -> None:
        """Serve with an incarnation, whose actor also checks messages for the pool."""
        if self.accepts is not None:
            self.crew.mailbox.accepts = partial(_unless_control, self.accepts)
        self.crew.not_serving.pop(self, None)
        super().attach(owner)

    @trio.lowlevel.enable_ki_protection
    def put(self, envelope: Envelope, *, wait: bool | None = None) -> bool:
        accepted = super().put(envelope, wait=wait)
        self.feed()  # a member looks busy while it takes without a task
        return accepted

    @trio.lowlevel.enable_ki_protection
    def feed(self) -> None:
        """Fill the free slots from this mailbox, then from the pool's."""
        if self._queue or self._control or self.on_fed is not None:
            super().feed()
        if self.taker is not None:
            self.crew.place(self.taker)
        # After the end too: a `NotSent` may have returned a message to the pool's mailbox.
        self.crew.mailbox.feed()

    @property
    def backlog(self) -> Mailbox:
        return self if self.queued else self.crew.mailbox

    def resume(self) -> None:
        super().resume()
        self.crew.mailbox.resume()

    def detach(self) -> None:
        if self.taker is not None:  # else ended before it was attached
            self.crew.leave(self.taker)
        super().detach()
        if not self.closed:
            self.crew.not_serving[self] = None

    @trio.lowlevel.enable_ki_protection
    def close(self, refusal: Callable[[], ActorError]) -> list[Envelope]:
        """Close this mailbox, and refuse messages to the pool if no other member can handle them."""
        dropped = super().close(refusal)
        self.crew.closed(self, refusal)
        return dropped

    def reopen(self) -> None:
        super().reopen()
        self.crew.lanes[self] = self.crew.not_serving[self] = None
        self.crew.mailbox.route = None


class Crew:
    """The members of a pool, as the taker of the pool's mailbox.

    Attributes:
        change: wakes the task that adds and stops members.
        lanes: the member mailboxes that accept messages. Counting members at each change would take quadratic time.
        not_serving: the member mailboxes without a serving incarnation.
    """

    def __init__(self, record: Record, *, shrinks: bool) -> None:
        self.mailbox = record.mailbox
        self.name = record.name
        self.change = Change()
        self.lanes: dict[MemberMailbox, None] = {}
        self.not_serving: dict[MemberMailbox, None] = {}
        self._record = record
        self._shrinks = shrinks
        self._rank: dict[Taker, int] = {}
        self._ranks: list[dict[Taker, float]] = [{}]
        self._top = 0

    @property
    def free(self) -> int:
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

    def take(self, envelope: Envelope) -> None:
        taker = next(reversed(self._ranks[self._top]))
        taker.take(envelope)
        if taker.free > self._rank.get(taker, taker.free):
            # Answered in this step; a member looks busy while it takes.
            self.place(taker)

    def place(self, taker: Taker) -> None:
        """Put a member at the end of its rank."""
        ranks, free = self._ranks, max(taker.free, 0)  # negative while its actor refuses messages
        ranks[self._rank.get(taker, 0)].pop(taker, None)
        self._rank[taker] = free
        while len(ranks) <= free:
            ranks.append({})
        ranks[free][taker] = trio.current_time() if self._shrinks else 0.0
        if free > self._top:
            self._top = free

    def leave(self, taker: Taker) -> None:
        # No rank yet, if the first message in its mailbox has ended the member.
        self._ranks[self._rank.pop(taker, 0)].pop(taker, None)
        self.change()

    def idle(self) -> Iterator[tuple[str, float]]:
        """Yield the names of the idle members, and since when, the longest idle first."""
        most = len(self._ranks) - 1
        return ((taker.name, since) for taker, since in self._ranks[-1].items() if most and taker.free == most)

    # --- as a node of the wait-for graph ----------------------------------------------------------------------------

    def makes_progress(self, sender: Sender) -> bool:
        return any(lane.is_worked_off(sender) for lane in self._all_lanes())

    def holders_if_full(self) -> list[Node]:
        """Return the nodes that all members wait for; empty if a member can take a message or is about to start."""
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

    def closed(self, lane: MemberMailbox, refusal: Callable[[], ActorError]) -> None:
        """Answer and refuse messages, if no member is left to handle them."""
        self.lanes.pop(lane, None)
        self.not_serving.pop(lane, None)
        self.change()
        is_over = self.mailbox.taker is not self  # another incarnation has the mailbox
        waits = self._record.state == "backoff"
        if is_over or waits or self.mailbox.closed or self.lanes:
            return

        def none_left() -> ActorStopped:
            what = (
                f"actor {self.name!r}: all members of this pool have stopped and none restarts by itself; start one "
                f"with restart_child(), or restart the pool. The last of them: {refusal()}"
            )
            return ActorStopped(what, actor=self.name, handed_over=False)

        def refuse(_: Message) -> NoReturn:
            raise none_left()

        for dropped in self.mailbox.close(none_left):
            self._record.note(events.DeadLetter, message=type(dropped.message).__name__)
        self.mailbox.reopen()  # for control messages, such as that of `restart_child`
        self.mailbox.route = refuse


def _unless_control(accepts: Accepts, name: str, kind: type[Message]) -> None:
    if not kind.control:
        accepts(name, kind)


# --- The pool, a supervisor of equal actors ---------------------------------------------------------------------------

# Messages belong to the pool's mailbox until a member takes them; with a key, to the mailbox of one member, which
# outlives the member's incarnations: messages wait during a restart, and are refused once the member is parked.
#
# One task, `Pool._adjust`, adds and stops members, and ends before the members are asked to stop.


class Pool(Supervisor[M_contra]):
    """Equal actors behind one reference.

    Run a pool like any actor: ``ChildSpec("db", lambda: Pool(Connection, size=4))``, or
    ``open_actor(Pool(...), name="db")``. One member handles each message to the reference, which is also a
    `SupervisorRef`, with the members as children ``"db-1"`` to ``"db-4"``.

    Messages wait in one mailbox, and the member with the most free slots takes the oldest. Messages are thus taken in
    the order of arrival, but those of one sender may be handled at the same time, and begin in another order. With a
    ``key``, the same member handles all messages with equal keys, in order. The hash of the key chooses the member, for
    as long as the process runs, also after restarts. Each member then has a mailbox of the pool's size.

    A member that ends or crashes is restarted like a child of a supervisor with ``strategy="one_for_one"``. A crash
    affects only the messages that the member was handling. Other members do the work of a parked member; with a
    ``key``, messages for the parked member are refused. If all members are parked, all messages are refused.

    Args:
        factory: called once for each incarnation of a member; returns a new actor each time.
        size: the number of members, or the smallest and the greatest number, as in ``(1, 8)``. Members are then added
            while messages wait and no slot is free: one for each waiting message.
        key: returns the key of a message, a hashable value. The function is called in the sender's step, and its
            exceptions are raised to the sender. A key needs a fixed size.
        shrink_after: seconds after which an idle member above the smallest number is stopped.
        max_restarts: the restart attempts allowed within ``window``, for all members together. None allows one for each
            member: a database that restarts breaks all connections at once.
        budget_per_member: True allows each member ``max_restarts`` attempts of its own.
        separator: the text between the name of the pool and the number of a member.
        window, reset_after, backoff, on_limit, park_retry, strict, await_start: as for `Supervisor`.
        start_timeout, shutdown: as for `ChildSpec`, for each member.

    Raises:
        ValueError: an argument is invalid; the message names it.
    """

    def __init__(  # noqa: PLR0913  # its own options, those of a supervisor, and those of a child
        self,
        factory: Callable[[], Actor[M_contra]],
        size: int | tuple[int, int] = 4,
        *,
        key: Callable[[Any], Hashable] | None = None,
        shrink_after: float = 60.0,
        max_restarts: int | None = None,
        budget_per_member: bool = False,
        separator: str = "-",
        window: float = 5.0,
        reset_after: float | None = None,
        backoff: Backoff | None = None,
        on_limit: Literal["end", "park"] = "end",
        park_retry: ParkRetry | None = None,
        strict: bool = True,
        await_start: bool = True,
        start_timeout: float | None = None,
        shutdown: Shutdown | None = None,
    ) -> None:
        self._least, self._most = _bounds(size)
        check_option("Pool", "key", key, "a function from a message to its key", valid=key is None or callable(key))
        if key is not None and self._least < self._most:
            raise ValueError(
                f"Pool: size={size} and key contradict each other, because a key belongs to one member as long as the "
                f"pool runs; set size={self._most}, or remove key"
            )
        check_option("Pool", "shrink_after", shrink_after, "positive seconds", valid=is_seconds(shrink_after))
        valid = isinstance(budget_per_member, bool)
        check_option("Pool", "budget_per_member", budget_per_member, "True or False", valid=valid)
        check_option("Pool", "separator", separator, "a str", valid=isinstance(separator, str))
        self._key = key
        self._shrink_after = shrink_after
        self._budget_per_child, self._separator = budget_per_member, separator
        self._factory = factory
        self._member = _spec(factory, start_timeout=start_timeout, shutdown=shutdown)
        self._resume_at = -math.inf
        super().__init__(
            max_restarts=(1 if budget_per_member else self._most) if max_restarts is None else max_restarts,
            window=window,
            reset_after=reset_after,
            backoff=backoff,
            on_limit=on_limit,
            park_retry=park_retry,
            start_order="parallel",
            stop_order="concurrent",
            strict=strict,
            await_start=await_start,
        )

    # --- the owner task ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self) -> AsyncIterator[None]:
        """Divide the work, run the members, and adjust their number."""
        record = self._life.record
        self._crew = Crew(record, shrinks=self._least < self._most)
        self._size, self._unused = self._least, self._least + 1  # the number of members; the next new number
        self._free: list[int] = []  # the numbers of removed members, as a heap
        self._specs = tuple(self._spec(number) for number in range(1, self._least + 1))
        known = record.children or {}
        # `add_all` closes members that the pool no longer has.
        members = {spec.id: self._record_of(spec, known.get(spec.id)) for spec in self._specs}
        record.children = known | members
        record.is_pool = True
        try:
            if self._key is None:
                record.mailbox.taker = self._crew
            else:
                self._divide([member.mailbox for member in members.values()])
            async with super().running(), trio.open_nursery() as nursery:
                if self._least < self._most:
                    nursery.start_soon(self._adjust, nursery, name=f"{record.name}:size")
                yield
                nursery.cancel_scope.cancel("the pool stops")
        finally:
            record.mailbox.taker = record.mailbox.route = record.mailbox.on_wait = None
            self._specs = ()  # they refer to this object

    def _id(self, number: int | Literal[""]) -> str:
        return f"{self._life.record.name}{self._separator}{number}"

    def _spec(self, number: int) -> ChildSpec:
        id, mailbox = self._id(number), self._life.record.mailbox
        return evolve(self._member, id=id, factory=self._make, mailbox_size=mailbox.size, overflow=mailbox.policy)

    def _make(self) -> Actor:
        actor = self._factory()
        if isinstance(actor, Supervisor):
            raise TypeError(
                f"actor {self._life.record.name!r}: a member of a pool cannot be a {type(actor).__name__}, which "
                "handles no messages but those about its children; make it an Actor that opens what it needs"
            )
        return actor

    def _record_of(self, spec: ChildSpec, known: Record | None = None) -> Record:
        pool = self._life.record
        if known is not None and isinstance(known.mailbox, MemberMailbox) is not (self._key is None):
            known.forget(f"{pool.name!r} was started again as another kind of actor")
            known = None
        if known is None:
            size, policy = spec.mailbox_size, spec.overflow
            lane = MemberMailbox(spec.id) if self._key is None else Mailbox(spec.id, size=size, policy=policy)
            known = Record(spec.id, lane, pool.hub, pool)
        if self._key is None:
            cast("MemberMailbox", known.mailbox).crew = self._crew
        known.mailbox.reopen()
        return known

    @staticmethod
    @trio.lowlevel.enable_ki_protection
    async def broadcast(ref: ActorRef[M], message: M) -> int:
        """Send a message to every member of a pool, in one step, without waiting for answers.

        A member handles the message before those that wait in the pool. Stopped members do not get the message.

        **Cancellation**: checked before the message is sent. Afterwards a cancellation ends the wait for members with
        full mailboxes, which then do not get the message.

        Args:
            ref: the reference to the pool.
            message: the message.

        Returns:
            The number of members that have got the message.

        Raises:
            MailboxFull: the mailbox of a member is full and its policy is ``"fail"``; the others have got the message.
            TypeError: the reference is not to a pool, or the members do not handle the message.
            RuntimeError: as for `ActorRef.call`.
        """
        record = ref._record
        if not record.is_pool:
            raise TypeError(f"actor {ref.name!r}: broadcast() takes the reference to a pool that has started")
        ref._check_run()
        await trio.lowlevel.checkpoint_if_cancelled()
        sent: list[Envelope] = []
        waiting: list[Envelope] = []
        full: MailboxFull | None = None
        for member in tuple((record.children or {}).values()):
            envelope = Envelope(message, is_call=False)
            try:
                (sent if member.mailbox.put(envelope) else waiting).append(envelope)
            except ActorStopped:
                pass
            except MailboxFull as exc:
                full = exc
        await trio.lowlevel.cancel_shielded_checkpoint()
        try:
            for envelope in waiting:
                with suppress(ActorStopped):
                    await envelope.wait()
                    sent.append(envelope)
        finally:
            for envelope in waiting:
                envelope.withdraw()
        if full is not None:
            raise full
        return len(sent)

    def handle(self, message: Any) -> Any:
        """Answer as a supervisor does, but refuse changes of the table of members."""
        if isinstance(message, StartChild | DeleteChild):
            name = self._life.record.name
            what = f"actor {name!r}: a pool adds and removes its members itself; set their number with Pool(size=...)"
            raise ActorError(what, actor=name)
        return super().handle(message)

    # --- by key -----------------------------------------------------------------------------------------------------

    def _divide(self, lanes: list[Mailbox]) -> None:
        """Route messages by key, including those that have waited for the pool to start."""
        record = self._life.record

        def route(message: Message) -> Mailbox:
            return lanes[self._place(message) % len(lanes)]

        waiting = deque(record.mailbox.drain())
        while waiting:
            envelope = waiting.popleft()
            try:
                lane = envelope.context.run(route, envelope.message)
            except Exception as exc:
                if not (envelope.settle(outcome.Error(exc)) and envelope.awaited):
                    message = type(envelope.message).__name__
                    text = "actor %r: no key for %s, and no caller gets the error"
                    record.hub.log(ERROR, text, record.name, message, error=exc)
                    record.note(events.Unhandled, message=message, error=exc)
            except BaseException:  # the start fails: the messages wait for the next start, or the end
                for each in (envelope, *waiting):
                    record.mailbox.put_back(each)
                raise
            else:
                lane.adopt(envelope)
        record.mailbox.route = route

    def _place(self, message: Message) -> int:
        assert self._key is not None
        name, kind = self._life.record.name, type(message).__name__
        try:
            key = self._key(message)
        except Exception as exc:
            with suppress(Exception):  # its class may define `add_note`
                exc.add_note(f"actor {name!r}: raised by the key function of this pool for {kind}, which was not sent")
            raise
        try:
            return hash((key,))  # the tuple mixes bits: ints may all be even
        except TypeError:
            raise TypeError(
                f"actor {name!r}: the key of {kind} is a {type(key).__name__}, which is not hashable; return a str, an "
                "int, or a tuple of them from the key function"
            ) from None

    # --- growing and shrinking --------------------------------------------------------------------------------------

    async def _adjust(self, nursery: trio.Nursery) -> None:
        """Add members while messages wait, and stop idle members."""
        mailbox, crew = self._life.record.mailbox, self._crew
        while True:
            self._grow(nursery, self._missing())
            look_again = self._shrink()
            # At its greatest size the pool ignores waiting messages.
            mailbox.on_wait = crew.change if len(self._children.table) < self._most else None
            with trio.move_on_at(look_again):
                await crew.change.wait()

    def _missing(self) -> int:
        """Return the number of members to add: one for each waiting message, less the members about to serve."""
        if trio.current_time() < self._resume_at:
            return 0
        table = self._children.table
        coming = sum(table[lane.name].in_between for lane in self._crew.not_serving)
        return min(self._life.record.mailbox.queued - coming, self._most - len(table))

    def _grow(self, nursery: trio.Nursery, missing: int) -> None:
        if missing <= 0:
            return
        for number in self._take_numbers(missing):
            spec = self._spec(number)
            child = self._children.add(spec, self._record_of(spec))
            self._size += 1
            self._life.record.note(events.MemberAdded, member=spec.id, members=self._size)
            nursery.start_soon(self._added, self._children.begin(child), name=f"{spec.id}:start")

    def _take_numbers(self, count: int) -> list[int]:
        """Reserve the smallest free numbers. A number is not free while the former member stops."""
        taken: list[int] = []
        stopping: list[int] = []
        while self._free and len(taken) < count:
            number = heappop(self._free)
            (stopping if self._id(number) in self._children.table else taken).append(number)
        for number in stopping:
            heappush(self._free, number)
        unused = range(self._unused, self._unused + count - len(taken))
        self._unused = unused.stop
        return [*taken, *unused]

    @trio.lowlevel.enable_ki_protection
    async def _added(self, run: Run) -> None:
        """Wait for the start of an added member, and go on without it after a failure."""
        end = await self._children.outcome(run)
        if end is None or end is CUT_SHORT or self._children.pass_on_exit(end):
            return
        # A database that refuses another connection is asked again soon, but not for every message.
        self._resume_at = trio.current_time() + 1.0
        if end.error is not None:
            self._life.record.hub.log(
                WARNING,
                "actor %r: member %r, added because messages wait, did not start: %s; the pool goes on with fewer",
                self._life.record.name,
                run.child.spec.id,
                failure_text(end.error),
            )
        self._note_removed(run.child)
        self._children.remove(run.child)

    def _shrink(self) -> float:
        """Stop members that have been idle for too long. Return the time of the next check."""
        now = trio.current_time()
        again = self._resume_at if self._resume_at > now else math.inf
        table, spare = self._children.table, len(self._crew.lanes) - self._least
        idle: list[Child] = []
        for name, since in self._crew.idle():
            if len(idle) >= spare:
                break
            if since + self._shrink_after > now:
                again = min(again, since + self._shrink_after)
                break
            if not table[name].record.in_flight:
                idle.append(table[name])
        else:
            if len(idle) < spare:
                again = min(again, now + self._shrink_after)
        for child in idle:
            self._note_removed(child)
            self._children.begin_stop(child, "removed")
        return again

    def _note_removed(self, child: Child) -> None:
        id = child.spec.id
        self._size -= 1
        heappush(self._free, int(id.removeprefix(self._id(""))))
        self._life.record.note(events.MemberRemoved, member=id, members=self._size)


def _spec(factory: Any, **options: Any) -> ChildSpec:
    """Return the spec of each member. Errors name the pool, because programs do not write the spec."""
    try:
        return ChildSpec("member", factory, **options)
    except ValueError as error:
        raise ValueError(words_of(error).replace("child 'member'", "Pool", 1)) from None


def _bounds(size: object) -> tuple[int, int]:
    match size:
        case least, most if is_whole(least, 1) and is_whole(most, least):
            return least, most
        case _ if is_whole(size, 1):
            return size, size
    raise ValueError(
        f"Pool: size must be an int of at least 1, or the smallest and the greatest number, as in (1, 8), not {size!r}"
    )
