"""Monitors, and references to actors and supervisors.

Programs send messages through an `ActorRef`, which refuses any message from outside the Trio run, and any call that
would deadlock.

Owns: monitors.
Writes: mailboxes; lists of an actor's monitors, a sender's awaited calls and a tree's event streams.
Calls: _circles, _envelope, _events, _record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeVar, overload

import trio
from attrs import define, field, frozen

from .._errors import ActorError, ActorStopped, ChildError
from .._foreign import shown
from .._misuse import check_states, explained_methods, unknown_argument
from .._pickling import Handle
from ._circles import current_sender, expect, explain, find_circle, is_bounded
from ._envelope import Call, CallFor, Envelope, M, M_contra, Message, PendingCall, Receives
from ._events import EventStream
from ._record import (
    ACTOR_STATES,
    ActorState,
    ActorStatistics,
    Change,
    ChildInfo,
    ChildrenCount,
    DownReason,
    Record,
    Spec as ChildSpec,
    TreeNode,
    elsewhere,
    stopped,
    tree_of,
)

if TYPE_CHECKING:
    from ._circles import Sender
    from ._envelope import Receives as Actor


# --- References to actors ---------------------------------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R", bound="ActorRef[Any]")


@explained_methods
class ActorRef(Handle, Receives[M_contra]):
    """A reference to an actor, valid across restarts. Sending raises `ActorStopped` after the last incarnation.

    For a type checker, an ``ActorRef[Add | Get]`` takes only these messages. A bare ``ActorRef`` takes any.

    References to the same actor are equal. There are no timeout arguments: use ``trio.fail_after``.

    Send messages from the actor's Trio run: from a thread through `trio.from_thread`, from asyncio through
    ``mcp_actors.bridge``. `state` and `statistics` may be read from anywhere.
    """

    __slots__ = ("__weakref__", "_record")

    def __init__(self, record: Record) -> None:
        self._record = record

    def __repr__(self) -> str:
        now = self.statistics()
        return f"<{type(self).__name__} {self.name!r} {now.state}, {now.in_flight} in flight, {now.queued} queued>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and other._record is self._record

    def __hash__(self) -> int:
        return hash(self._record)

    @property
    def name(self) -> str:
        """The actor's name."""
        return self._record.name

    @property
    def path(self) -> str:
        """The actor's name after the names of the supervisors above: ``"house/heating/pump"``.

        The path begins with the name given to `open_supervisor` or `open_actor`; the part after that is for
        `SupervisorRef.find`.
        """
        return self._record.path

    @property
    def supervisor(self) -> SupervisorRef | None:
        """The reference to the supervisor; None at the top of the tree, for an actor that a block has opened."""
        parent = self._record.parent
        return None if parent is None else SupervisorRef(parent)

    @property
    def state(self) -> ActorState:
        """``starting, running, backoff, stopping, stopped`` or ``failed``."""
        return self._record.state

    def statistics(self) -> ActorStatistics:
        """Return a snapshot, as frozen data."""
        return self._record.statistics()

    @trio.lowlevel.enable_ki_protection
    async def call(self, message: CallFor[Receives[M_contra], T], **unknown: Never) -> T:
        """Send a message and wait for the answer.

        Messages of one sender are handled in the order sent. While the actor restarts, a message not yet handed over
        waits, and the next incarnation serves it.

        **Cancellation**: checked before the message is sent. After that the caller leaves at once: a queued message is
        never served, and the handler of a message in flight is cancelled.

        Returns:
            The result of ``handle``.

        Raises:
            Exception: the exception that ``handle`` raised.
            ActorCrashed: the incarnation that served the message ended first; the effect is unknown.
            ActorStopped: the actor has stopped and will not restart by itself.
            MailboxFull: the mailbox is full and the policy is ``"fail"``.
            ActorError: the call would deadlock, because every handler that could serve it waits for the caller (the
                error shows the circle), or because the actor called itself from ``handle`` and is not
                `~Actor.reentrant`.
            TypeError: the message is not a `Message`, or the actor has no handler for it.
            RuntimeError: the caller is in another thread, an asyncio program, or another Trio run.
        """
        record = self._record  # read once: a `__getattr__` slows all attributes down
        if unknown or get_ident() != record.thread:  # `lives_here`, without a call per message
            self._check_run(unknown)
        await trio.lowlevel.checkpoint_if_cancelled()
        answer: T = await _send(record, message).wait()
        return answer

    def send_request(self, message: CallFor[Receives[M_contra], T], **unknown: Never) -> PendingCall[T]:
        """Send a message now, and wait for the answer later, or let another task bound the wait.

        Synchronous. The caller must wait for the answer; otherwise an error of the handler is lost.

        Raises:
            ActorStopped, MailboxFull, ActorError, TypeError, RuntimeError: as for `call`.
        """
        record = self._record
        if unknown or get_ident() != record.thread:
            self._check_run(unknown)
        return _send(record, message)

    @trio.lowlevel.enable_ki_protection
    async def tell(self, message: M_contra, **unknown: Never) -> None:
        """Send a message without waiting for an answer. An exception of the handler is logged and is an event.

        **Cancellation**: raised only if the message was not accepted and is never served.

        Raises:
            ActorStopped: as for `call`.
            MailboxFull: the mailbox is full and the policy is ``"fail"``; or waiting for room would deadlock, because
                every handler that could make room waits for the sender.
            TypeError, RuntimeError: as for `call`.
        """
        if unknown or not self._record.lives_here:
            self._check_run(unknown)
        await trio.lowlevel.checkpoint_if_cancelled()
        envelope = Envelope(message, is_call=False)
        sender = current_sender()
        if self._record.mailbox.put(envelope):
            await trio.lowlevel.cancel_shielded_checkpoint()
            return
        if sender is not None and sender.busy and not is_bounded(sender):
            circle = _circle(sender, envelope)
            if circle:
                envelope.withdraw()
                what = f"mailbox full, and waiting for room would deadlock ({explain(circle)})"
                remedy = "send the message from a task that no handler waits for, or raise mailbox_size"
                raise envelope.home.full(f"{what}; {remedy}")
            expect(sender, envelope)
        await envelope.wait()

    def tell_nowait(self, message: M_contra, **unknown: Never) -> None:
        """Like `tell`, without waiting.

        Raises:
            MailboxFull: the mailbox is full, and the policy is not ``"drop_oldest"``. Also a `trio.WouldBlock`.
            ActorStopped, TypeError, RuntimeError: as for `call`.
        """
        if unknown or not self._record.lives_here:
            self._check_run(unknown)
        self._record.mailbox.put(Envelope(message, is_call=False), wait=False)

    async def wait_stopped(self) -> None:
        """Wait until the actor has stopped and will not restart by itself (state ``stopped`` or ``failed``).

        **Cancellation**: only ends the waiting.

        Raises:
            ActorError, RuntimeError: as for `wait_state`.
        """
        await self.wait_state("stopped", "failed")

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Monitor]:
        """Watch the actor in a block, from a task that is not an actor's: ``async with ref.watch() as monitor:``.

        ``await monitor.wait()`` returns a `Down` when the current incarnation has ended and has released everything; at
        once if the actor has stopped (``"not_running"``). Between two incarnations, the next is watched. A monitor
        reports once: to see the next end, watch again. An actor watches others with `Actor.watch`.

        Raises:
            RuntimeError: as for `call`.
        """
        monitor = Monitor(self)
        monitor.begin()
        try:
            yield monitor
        finally:
            monitor.cancel()

    async def wait_state(self, *states: ActorState) -> ActorState:
        """Wait for one of some states, and return the state reached. A momentary state may be missed.

        **Cancellation**: only ends the waiting.

        Raises:
            ActorStopped: the actor stays in another state: it was deleted, or the tree has ended.
            ActorError: code of the actor, or of an actor below, would wait without a deadline for its own end.
            ValueError: a state is unknown, or none was given.
            RuntimeError: as for `call`.
        """
        check_states(f"actor {self.name!r}", states, ACTOR_STATES)
        record = self._record
        if record.state not in states:
            if not record.lives_here:
                raise elsewhere(self.name)
            if {"stopped", "failed"}.issuperset(states):
                check_not_within(record)
        await trio.lowlevel.checkpoint()
        await record.change.until(lambda: record.state in states or record.gone)
        if record.state not in states:
            what = f"actor {self.name!r}: is {record.state} and will never be {' or '.join(states)}"
            why = "it was deleted, or its tree has ended"
            raise ActorStopped(
                f"{what}, because {why}; start another one and use its reference", actor=self.name, handed_over=False
            )
        return record.state

    def _check_run(self, unknown: Iterable[str] = ()) -> None:
        for word in unknown:
            raise unknown_argument(f"actor {self.name!r}", word, ("message",))
        if not self._record.lives_here:
            self._record.mailbox.check_open()
            raise elsewhere(self.name)


