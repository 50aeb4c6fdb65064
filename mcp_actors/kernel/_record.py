"""The record of an actor, which outlives its incarnations.

Refs, a supervisor and incarnations share a record. When an incarnation has ended, messages wait in the mailbox, and the
state says whether another incarnation will follow.

Owns: an actor's state; its mailbox; its children; its watchers.
Writes: events of the tree; records and mailboxes of actors below. Wakes waiting tasks.
Calls: _envelope, _events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, get_args

import trio
from attrs import define, field, frozen

from .._collapse import caused_by, flattened, is_a, is_exit
from .._errors import ActorCrashed, ActorError, ActorStartError, ActorStopped, McpActorsError, RestartLimitReached
from .._foreign import shown, words_of
from .._text import plain_text
from ._envelope import M_contra
from ._events import DeadLetter, Stopped

if TYPE_CHECKING:
    from ._envelope import Envelope
    from ._events import Event, EventHub
    from ._mailbox import Accepts, Mailbox


# --- The end of an incarnation, and its errors ------------------------------------------------------------------------


EndReason = Literal["normal", "shutdown", "crashed", "ignored"]


@frozen
class End:
    """The end of an incarnation.

    Attributes:
        reason: ``"normal"`` (the actor ended itself), ``"shutdown"`` (it was stopped), ``"crashed"``, ``"ignored"``
            (nothing to run).
        error: the cause of a crash, once known; `RestartLimitReached` if a supervisor gave up.
        hopeless: True if `Actor.is_hopeless` returned True.
        keeps_mailbox: True if messages wait for a later ``restart_child``.
    """

    reason: EndReason
    error: BaseException | None = field(default=None, eq=False)
    hopeless: bool = False
    keeps_mailbox: bool = False

    @property
    def crashed(self) -> bool:
        return self.reason == "crashed"


def failure_text(failure: BaseException | None) -> str:
    """Return the text of a failure, for the error caused by it.

    The text of an `ActorError` is used as is. A `repr` would be escaped again at every level of a tree, and double in
    length each time.
    """
    if is_a(failure, ActorError):
        return words_of(failure)
    return shown(failure if failure is None else flattened(failure))


CUT_SHORT: Final = End("shutdown")
"""The outcome of a start attempt that a stop has interrupted; the caller of the stop does the rest."""


def stopped(name: str, why: str = "it was stopped", *, handed_over: bool = False) -> ActorStopped:
    """Return the error of a message to a stopped actor. ``handed_over``: the handling had begun."""
    what = (
        f"actor {name!r}: has stopped and will not restart by itself ({why}); "
        "call restart_child if its supervisor still lists it"
    )
    return ActorStopped(what, actor=name, handed_over=handed_over)


def interrupted(end: End, name: str, number: int, message: str, *, comes_back: bool) -> ActorError:
    """Return the error of a caller whose message was being handled when the end was decided."""
    if not end.crashed and not comes_back:
        return stopped(name, f"it ended ({end.reason}) while it handled {message}", handed_over=True)
    what = (
        f"actor {name!r}: incarnation {number} ended ({end.reason}) while it handled {message}, whose effect is "
        "unknown; send it again only if repeating it is safe"
    )
    return caused_by(ActorCrashed(what, actor=name), end.error)


def not_started(end: End, name: str) -> BaseException:
    """Return the error for the block whose actor did not start."""
    if is_a(end.error, ActorStartError):
        return end.error
    if end.error is not None:
        why = words_of(end.error)
    elif end.reason == "ignored":
        why = "it has nothing to run"
    else:
        why = f"it ended itself ({end.reason}) before it had started"
    what = f"actor {name!r}: did not start: {why}"
    return caused_by(ActorStartError(what, actor=name), end.error)


def failure_of(end: End, name: str) -> BaseException | None:
    """Return the error for the block that has opened an actor; None without a failure."""
    if end.error is None or is_a(end.error, RestartLimitReached) or is_exit(end.error):
        return end.error
    what = f"actor {name!r}: crashed: {failure_text(end.error)}; to have it restarted, run it in open_supervisor()"
    return caused_by(ActorCrashed(what, actor=name), end.error)


# --- The record, and its changes --------------------------------------------------------------------------------------


ActorState = Literal["starting", "running", "backoff", "stopping", "stopped", "failed"]

DownReason = Literal["normal", "shutdown", "crashed", "killed", "ignored", "not_running"]

Report = Callable[[DownReason, BaseException | None, bool], object]
"""Takes the reason and the error of an end, and whether another incarnation is expected."""

ACTOR_STATES: Final[tuple[ActorState, ...]] = get_args(ActorState)


@frozen(kw_only=True)
class ActorStatistics:
    """A snapshot of one actor.

    Attributes:
        state: the actor's state.
        incarnation: the number of the incarnation, counted from 1; 0 before the first.
        queued: messages that wait in the mailbox.
        in_flight: messages being handled. Calls answered by the end of an incarnation do not count, although their
            handlers may not have ended yet.
        dropped: messages dropped by a full mailbox with ``overflow="drop_oldest"``.
    """

    state: ActorState
    incarnation: int
    queued: int
    in_flight: int
    dropped: int = 0


class Change:
    """Wakes tasks and calls functions at a change.

    While nothing waits, only a reference is stored. With a `trio.Event`, an idle actor would need 300 bytes more.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[trio.lowlevel.Task | Callable[[], object], None] | None = None

    def __call__(self) -> None:
        """Wake all; each checks its own condition again."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for each in waiting:
                if type(each) is trio.lowlevel.Task:
                    trio.lowlevel.reschedule(each)
                else:
                    each()

    @property
    def awaited(self) -> bool:
        return bool(self._waiting)

    def call(self, fn: Callable[[], object]) -> None:
        """Call a function at the next change, in that step."""
        if self._waiting is None:
            self._waiting = {}
        self._waiting[fn] = None  # in place: a cancelled task removes itself from the dict it knows

    @trio.lowlevel.enable_ki_protection
    async def wait(self) -> None:
        """Wait for the next change."""
        if self._waiting is None:
            self._waiting = {}
        task, waiting = trio.lowlevel.current_task(), self._waiting
        waiting[task] = None

        def leave(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            del waiting[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)

    async def until(self, check: Callable[[], object]) -> None:
        """Wait until a check, made now and after each change, succeeds."""
        while not check():
            await self.wait()


class Sweeps(Protocol):
    """The sweeper of a tree of actors."""

    def add(self, sweep: Callable[[], float | None], after: float) -> None:
        """Call a function after some seconds, and again after as many as it returns, until it returns None."""

    def discard(self, sweep: Callable[[], float | None]) -> None:
        """Forget a function."""


@define(eq=False, repr=False)
class Record:
    """The lasting part of one actor. The supervisor and the incarnations write it; refs read it and add watchers.

    Attributes:
        killed: True if the latest incarnation was killed.
        gave_up: True once the supervisor restarts the actor no more, until the next start.
        gone: True if no start can follow: the actor was deleted, or the tree has ended. The state is then final.
        reentrant: see `Actor.reentrant`. Set by each incarnation.
        in_flight: the envelopes being handled; empty between incarnations.
        is_pool: True if the children share the work.
        children: for a supervisor, child id → record; kept across incarnations.
        change: wakes tasks that wait for another state.
        actor_class: the class of the running or last actor; None before the first start.
        parent: the supervisor's record; None for an actor opened by a block.
        restarts: starts after a failure, of the actor itself or of its group.
        last_error: the last failure, as text: a traceback would keep frames alive.
        sweeper: the tree's `Sweeper`, set before any child is added.
        thread: the thread of the actor's Trio run; see `lives_here`.
        opened: the actors and supervisors opened by code of this actor outside its handlers.
    """

    name: str
    mailbox: Mailbox
    hub: EventHub
    parent: Record | None = None
    state: ActorState = field(default="starting", init=False)
    incarnation: int = field(default=0, init=False)
    killed: bool = field(default=False, init=False)
    gave_up: bool = field(default=False, init=False)
    gone: bool = field(default=False, init=False)
    reentrant: bool = field(default=False, init=False)
    in_flight: set[Envelope] = field(factory=set, init=False)
    is_pool: bool = field(default=False, init=False)
    actor_class: type | None = field(default=None, init=False)
    children: dict[str, Record] | None = field(default=None, init=False)
    restarts: int = field(default=0, init=False)
    last_error: str | None = field(default=None, init=False)
    sweeper: Sweeps | None = field(default=None, init=False)
    opened: dict[Record, None] | None = field(default=None, init=False)
    thread: int = field(factory=get_ident, init=False)
    _watchers: dict[Report, None] = field(factory=dict, init=False)
    change: Change = field(factory=Change, init=False)

    def __attrs_post_init__(self) -> None:
        if self.parent is not None:  # a walk to the top takes long in a deep tree
            self.sweeper = self.parent.sweeper

    @property
    def lives_here(self) -> bool:
        """True in the thread of the actor's Trio run: no actor outlives its run."""
        return get_ident() == self.thread

    @property
    def top(self) -> Record:
        top = self
        while top.parent is not None:
            top = top.parent
        return top

    @property
    def sweeps(self) -> Sweeps:
        assert self.sweeper is not None  # open_actor() and open_supervisor() set it
        return self.sweeper

    @property
    def path(self) -> str:
        names, above = [self.name], self.parent
        while above is not None:
            names.append(above.name)
            above = above.parent
        return "/".join(reversed(names))

    def become(self, state: ActorState) -> None:
        self.state = state
        self.change()
        if self._watchers and self._stays_down:
            self._report("not_running", None, False)

    def note_gone(self) -> None:
        """Note that neither the actor nor any below, all of which have ended, starts again."""
        for record in self.walk():
            record.gone = True
            record.change()

    def walk(self) -> Iterator[Record]:
        """Yield this record and all below, parents first."""
        found = [self]
        for record in found:  # grows: a tree may have more levels than Python allows calls
            yield record
            found.extend((record.children or {}).values())

    # --- monitors ---------------------------------------------------------------------------------------------------

    @property
    def _stays_down(self) -> bool:
        """True after the actor has stopped. Inside a foreign shield, an incarnation may still run in a final state."""
        return self.mailbox.life is None and self.state in ("stopped", "failed")

    def watch(self, report: Report) -> None:
        """Report the end of the running incarnation, or else of the next. If none follows, report that at once."""
        if self._stays_down:
            report("not_running", None, False)
        else:
            self._watchers[report] = None

    def unwatch(self, report: Report) -> None:
        self._watchers.pop(report, None)

    def end_run(self, end: End, late: BaseException | None, *, comes_back: bool) -> None:
        """Report to all watchers that an incarnation has ended and released everything. ``late``: a clean-up error."""
        error = late if end.error is None else end.error
        if error is not None:
            text = words_of(error) if is_a(error, McpActorsError) else shown(flattened(error))
            self.last_error = plain_text(text, limit=200)
        reason: DownReason = "killed" if self.killed and not end.crashed else end.reason
        # If the end was overdue, the supervisor may have decided against a restart.
        comes_back = comes_back and end.reason != "ignored" and self.state in ("starting", "backoff")
        self._report(reason, error, comes_back)

    def _report(self, reason: DownReason, error: BaseException | None, comes_back: bool) -> None:
        watchers, self._watchers = self._watchers, {}
        for report in watchers:
            report(reason, error, comes_back)

    # --- incarnations -----------------------------------------------------------------------------------------------

    def adopt(self, actor_class: type, accepts: Accepts | None, *, has_children: bool) -> None:
        self.actor_class = actor_class
        self.mailbox.accepts = accepts
        self.is_pool = False
        if self.children is not None and not has_children:  # kept by a former supervisor for its restart
            children, self.children = self.children, None
            for child in children.values():
                child.forget(f"{self.name!r} was started again without it")

    def forget(self, why: str) -> None:
        """End for good an actor, and all below, that were expected to start again."""
        for record in reversed(tuple(self.walk())):
            record.close(why)
            record.become("stopped")
        self.note_gone()

    def runs(self, actor_class: type) -> bool:
        """Return True if the actor or a pool's member is of a class, or no class is known yet."""
        known = [record.actor_class for record in self.working if record.actor_class is not None]
        return not known or any(issubclass(each, actor_class) for each in known)

    # --- events -----------------------------------------------------------------------------------------------------

    def note(self, kind: type[Event], **details: object) -> None:
        if self.hub.observers:
            common = {"actor": self.name, "incarnation": self.incarnation, "time": trio.current_time()}
            self.hub.note(kind(**common, **details))  # type: ignore[arg-type]  # each caller knows its kind's fields

    def note_stopped(self) -> None:
        self.note(Stopped, killed=self.killed)

    def close(self, why: str) -> None:
        """Close the mailbox and answer all queued messages: nothing restarts the actor automatically."""
        for record in self.working:
            for dropped in record.mailbox.close(partial(stopped, self.name, why)):
                self.note(DeadLetter, message=type(dropped.message).__name__)

    def refuse(self, why: str) -> None:
        """Refuse later messages; queued messages are still handled."""
        for record in self.working:
            record.mailbox.refuse(partial(stopped, self.name, why))

    def statistics(self) -> ActorStatistics:
        return ActorStatistics(
            state=self.state,
            incarnation=self.incarnation,
            queued=sum(record.mailbox.queued for record in self.working),
            # Copied in one step: another thread (the asyncio bridge) may ask while this thread changes the set.
            in_flight=sum(not each.interrupted for record in self.working for each in record.in_flight.copy()),
            dropped=sum(record.mailbox.dropped for record in self.working),
        )

    def handling(self) -> tuple[HandledMessage, ...]:
        now = trio.current_time()
        handled = [each for record in self.working for each in record.in_flight if not each.interrupted]
        # Without `since`, a plain handler has just begun.
        found = [HandledMessage(type(e.message).__name__, now - getattr(e, "since", now), e.waits_for) for e in handled]
        return tuple(sorted(found, key=lambda each: -each.seconds))

    @property
    def working(self) -> tuple[Record, ...]:
        return (self, *self.children.values()) if self.is_pool and self.children else (self,)


