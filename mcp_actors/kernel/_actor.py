"""The base class of actors, and the exceptions that end one.

`Actor` finds the handler of a message (``_handlers``). It has the methods that a class may override (`running`,
`handle`, `take`, `ending`, `is_fatal`, `is_hopeless`), and those by which an actor ends itself, answers later, sets
timers, watches other actors, and counts the work of a task as that of a handler (`join_handler`). It sees its
incarnation as `Life`, and its requests as `Defers`. The exceptions `StopActor`, `IgnoreStart`, `NotSent`
and `Postpone`, and `check_actor`, which checks an actor before it runs, are here too.

The file writes the tables of the classes and, in `join_handler`, the context variables of the running task
(``_circles``). It makes references to the actor and its supervisor from the record, and starts no task. Incarnations,
``_open``, ``_serving`` and ``_requests`` call it, and mailboxes call its check for a handler. Supervisors,
`DormantSupervisor`, and actors of ``servers`` and ``testing`` derive from `Actor`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import iscoroutine, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeVar

from .._collapse import without_cancelled
from .._foreign import shown, words_of
from .._misuse import check_option, is_seconds, is_whole
from ._circles import act_for, serving
from ._envelope import Call, M_contra, Message, Receives
from ._handlers import check_declared, handler_for, handlers_of, may_answer_none, no_case
from ._ref import ActorRef, Monitor, SupervisorRef
from ._timers import Later, Timer

if TYPE_CHECKING:
    from ._mailbox import Accepts
    from ._record import EndReason, Record
    from ._timers import OwnMessages, Timers


# --- The base class of actors, and the exceptions that end one --------------------------------------------------------

_NOT_ASYNC: Final = ("take", "ending", "is_fatal", "is_hopeless")
"""Methods to override that are called in one step, so they must not be async."""

T = TypeVar("T")


class StopActor(Exception):
    """Raised from ``handle`` to end this actor without a failure.

    A permanent child is restarted nevertheless; a transient or temporary one is not.
    """

    def __init__(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"StopActor's reason is 'normal' or 'shutdown', not {reason!r}; to crash, raise an error")
        super().__init__(reason)
        self.reason: Literal["normal", "shutdown"] = reason


class IgnoreStart(Exception):
    """Raised from ``running()`` before its yield if there is nothing to run. It is not a failure (OTP's ``ignore``).

    Args:
        keep_mailbox: True if there is nothing to run *yet*: messages wait for a ``restart_child``.
    """

    def __init__(self, *, keep_mailbox: bool = False) -> None:
        super().__init__()
        self.keep_mailbox = keep_mailbox


class NotSent(Exception):
    """Raised from ``handle`` before its effect can have begun, to return the message to its old place in the mailbox.

    Meant for a handler that finds its connection lost before it has sent the first byte, together with `Actor.fail`:
    the next incarnation serves the message, still under its caller's deadline. If nothing ends the incarnation within a
    second, the message is answered with an `ActorError`, because it would be handled again forever.

    `Actor.take` may raise it too, and needs no end of the incarnation: nothing is taken until `Actor.take_again`.
    """


class Postpone(Exception):
    """Raised from a handler that cannot handle its message yet, before it has done anything.

    The message waits aside, and the actor handles others, until `Actor.resume` returns it to its old place in the
    mailbox. It survives a crash: the next incarnation begins with all messages that were postponed. As many as the
    ``mailbox_size`` may be postponed. One more is answered with `MailboxFull`, or dropped as a `DeadLetter`.

    Meant for an actor that must finish something first (a connection, a transaction): it takes the place of a stash, of
    ``become`` and of a selective receive.
    """


class Life(Protocol):
    """An incarnation, as its actor and its requests see it."""

    @property
    def record(self) -> Record:
        """The part that outlives it."""

    @property
    def own(self) -> OwnMessages:
        """Its messages to itself."""

    @property
    def timers(self) -> Timers:
        """Its timers."""

    def end(self, reason: EndReason, exc: BaseException | None = None) -> None:
        """Decide the end. The first decision counts."""

    def wake(self) -> None:
        """Let the owner check again whether a caller has left."""

    async def wait_ending(self) -> None:
        """Wait until the end is decided."""


class Defers(Protocol):
    """The requests of an incarnation, as its actor sees them."""

    def defer(self, message: Message, *, keep_slot: bool) -> Later[Any]:
        """Make the `Later` of the message that the running handler serves."""

    def take_again(self) -> None:
        """Take messages again after a `NotSent`."""


class Actor(Receives[M_contra]):
    """Owns a resource and answers messages, one incarnation at a time.

    An instance is *one* incarnation: a supervisor makes a new one for every start. Its owner task enters and leaves
    `running`; each message runs through `handle`: an ``async def`` in a task of the actor, a plain ``def`` in the step
    that delivers the message.

    ``class Counter(Actor[Add | Get])`` declares its messages for type checkers, which then refuse all others where they
    are sent to its references. It is an error when the class is made if its handlers are for other messages, unless it
    overrides `handle` or `take`. A bare ``Actor`` declares nothing.

    Attributes:
        max_in_flight: the number of messages that are handled at the same time. With 1, the default, no two handlers of
            this actor ever interleave, except for those of control messages (`Message.control`). These run one at a
            time, between two ``await`` of another handler.
        reentrant: True lets a handler call its own actor, which raises an error otherwise. Such a call takes a slot
            like any other. It is still refused if every handler with a slot would then wait for such a call, as with
            ``max_in_flight = 1``. Meant for handlers that run foreign code.
        slow_after: seconds after which a warning names a message that is still being handled. None disables it, and
            the warning about a start that goes on for 15 seconds.
        finish_on_stop: True lets handlers that have begun finish when the actor is asked to stop, within its
            ``shutdown`` time. By default they are cancelled. Messages that are queued are not begun in either case; see
            `SupervisorRef.stop_child`.
        default_shutdown: seconds from the request to stop until the actor is killed, unless its `ChildSpec` has
            another value.
        kind: the kind that ``which_children`` reports.
    """

    max_in_flight: int = 1
    reentrant: bool = False
    slow_after: float | None = 60.0
    finish_on_stop: bool = False
    default_shutdown: float | Literal["infinity"] = 5.0
    kind: Literal["worker", "supervisor"] = "worker"

    _control_slots: ClassVar[float] = 1
    """The number of control messages that are handled at the same time: more for actors that handle no others."""
    _incarnation: Life | None = None
    _requests: Defers | None = None
    _handlers: ClassVar[dict[type[Message], str]] = {}
    """The methods with ``@handles``, by the class of their messages."""
    _plain: ClassVar[frozenset[str]] = frozenset()
    """Those of these methods that are a plain ``def``, or ``handle`` if it is overridden by one."""
    _found: ClassVar[dict[type[Message], str]] = {}
    """The methods that handle messages of this class (not those of its subclasses), as far as they were looked up."""
    _silent: ClassVar[dict[type[Message], bool]] = {}
    """The messages that this class may answer with None, as far as they have been checked."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers, cls._found, cls._silent = handlers_of(cls, Actor), {}, {}
        if cls.handle is Actor.handle and cls.take is Actor.take:
            check_declared(cls, Actor, cls._handlers)
        for hook in (name for name in _NOT_ASYNC if iscoroutinefunction(getattr(cls, name))):
            what = f"{cls.__name__}.{hook}(): is async, and nothing awaits it"
            raise TypeError(f"{what}; write def {hook}{signature(getattr(Actor, hook))}".replace("'", ""))
        methods = ["handle"] if cls.handle is not Actor.handle else cls._handlers.values()
        cls._plain = frozenset(name for name in methods if not iscoroutinefunction(getattr(cls, name)))

    def __repr__(self) -> str:
        run = self._incarnation
        return f"<{type(self).__name__} not started>" if run is None else f"<{type(self).__name__} {run.record.name!r}>"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Acquire what the actor needs, ``yield``, release it. Entered and left by the owner task.

        Messages are served while it is suspended at the yield. An exception before the yield is a failed start; one
        at the yield (from a background task of a nursery opened here) is a crash.

        **Cancellation**: when the actor is asked to stop, this function resumes after its yield as usual. If it does
        not finish within its ``shutdown`` time, the owner is cancelled: synchronous clean-up still runs, and every
        ``await`` raises `trio.Cancelled`.

        Ctrl-C is never raised in here, where it could come between acquiring a resource and the block that releases it:
        the main task gets it. In tasks that are started here it may be raised, as in any Trio task.
        """
        yield

    def handle(self, message: Any) -> Any:
        """Serve one message. Its result or exception is the answer to a ``call``; a `Later` is one that follows.

        Override it with an ``async def``, which runs in a task of its own, or with a plain ``def``, which runs in the
        step that delivers the message. Both run in the sender's context variables. By default it calls the method with
        ``@handles(...)`` for the class of the message, and a message without one is refused when it is sent.

        A class that overrides it decides by itself. A message that no case of its ``match`` catches is then refused
        with a `TypeError`. It is detected by its result None: the answer to a ``Call[int]`` is never None, and a
        message that the annotation of ``message`` omits is not handled at all. If the annotation is ``Any``, refuse
        unknown messages with ``case _: return await super().handle(message)``, in a plain ``def`` without ``await``.

        **Cancellation**: an ``async def`` is cancelled when its caller leaves, and when the incarnation ends. By then
        the caller has been answered or has left, so a slow clean-up delays no caller, but it keeps the in-flight slot
        until it is done. A plain ``def`` is never cancelled.
        """
        if not self._handlers and type(self).handle is not Actor.handle:
            raise no_case(self.ref.name, type(self), type(message))
        answer = self._dispatch(message)
        return answer if "handle" in self._plain else _awaitable(answer)

    def take(self, later: Later[Any]) -> bool:
        """Take a message without a task, if the actor can answer it later. Override it; the default returns False.

        Each message for which there is a slot is offered here, in order, before `handle`; control messages are not.
        It is called in a step of the sender, or of the task that has freed the slot, in the sender's context variables.
        So it must be quick. While it runs, nothing else is offered.

        Do not send from here to an actor that takes messages itself. Each one would nest in the step of the one before,
        and a chain of a hundred exceeds Python's recursion limit.

        Returns:
            True if it has taken the message: any task of the actor answers with ``later.reply()`` or ``later.fail()``.
            False if `handle` serves it.

        Raises:
            NotSent: nothing can be taken now. The message returns to its old place, and nothing is offered or handled
                until `take_again`.
            Exception: the answer, as from `handle`.
        """
        return False

    def ending(self) -> None:
        """Settle messages in flight in the step that decides the end, before the others are answered. For `take`.

        Override it if some of them have had no effect, such as lines that wait to be written. Those return to their old
        places with ``later.fail(NotSent())``, and the next incarnation serves them. The default does nothing.
        """

    def take_again(self) -> None:
        """Take messages again after a `NotSent` from `take`, or from a `Later`. Else it does nothing."""
        if self._requests is not None:
            self._requests.take_again()

    def resume(self) -> None:
        """Handle again what was postponed (`Postpone`): each message returns to its old place in the mailbox."""
        self._current.record.mailbox.resume()

    def defer(self, message: Call[T], *, keep_slot: bool = True) -> Later[T]:
        """Return a `Later` for the message that is being handled. The handler returns it instead of an answer.

        A handler that returns None instead has forgotten that: its caller gets a `TypeError`.

        Args:
            message: the argument of `handle`.
            keep_slot: False frees the slot when the handler returns (OTP's ``noreply``). By default, unanswered
                messages count for `max_in_flight`.

        Raises:
            RuntimeError: the message is not being handled by the running task, or has a `Later` already.
            TypeError: its class is not derived from `Call`, so it has no answer.
        """
        if self._requests is None:
            raise RuntimeError(f"{type(self).__name__} is not running, so there is no message to defer")
        return self._requests.defer(message, keep_slot=keep_slot)

    def is_fatal(self, exc: Exception) -> bool:
        """Return True if an exception from `handle` means that this incarnation is broken. The default is False."""
        return False

    def is_hopeless(self, exc: BaseException) -> bool:
        """Return True if a restart cannot help after this failure. The default is False.

        A supervisor treats such a failure like a spent restart budget.
        """
        return False

    @property
    def ref(self) -> ActorRef[M_contra]:
        """The reference to this actor, for others."""
        return ActorRef(self._current.record)

    @property
    def supervisor(self) -> SupervisorRef | None:
        """The reference to its supervisor, and so to its neighbors; None for the actor that `open_actor` runs.

        While the supervisor starts or stops this actor, in ``running()``, it makes no changes; see
        ``SupervisorRef.child`` and ``find`` for what needs no message.
        """
        return self.ref.supervisor

    def stop(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        """End this incarnation without a failure. Any task of the actor's own tree may call this."""
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"stop() takes 'normal' or 'shutdown', not {reason!r}; to crash, use fail(exception)")
        self._current.end(reason)

    def fail(self, exc: BaseException) -> None:
        """End this incarnation as a crash with this cause. Any task of the actor's own tree may call this.

        Use it when the connection of an idle actor is lost. If the end has been decided already, nothing changes.
        `trio.Cancelled` is not a failure, so passing it here changes nothing either.

        This does not raise. If a handler calls this, the other messages in flight are answered at once, and its own
        caller gets what it returns or raises next: ``raise exc``, or `NotSent`. If it waits first, it is cancelled, and
        its caller gets `ActorCrashed`.
        """
        if not isinstance(exc, BaseException):
            raise TypeError(f"fail() takes the exception object that is the cause, not {exc!r}")
        failure = without_cancelled(exc)
        if failure is not None:
            self._current.end("crashed", failure)

    def after(self, seconds: float, message: M_contra) -> Timer:
        """Send this actor a message once, after a delay. See `every` for what both have in common.

        Args:
            seconds: the delay on Trio's clock; 0 sends the message in the next step of the event loop.
            message: a message that this actor handles. Its answer is dropped.

        Raises:
            ValueError, TypeError: the delay or the message is invalid.
        """
        return self._current.timers.set(seconds, message, repeats=False)

    def every(self, seconds: float, message: M_contra) -> Timer:
        """Send this actor a message again and again, the first time after one period.

        The message waits its turn in the mailbox, and in front of a full one with any policy. While the last one
        waits, no other is sent: that period is skipped, and `Timer.skipped` counts it. An exception of its handler is
        handled as for a ``tell``. It runs in the context variables of `running`.

        A timer belongs to the incarnation, not to the handler that has set it: it outlives a cancellation of the
        handler, and ends with the incarnation. A message that is still queued then is removed. A timer may be set in
        `running` before its yield; its messages are handled once the actor has started. Once the end has been decided,
        a new timer has no effect.

        Args:
            seconds: the period on Trio's clock, at least 0.001.
            message: as for `after`.

        Raises:
            ValueError, TypeError: the period or the message is invalid.
        """
        return self._current.timers.set(seconds, message, repeats=True)

    def watch(self, ref: ActorRef) -> Monitor:
        """Send this actor one `Down` when the current incarnation of another actor has ended.

        It has released everything by then. If that actor has stopped already, the `Down` comes at once, with the reason
        ``"not_running"``. Between two incarnations, the next one is watched; if none comes after all, the reason is
        ``"not_running"`` too. A monitor reports once: to see the next end, watch again.

        As with a timer, the `Down` waits its turn in the mailbox, is not refused by a full one, and runs in the context
        variables of `running`. When this incarnation ends, its monitors end; a `Down` that is still queued is removed.

        Raises:
            ActorError: this is the actor itself.
            TypeError: this is not an `ActorRef`.
            RuntimeError: the actor belongs to another Trio run.
        """
        return self._current.own.watch(ref)

    def unwatch(self, monitor: Monitor) -> None:
        """Watch no longer: the same as ``monitor.cancel()``."""
        monitor.cancel()

    def join_handler(self) -> None:
        """Count what the running task does from now on, and the tasks it starts, as done by the running handler.

        Meant for foreign code that a handler waits for, but that runs in a task outside of it: whether that may call
        this actor is then decided as for the handler itself. The handler is the one whose context variables the task
        has, else the only one that runs. If several run, it is unknown which one waits, and nothing changes.
        """
        handled = self._current.record.in_flight
        inherited = serving.get()
        if inherited in handled:
            act_for(inherited)
        elif len(handled) == 1:
            act_for(*handled)

    def _dispatch(self, message: Message) -> Any:
        """Call the handler of a message. Its result is awaitable unless it is a plain ``def``."""
        kind = type(message)
        name = self._found.get(kind) or self._find_handler(self.ref.name, kind)
        return getattr(self, name)(message)

    def _find_plain(self, kind: type[Message]) -> Callable[[Any], Any] | None:
        """Return the method that handles messages of a class if it is a plain ``def``."""
        if "handle" in self._plain:
            return self.handle
        name = self._found.get(kind) or handler_for(self._handlers, kind)
        if name not in self._plain:
            return None
        plain: Callable[[Any], Any] = getattr(self, name)
        return plain

    @classmethod
    def _find_handler(cls, actor: str, kind: type[Message]) -> str:
        """Return the name of the method that handles messages of a class. Raise a `TypeError` if there is none."""
        name = cls._found.get(kind) or handler_for(cls._handlers, kind)
        if name is None:
            remedy = f"send another message, or add a method with @handles({kind.__name__})"
            raise TypeError(f"actor {actor!r}: {cls.__name__} has no handler for {kind.__name__}; {remedy}")
        cls._found[kind] = name
        return name

    def _check_handled(self, message: Message) -> None:
        """Raise a `TypeError` if ``handle`` has answered with None, and None is not a possible answer."""
        cls, kind = type(self), type(message)
        if kind not in cls._silent:
            cls._silent[kind] = cls.handle is Actor.handle or may_answer_none(cls.handle, kind)
        if not cls._silent[kind]:
            raise no_case(self.ref.name, cls, kind)

    @property
    def _accepts(self) -> Accepts | None:
        """Raises an error for a message without a handler; None if the class does not leave that to its handlers."""
        cls = type(self)
        return self._find_handler if cls.handle is Actor.handle and cls.take is Actor.take else None

    @property
    def _current(self) -> Life:
        if self._incarnation is None:
            raise RuntimeError(
                f"{type(self).__name__} is not running: __init__() is too early for this, so do it in running(), "
                "before the yield; elsewhere give the actor to open_actor() or a ChildSpec first"
            )
        return self._incarnation


async def _awaitable(answer: Any) -> Any:
    """Await the answer of a handler, unless that is a plain ``def``."""
    return await answer if iscoroutine(answer) else answer


def check_actor(owner: str, actor: object) -> None:
    """Raise a `TypeError` or `ValueError` if this cannot run as an actor."""
    if isinstance(actor, type) and issubclass(actor, Actor):
        raise TypeError(f"{owner}: got the class {actor.__name__}, not an instance; write {actor.__name__}(...)")
    if not isinstance(actor, Actor):
        raise TypeError(f"{owner}: {shown(actor)} is not an Actor; derive its class from mcp_actors.kernel.Actor")
    given: object = actor.max_in_flight
    check_option(owner, "max_in_flight", given, "an int of at least 1", valid=is_whole(given, 1))
    given = actor.slow_after
    check_option(owner, "slow_after", given, "positive seconds or None", valid=given is None or is_seconds(given))
    given = actor.finish_on_stop
    check_option(owner, "finish_on_stop", given, "True or False", valid=isinstance(given, bool))
    given = actor.default_shutdown
    valid = given == "infinity" or is_seconds(given)
    check_option(owner, "default_shutdown", given, "positive seconds or 'infinity'", valid=valid)


def resource_of(actor: Actor) -> AbstractAsyncContextManager[None]:
    """Return what ``running()`` of an actor returns. Raise a `TypeError` if ``async with`` cannot enter it."""
    resource: object = actor.running()
    if isinstance(resource, AbstractAsyncContextManager):
        return resource
    if iscoroutine(resource):
        resource.close()  # or Python would warn that nothing awaits it
    raise TypeError(
        f"{type(actor).__name__}.running() returned <{type(resource).__name__}>; write "
        "@asynccontextmanager above `async def running(self)`, with one yield in it"
    )


_YIELDS: Final = {
    "generator didn't yield": "ended without its yield; yield once in every path, or raise IgnoreStart not to start",
    "generator didn't stop": "continued to another yield; yield once in every path",
}
"""Errors of contextlib, and what they say about the generator."""


def names_running(actor: Actor | None, error: BaseException) -> BaseException:
    """Return what ``running()`` raised; name that function in the error of contextlib about its yields.

    Without an actor it is the factory that raised. Say where its arguments are written, if it was called without them.
    """
    trace = error.__traceback__ and error.__traceback__.tb_next
    if trace is None or trace.tb_next is not None:  # it is from within
        return error
    if actor is None and isinstance(error, TypeError):
        remedy = "give the factory its arguments: ChildSpec(…, args=(…,), kwargs={…})"
        return TypeError(f"{words_of(error)}; {remedy}").with_traceback(error.__traceback__)
    problem = _YIELDS.get(words_of(error).removesuffix(" after athrow()")) if isinstance(error, RuntimeError) else None
    return error if problem is None else RuntimeError(f"{type(actor).__name__}.running() {problem}")