def _send(record: Record, message: Any) -> PendingCall[Any]:
    envelope = Envelope(message, is_call=True)
    sender = current_sender()
    if sender is None or not sender.busy:
        record.mailbox.put(envelope)
    else:
        _send_from(sender, record, envelope)
    return envelope


def _send_from(sender: Sender, record: Record, envelope: Envelope) -> None:
    """Send a call for a busy sender. Raise an `ActorError` if the call would deadlock."""
    name = record.name
    if sender in record.in_flight and not record.reentrant:
        what = f"called itself while handling {type(sender.message).__name__}, which would deadlock"
        remedy = "call a method instead, or use tell()"
        raise ActorError(f"actor {name!r}: {what}; {remedy}", actor=name)
    if is_bounded(sender):
        record.mailbox.put(envelope)
        return
    # Noted before `put`: a supervisor may handle the message in this very step, and checks for deadlocks.
    envelope.holder = record.mailbox
    expect(sender, envelope)
    try:
        record.mailbox.put(envelope)
    except BaseException:
        envelope.open = False
        raise
    circle = _circle(sender, envelope)
    if circle:
        envelope.withdraw()
        raise ActorError(
            f"actor {name!r}: this call would deadlock ({explain(circle)}); use tell() where no answer is needed, "
            "raise max_in_flight of an actor that is called back, or, if one is starting or stopping, call it later",
            actor=name,
        )