def elsewhere(name: str) -> RuntimeError:
    """Return the error of a message from outside the Trio run, which could corrupt both sides."""
    return RuntimeError(
        f"actor {name!r}: used outside its Trio run; in a thread call "
        "trio.from_thread.run(ref.call, message) or trio.from_thread.run_sync(ref.tell_nowait, message) (with "
        "trio_token=... if Trio did not start the thread), in an asyncio program open it with mcp_actors.bridge"
    )


# --- Children of a supervisor, as plain data --------------------------------------------------------------------------


RestartType = Literal["permanent", "transient", "temporary"]


class Spec(Generic[M_contra]):
    """Base of `ChildSpec`, the only subclass.

    Without this class, the modules of specs, actors and references would import each other.
    """

    __slots__ = ()


@frozen(kw_only=True)
class ChildInfo:
    """A row of ``which_children``.

    Attributes:
        id: the child's id.
        state, incarnation: as in `ActorStatistics`.
        restart: the restart type.
        kind: ``"worker"`` or ``"supervisor"``; a child that has never run counts as a worker.
    """

    id: str
    state: ActorState
    incarnation: int
    restart: RestartType
    kind: Literal["worker", "supervisor"]


@frozen(kw_only=True)
class ChildrenCount:
    """The answer of ``count_children``.

    Attributes:
        specs: rows in the child table.
        active: running children.
        workers, supervisors: the children of each kind.
    """

    specs: int
    active: int
    workers: int
    supervisors: int


