"""Open an actor or a supervisor around a block of code.

The opened actor, the root, shares a nursery with the user's block. Either may fail, or both, and a cancellation or
Ctrl-C may come at any moment. After a bounded clean-up, the user must get one exception that says why.

Owns: the root actor's record; its mailbox; its event hub; its tasks; the nursery of the block.
Writes: the root's events; lists of opened actors and awaited calls of an actor that runs the block.
Calls: _actor, _circles, _envelope, _events, _incarnation, _mailbox, _record, _ref, _requests, _restart, _supervisor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import trio
from attrs import define, field

from .._collapse import collapse, exit_in, forget_cancelled, leaves, without_cancelled
from .._errors import ActorCrashed, ActorStopped
from .._foreign import plain_name
from .._misuse import check_flavor, explained, is_name
from ._actor import Actor, check_actor
from ._circles import current_sender, expect, is_bounded
from ._envelope import M
from ._events import EventHub, Observer, Outward
from ._incarnation import Incarnation, stop_within
from ._mailbox import Mailbox, OverflowPolicy, check_mailbox
from ._record import Record, failure_of, not_started
from ._ref import ActorRef, SupervisorRef, ref_to
from ._requests import Sweeper
from ._restart import ChildSpec, SupervisorOptions, shows_options
from ._supervisor import Supervisor

if TYPE_CHECKING:
    from ._record import End, EndReason


ON_ASYNCIO: Final = "use `from mcp_actors.bridge import open_supervisor`"


@explained
@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_actor(
    actor: Actor[M],
    *,
    name: str,
    mailbox_size: int = 256,
    overflow: OverflowPolicy = "wait",
    observers: Iterable[Observer] = (),
) -> AsyncIterator[ActorRef[M]]:
    """Run one actor, unsupervised, around a block of code.

    The block ends first, then the actor is asked to stop and, after its ``default_shutdown``, killed.

    **Cancellation**: while the actor starts, nothing is shielded. Afterwards a cancellation reaches the block; the
    actor then stops as at a normal end, within its bound.

    Args:
        actor: the actor to run. An object runs once; create a new one for each call.
        name: the actor's name in errors, events and logs.
        mailbox_size: the maximum number of queued messages.
        overflow: the behaviour of a full mailbox, as for `ChildSpec`.
        observers: called synchronously with every event.

    Yields:
        The reference to the actor, which has started.

    Raises:
        ActorStartError: the actor did not start; ``__cause__`` says why.
        ActorCrashed: the actor crashed while the block ran, and the block was cancelled; ``__cause__`` says why.
        BaseExceptionGroup: the actor crashed and the block raised an exception of its own at the same time.
        TypeError, ValueError: an argument is invalid; the message names it.
        RuntimeError: the caller does not run on Trio.
    """
    check_flavor("open_actor()", "trio", f"on asyncio, {ON_ASYNCIO}, with ChildSpec({name!r}, ...)")
    name = checked_name(name)
    check_actor(f"actor {name!r}", actor)
    check_mailbox(f"actor {name!r}", mailbox_size, overflow)
    record = Record(name, Mailbox(name, size=mailbox_size, policy=overflow), EventHub(observers))
    async with _run(actor, record):
        yield ref_to(record)


@explained
@shows_options
@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def open_supervisor(
    *specs: ChildSpec,
    name: str = "supervisor",
    observers: Iterable[Observer] = (),
    **options: Unpack[SupervisorOptions],
) -> AsyncIterator[SupervisorRef]:
    """Run a supervisor and its children around a block of code.

    `Supervisor` explains the other arguments; ``name`` and ``observers`` are as for `open_actor`.

    The block ends first, then the children stop, newest first, each within its own ``shutdown``.

    **Cancellation**: while the children start, nothing is shielded. Afterwards a cancellation reaches the block; the
    children then stop as at a normal end.

    Yields:
        The reference to the supervisor. If the supervisor is strict, all children have started; otherwise some may be
        starting, or wait for a retry.

    Raises:
        ActorStartError: a child did not start (strict only); the children that had started were stopped again.
        RestartLimitReached: the supervisor gave up while the block ran, and the block was cancelled.
        BaseExceptionGroup: the supervisor gave up and the block raised an exception of its own at the same time.
        RuntimeError: the caller does not run on Trio.
        ValueError: an argument is invalid, or the arguments contradict each other.
    """
    check_flavor("open_supervisor()", "trio", f"on asyncio, {ON_ASYNCIO}")
    name = checked_name(name)
    supervisor = Supervisor(*specs, **options)
    record = Record(name, Mailbox(name), EventHub(observers))
    async with _run(supervisor, record):
        yield SupervisorRef(record)


@define(eq=False, repr=False)
class Root(Incarnation):
    """The only run of the actor that a block opens.

    Attributes:
        block: the cancel scope around the block and the tasks of the root.
        ends: set when the block or the root ends.
    """

    _given: Actor
    _sweeper: Sweeper
    block: trio.CancelScope = field(init=False)
    ends: trio.Event = field(factory=trio.Event, init=False)

    def make(self) -> Actor:
        given = self._given
        del self._given
        return given

    def restarts_after(self, reason: EndReason) -> bool:
        return False

    def ends_by_itself(self) -> None:
        """Stop the root within its bound. A failure cancels the block in the same step."""
        self.ends.set()
        if self.verdict is not None and (self.verdict.crashed or self.verdict.error is not None):
            self.block.cancel(f"actor {self.record.name!r} failed")

    def on_end(self, end: End) -> None:
        record, failed = self.record, end.error is not None
        self._sweeper.stop()
        record.close("it failed" if failed else "it has ended")
        record.become("failed" if failed else "stopped")
        record.note_stopped()
        record.note_gone()
        record.hub.close()
        if failed and self.started:
            self.block.cancel(f"actor {record.name!r} failed")


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def _run(actor: Actor, record: Record) -> AsyncIterator[None]:
    """Run a root actor around a block. Raise the block's exception or the actor's failure, never a group of one.

    Three tasks run in the nursery: the `Sweeper`; the owner of the root, which shields itself once started; and `_end`.
    The block ends first, unless the root does, so calls in the clean-up of the block are still answered.
    """

    def exit_now() -> None:
        root.end("crashed", record.hub.exit)
        root.block.cancel("the program is to exit")

    # Not at once: interrupting the step that raises the exit would leave actors running.
    record.hub.on_exit = partial(trio.lowlevel.current_trio_token().run_sync_soon, exit_now)
    sweeper = Sweeper()
    record.sweeper = sweeper
    root = Root(record, actor, sweeper)
    opener = current_sender()
    if opener is not None and opener.busy and not is_bounded(opener):
        expect(opener, root)
    outer = opener.record if isinstance(opener, Incarnation) else None
    if outer is not None:
        # The opening actor's tree shows this tree, and observers there see the events.
        outer.opened = {**(outer.opened or {}), record: None}
        record.hub.add(Outward(outer.hub))
    entered = False
    from_block: BaseException | None = None
    escaped: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            root.block = nursery.cancel_scope
            nursery.start_soon(root.run, name=record.name)
            nursery.start_soon(sweeper.run, name=f"{record.name}:sweeper")
            nursery.start_soon(_end, root, name=f"{record.name}:stop")
            try:
                await root.change.until(root.has_outcome)
                if root.started:
                    entered = True
                    try:
                        yield
                    except BaseException as exc:
                        from_block = exc  # carried past the nursery, as in `Incarnation`
            finally:
                root.ends.set()
    except BaseException as exc:
        escaped = collapse(exc)
    if outer is not None:
        outer.opened = {each: None for each in outer.opened or () if each is not record} or None
    verdict = _verdict(root, from_block, escaped, entered=entered)
    forget_cancelled(from_block, instead=verdict)
    root.forget_error()
    record.hub.on_exit = lambda: None  # the tree has ended
    try:
        if verdict is not None:
            raise verdict
    finally:
        del verdict, from_block, escaped  # whose tracebacks refer to this frame


@trio.lowlevel.enable_ki_protection
async def _end(root: Root) -> None:
    """Stop the root, or bound its own end, independently of the task that opened the tree."""
    # The shield is bounded: `stop_within` kills the root after its own time. Without the shield, a cancellation of the
    # block would end this wait, and the nursery would be joined with a root that nothing has asked to stop.
    with trio.CancelScope(shield=True):
        await root.ends.wait()
        if not root.ending:
            root.record.close("the block that opened it was left")
        await stop_within(root, None, asked_at=trio.current_time())
        await root.change.until(root.is_ended)


def _verdict(
    root: Root, from_block: BaseException | None, escaped: BaseException | None, *, entered: bool
) -> BaseException | None:
    """Return the exception to raise once the root has ended, or None.

    ``from_block`` is the user's exception; ``escaped`` left the nursery: a cancellation or interrupt of this task, or a
    defect of another in it. ``entered`` is False if the block has not begun.
    """
    assert root.final is not None
    defect = without_cancelled(escaped)  # which has cancelled the block
    failure = (failure_of(root.final, root.record.name) or defect) if entered else root.final.error
    if failure is not None:
        # Our own scope has cancelled the block; the user must not see that Cancelled.
        from_block = without_cancelled(from_block)
    if any(not isinstance(leaf, (Exception, trio.Cancelled)) for leaf in leaves(from_block)):
        return from_block  # ends the program, or cancels an asyncio task
    if (interrupt := exit_in(escaped) or exit_in(failure) or root.record.hub.exit) is not None:
        return interrupt
    if not entered:
        return not_started(root.final, root.record.name) if escaped is None else escaped
    if failure is None:
        return from_block
    if from_block is None or _echoes(from_block, failure):
        return failure
    return BaseExceptionGroup(
        f"actor {root.record.name!r} failed, and so did the block that opened it", [failure, from_block]
    )


def _echoes(from_block: BaseException, failure: BaseException) -> bool:
    """Return True if the block raised only errors of calls that the actor's failure has caused."""
    causes: set[int] = set()  # by identity: their classes may define `==`
    cause = failure.__cause__
    while cause is not None and id(cause) not in causes:
        causes.add(id(cause))
        cause = cause.__cause__
    return all(isinstance(leaf, (ActorStopped, ActorCrashed)) or id(leaf) in causes for leaf in leaves(from_block))


def checked_name(name: str) -> str:
    given: object = name
    if not is_name(given):
        raise ValueError(f"an actor's name must be a non-empty str of one line, not {given!r}")
    return plain_name(name)