def _circle(sender: Sender, envelope: Envelope) -> list[str]:
    mailbox = envelope.home
    if envelope.holder is not mailbox:
        # Taken in this very step. Its handler may already have sent calls that wait for this sender.
        return find_circle(sender, envelope) if envelope.calls else []
    if envelope.message.control:
        return find_circle(sender, envelope.place())
    return [] if mailbox.is_worked_off(sender) else find_circle(sender, mailbox)


# --- Monitors ---------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Down(Message):
    """The end of a watched incarnation, which has released everything; see `Actor.watch`.

    Attributes:
        ref: the actor that was watched.
        reason: ``"normal"`` (ended itself), ``"shutdown"`` (was stopped, or the supervisor gave up on a child),
            ``"crashed"`` (also: failed to start), ``"killed"`` (did not stop in time), ``"ignored"`` (had nothing to
            run), or ``"not_running"`` (had stopped before the watch began, or is not started after all).
        error: the failure, for reading: the exception of a crash, a supervisor's `RestartLimitReached`, or the
            exception of the clean-up in ``running()`` after another end.
        incarnation: the number of the incarnation that has ended.
        comes_back: True if another incarnation is expected. The supervisor may still give up, so watch again.
    """

    ref: ActorRef
    reason: DownReason
    error: BaseException | None = field(eq=False)
    incarnation: int
    comes_back: bool