# --- A picture of a tree of actors ------------------------------------------------------------------------------------

# No recursion: a tree may be deeper than Python's stack.


SHOWN_ERROR: Final = 100
"""Characters of a last error in a drawing: a line should fit on a screen."""


@frozen
class HandledMessage:
    """A message that an actor is handling; see `TreeNode`.

    Attributes:
        message: the name of the message's class.
        seconds: the time since the handling began.
        waits_for: what the handler waits for, as text: actors called without a deadline, and the handler's `Later`.
    """

    message: str
    seconds: float
    waits_for: tuple[str, ...] = ()

    def __str__(self) -> str:
        waits = f", waits for {' and '.join(self.waits_for)}" if self.waits_for else ""
        return f"{self.message} for {_duration(self.seconds)}{waits}"


@frozen(kw_only=True, repr=False)
class TreeNode:
    """An actor of a tree, with all actors below; see `SupervisorRef.tree`. ``print(node)`` draws the tree.

    Attributes:
        id: the actor's name, unique in its supervisor.
        path: the name after the names of the supervisors above.
        kind: as in `ChildInfo`.
        state, incarnation, queued, in_flight, dropped: as in `ActorStatistics`.
        handling: each message in flight, the oldest first.
        oldest_wait: the seconds for which the oldest queued message has waited; None if none is queued.
        restarts: the starts after a failure, of the actor or of another in its group.
        last_error: the text of the last failure, shortened; None without a failure.
        children: the children of a supervisor, in start order, and the actors and supervisors opened by code of this
            actor, outside its handlers.
    """

    id: str
    path: str
    kind: Literal["worker", "supervisor"]
    state: ActorState
    incarnation: int
    queued: int
    in_flight: int
    oldest_wait: float | None
    restarts: int
    last_error: str | None
    children: tuple[TreeNode, ...]
    handling: tuple[HandledMessage, ...] = ()
    dropped: int = 0

    def __repr__(self) -> str:
        return f"<TreeNode {self.path!r} {self.state}, {len(self.children)} children>"

    def __str__(self) -> str:
        rows = [(f"{branch}{each.id}{'/' if each.kind == 'supervisor' else ''}", each) for branch, each in _rows(self)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:{width}}  {each.state:8}  {each._activity()}".rstrip() for name, each in rows)

    def walk(self) -> Iterator[TreeNode]:
        """Yield this actor and all below, each before its children."""
        return (node for _, node in _rows(self))

    def _activity(self) -> str:
        facts = [f"{self.in_flight} in flight"] if self.in_flight else []
        facts += [f"({each})" for each in self.handling[:1] if each.seconds >= 1 or each.waits_for]
        facts = [" ".join(facts)] if facts else []
        if self.oldest_wait is not None:
            facts.append(f"{self.queued} queued for {_duration(self.oldest_wait)}")
        if self.dropped:
            facts.append(f"{self.dropped} dropped")
        if self.restarts:
            facts.append("1 restart" if self.restarts == 1 else f"{self.restarts} restarts")
        if self.last_error is not None:
            facts.append(f"last error: {plain_text(self.last_error, limit=SHOWN_ERROR)}")
        return ", ".join(facts)