@define(eq=False, repr=False)
class Monitor(Handle):
    """Watches an actor until the incarnation ends, once; see `ActorRef.watch` and `Actor.watch`.

    Attributes:
        ref: the watched actor.
        canceled: True once `cancel` was called.
    """

    ref: ActorRef
    canceled: bool = field(default=False, init=False)
    _down: Down | None = field(default=None, init=False)
    _change: Change = field(factory=Change, init=False)

    def __repr__(self) -> str:
        return f"<Monitor of {self.ref.name!r}>"

    def begin(self) -> None:
        """Begin to watch. At once, report an actor that has stopped."""
        record = self.ref._record
        if not record.lives_here:
            raise elsewhere(record.name)
        record.watch(self._report)

    def cancel(self) -> None:
        """Stop watching. A `Down` that is still queued is removed. Synchronous, and possible in any state."""
        self.canceled = True
        self.ref._record.unwatch(self._report)
        self._change()

    def _report(self, reason: DownReason, error: BaseException | None, comes_back: bool) -> None:
        if self.canceled:  # by code that the report to another monitor has run
            return
        number = self.ref._record.incarnation
        down = Down(ref=self.ref, reason=reason, error=error, incarnation=number, comes_back=comes_back)
        self._down = down
        self._change()
        self._deliver(down)

    def _deliver(self, down: Down) -> None:
        """A hook for the monitors of actors."""

    async def wait(self) -> Down:
        """Wait until the incarnation has ended, and return the report. Several tasks may wait.

        **Cancellation**: only ends the waiting.

        Raises:
            RuntimeError: the monitor was canceled.
            ActorError: code of the watched actor, or of an actor below, waits for its own end without a deadline.
        """
        if self._down is None:
            check_not_within(self.ref._record)
        await trio.lowlevel.checkpoint()
        while self._down is None:
            if self.canceled:
                raise RuntimeError(f"monitor of actor {self.ref.name!r}: was canceled; watch the actor again")
            await self._change.wait()
        return self._down


def check_not_within(record: Record) -> None:
    """Raise an error if code of an actor, or of an actor below, is about to wait for the actor's end.

    The end would never come by itself: nothing cancels the waiting code before the end is decided.
    """
    sender = current_sender()
    if sender is None or is_bounded(sender):
        return
    for each in record.walk():
        if sender in each.in_flight or sender is each.mailbox.life:
            raise ActorError(
                f"actor {record.name!r}: {each.name!r} waits for its end, which waits for {each.name!r}; call "
                "self.stop() to end an actor from within, or wait in a task outside of it",
                actor=record.name,
            )


# --- Supervisors ------------------------------------------------------------------------------------------------------

# Messages to supervisors take the control lane: a supervisor has no other work than its children.


@frozen(eq=False)
class StartChild(Call[ActorRef]):
    control: ClassVar[bool] = True
    spec: ChildSpec


@frozen(eq=False)
class StopChild(Call[None]):
    control: ClassVar[bool] = True
    id: str
    keep_mailbox: bool = False
    drain: bool = False
    sender: Sender | None = None


@frozen(eq=False)
class RestartChild(Call[ActorRef]):
    control: ClassVar[bool] = True
    id: str


@frozen(eq=False)
class DeleteChild(Call[None]):
    control: ClassVar[bool] = True
    id: str


class WhichChildren(Call[tuple[ChildInfo, ...]]):
    __slots__ = ()

    control: ClassVar[bool] = True


class CountChildren(Call[ChildrenCount]):
    __slots__ = ()

    control: ClassVar[bool] = True


ChildChange = StartChild | StopChild | RestartChild | DeleteChild