def _rows(root: TreeNode) -> Iterator[tuple[str, TreeNode]]:
    rows = [("", "", root)]
    while rows:
        branch, below, node = rows.pop()
        yield branch, node
        last = len(node.children) - 1
        rows.extend(
            (f"{below}└─ ", f"{below}   ", child) if number == last else (f"{below}├─ ", f"{below}│  ", child)
            for number, child in reversed(tuple(enumerate(node.children)))
        )


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def tree_of(root: Record) -> TreeNode:
    found = [(root, root.path)]
    for record, path in found:
        found.extend((child, f"{path}/{child.name}") for child in _below(record))
    nodes: dict[Record, TreeNode] = {}
    for record, path in reversed(found):  # children first
        now, times = record.statistics(), [each.mailbox.queued_since for each in record.working]
        since = min((time for time in times if time is not None), default=None)
        nodes[record] = TreeNode(
            id=record.name,
            path=path,
            kind="worker" if record.children is None else "supervisor",
            state=now.state,
            incarnation=now.incarnation,
            queued=now.queued,
            in_flight=now.in_flight,
            oldest_wait=None if since is None else trio.current_time() - since,
            restarts=record.restarts,
            last_error=record.last_error,
            children=tuple(nodes.pop(child) for child in _below(record)),
            handling=record.handling(),
            dropped=now.dropped,
        )
    return nodes[root]


def _below(record: Record) -> list[Record]:
    return [*(record.children or {}).values(), *(record.opened or ())]