@explained_methods
class SupervisorRef(ActorRef[Any]):
    """A reference to a supervisor: an `ActorRef` with a typed method for each message.

    Queries are answered at once. Changes are made one after another, in the order requested, except that the stop of a
    child that starts, ends, or waits for its next start is made at once. With ``start_order="parallel"`` changes begin
    in that order, and changes of different children run concurrently.

    Queries and changes raise `ActorStopped` if the supervisor has stopped, or stops meanwhile.
    """

    __slots__ = ()

    @overload
    def child(self, id: str) -> ActorRef: ...
    @overload
    def child(self, id: str, kind: type[R]) -> R: ...
    @overload
    def child(self, id: str, kind: type[Actor[M]]) -> ActorRef[M]: ...
    def child(self, id: str, kind: type[Receives[Any]] = ActorRef) -> ActorRef:
        """Return the reference to a child, valid across restarts.

        Synchronous; no message is sent. After the first start of a child that is a supervisor, the result is a
        `SupervisorRef`.

        Args:
            id: the child's id.
            kind: the class of the child, for type checkers: ``child("counter", Counter)`` is an
                ``ActorRef[Add | Get]``. For a pool, the class of the members; for a supervisor, `SupervisorRef`. Not
                checked before the first start.

        Raises:
            ChildError: the child was not found (``reason="not_found"``).
            TypeError: the child is not of this kind.
        """
        record = (self._record.children or {}).get(id)
        if record is None:
            raise self._no_child(id)
        return self._known_as(ref_to(record), kind)

    def _known_as(self, ref: ActorRef, kind: type[Receives[Any]]) -> ActorRef:
        record = ref._record
        if kind is SupervisorRef and record.actor_class is None:
            return SupervisorRef(record)
        if isinstance(ref, kind) if issubclass(kind, ActorRef) else record.runs(kind):
            return ref
        what = "supervisor" if kind is SupervisorRef else kind.__name__
        raise TypeError(
            f"supervisor {self.name!r}: child {ref.name!r} is not a {what}, it runs {_class_of(record)}; check the id"
        )

    def _no_child(self, id: str) -> ChildError | TypeError:
        record = self._record
        if record.children is None and record.actor_class is not None:
            return TypeError(f"actor {self.name!r}: is not a supervisor, it runs {_class_of(record)}; check its id")
        remedy = "it has no children" if record.actor_class else "wait until this supervisor has started"
        if record.children:
            remedy = f"choose one of: {', '.join(record.children)}"
            if "." in id and id.partition(".")[0] in record.children:
                remedy = f"did you mean find({shown(id.replace('.', '/'))})?"
        what = f"supervisor {self.name!r}: child {id!r} not found; {remedy}"
        return ChildError(what, actor=self.name, reason="not_found")

    @overload
    def find(self, path: str) -> ActorRef: ...
    @overload
    def find(self, path: str, kind: type[R]) -> R: ...
    @overload
    def find(self, path: str, kind: type[Actor[M]]) -> ActorRef[M]: ...
    def find(self, path: str, kind: type[Receives[Any]] = ActorRef) -> ActorRef:
        """Return the reference to an actor below this supervisor: ``find("heating/pump")``.

        Synchronous; no message is sent. An id that contains a ``/`` is found by `child` only.

        Args:
            path: the ids on the way from this supervisor, separated by ``/``. With a ``/`` in front, the way begins at
                the top of the tree, as in ``f"/{ref.path}"``.
            kind: as for `child`.

        Raises:
            ChildError: an id on the way was not found (``reason="not_found"``), or its supervisor has never started.
            TypeError: an actor on the way is not a supervisor, or the last is not of this kind.
        """
        supervisor = self
        if path.startswith("/"):
            supervisor = SupervisorRef(self._record.top)
            top_path = f"/{supervisor.name}/"
            if not path.startswith(top_path):
                what = f"supervisor {supervisor.name!r}: path {path!r} not found"
                remedy = f"begin it with {top_path!r}, the top of this tree"
                raise ChildError(f"{what}; {remedy}", actor=supervisor.name, reason="not_found")
            path = path.removeprefix(top_path)
        *above, last = path.split("/")
        for id in above:
            supervisor = supervisor.child(id, SupervisorRef)
        return supervisor.child(last, kind)

    def tree(self) -> TreeNode:
        """Return this supervisor and all actors below as they are now; ``print(supervisor.tree())`` draws the tree.

        Synchronous; no message is sent, so `tree` also works while an actor is busy, hangs or has stopped.

        Raises:
            RuntimeError: as for `call`.
        """
        if not self._record.lives_here:
            raise elsewhere(self.name)
        return tree_of(self._record)

    async def start_child(self, spec: ChildSpec[M]) -> ActorRef[M]:
        """Add a child at the end of the table and start it.

        **Cancellation**: a change that has not begun is not made; a change that has begun continues without the caller.

        Returns:
            The reference to the child, once started or, if the supervisor is not strict, once the start was tried.

        Raises:
            ActorStartError: the child did not start and the supervisor is strict, so the child is not in the table; or
                the child was stopped while starting.
            ChildError: the id is taken (``already_started``, ``already_present``).
            ValueError: the argument is not a `ChildSpec`, or does not fit the supervisor.
        """
        return await self.call(StartChild(spec))

    async def stop_child(self, id: str, *, keep_mailbox: bool = False, drain: bool = False) -> None:
        """Stop a child in any state. A start or back-off in progress ends at once. The child stays in the table.

        **Cancellation**: as for `start_child`.

        Args:
            id: the child's id.
            keep_mailbox: True keeps the mailbox open, so that messages wait for a ``restart_child`` that follows.
            drain: True lets a serving child finish the messages that have begun and handle the queued messages, within
                the ``shutdown`` time; later messages are refused. A pool drains all members.

        Raises:
            ActorError: ``drain`` of a supervisor other than a pool; or the wait would deadlock.
            ChildError: the child was not found (``not_found``).
            ValueError: ``keep_mailbox`` and ``drain`` contradict each other.
        """
        if keep_mailbox and drain:
            what = f"supervisor {self.name!r}: keep_mailbox=True and drain=True contradict each other for child {id!r}"
            raise ValueError(f"{what}; remove one of them")
        await self.call(StopChild(id, keep_mailbox, drain, current_sender()))

    @overload
    async def restart_child(self, id: str) -> ActorRef: ...
    @overload
    async def restart_child(self, id: str, kind: type[R]) -> R: ...
    @overload
    async def restart_child(self, id: str, kind: type[Actor[M]]) -> ActorRef[M]: ...
    async def restart_child(self, id: str, kind: type[Receives[Any]] = ActorRef) -> ActorRef:
        """Start a child that is not running, with the same mailbox and a reset back-off.

        A parked child (state ``failed``) gets a new restart budget too. ``kind`` is as for `child`.

        **Cancellation**: as for `start_child`.

        Raises:
            ActorStartError: the child did not start and the supervisor is strict (the state is then ``failed``), or the
                child was stopped while starting.
            ChildError: the child was not found (``not_found``), or is running (``running``, ``restarting``).
            TypeError: the child was started, but is not of this kind.
        """
        return self._known_as(await self.call(RestartChild(id)), kind)

    async def delete_child(self, id: str) -> None:
        """Remove a child that is not running from the table, with the mailbox.

        **Cancellation**: a change that has not begun is not made.

        Raises:
            ChildError: as for `restart_child`.
        """
        await self.call(DeleteChild(id))

    async def which_children(self) -> tuple[ChildInfo, ...]:
        """Return the child table, in order. **Cancellation**: has no effect on the supervisor."""
        return await self.call(WhichChildren())

    async def count_children(self) -> ChildrenCount:
        """Return the number of children by kind. **Cancellation**: has no effect on the supervisor."""
        return await self.call(CountChildren())

    def watch_events(self, *, size: int = 1024) -> AbstractAsyncContextManager[EventStream]:
        """Subscribe to the events of the whole tree that this supervisor is in: ``async with`` yields the stream.

        The stream ends with the block or with the tree.

        Args:
            size: how many events may wait for the reader; one more drops the oldest (see `EventStream.missed`).

        Raises:
            ActorStopped: the tree has ended.
            RuntimeError: as for `call`.
        """
        self._check_run()
        return self._record.hub.subscribe(partial(stopped, self.name, "its tree has ended"), size=size)


def _class_of(record: Record) -> str:
    return "nothing" if record.actor_class is None else record.actor_class.__name__


def ref_to(record: Record) -> ActorRef:
    return ActorRef(record) if record.children is None else SupervisorRef(record)
