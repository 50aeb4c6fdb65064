"""The base class of actors, and the exceptions that control an actor.

Programs override `running`, `handle` and a few synchronous hooks. A hook may run in any task, such as the sender's.
Mistakes must fail early: a class is checked when made, an actor before it runs.

Owns: tables of handlers.
Writes: the incarnation's end, timers and monitors; postponed messages; context variables of tasks.
Calls: _circles, _envelope, _handlers, _later, _ref, _timers.
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
from ._later import Later
from ._ref import ActorRef, Monitor, SupervisorRef
from ._timers import Timer

if TYPE_CHECKING:
    from ._mailbox import Accepts
    from ._record import EndReason, Record
    from ._timers import OwnMessages, Timers


# --- The base class, and the exceptions -------------------------------------------------------------------------------

T = TypeVar("T")


class StopActor(Exception):
    """Raised from ``handle`` to end this actor without a failure.

    A supervisor restarts a permanent child nevertheless, but not a transient or temporary child.
    """

    def __init__(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"StopActor's reason is 'normal' or 'shutdown', not {reason!r}; to crash, raise an error")
        super().__init__(reason)
        self.reason: Literal["normal", "shutdown"] = reason


class IgnoreStart(Exception):
    """Raised from ``running()`` before the yield if there is nothing to run, which is not a failure (OTP's ``ignore``).

    Args:
        keep_mailbox: True if there is nothing to run *yet*: messages wait for a ``restart_child``.
    """

    def __init__(self, *, keep_mailbox: bool = False) -> None:
        super().__init__()
        self.keep_mailbox = keep_mailbox


class NotSent(Exception):
    """Raised from ``handle`` before any effect can have begun, to return the message to its old place in the mailbox.

    Meant, together with `Actor.fail`, for a handler that finds the connection lost before sending the first byte: the
    next incarnation serves the message, still under the caller's deadline. If nothing ends the incarnation within a
    second, an `ActorError` answers the message instead.

    `Actor.take` may raise `NotSent` too, without the incarnation ending: the actor takes nothing until
    `Actor.take_again`.
    """


class Postpone(Exception):
    """Raised from a handler that cannot handle a message yet, before doing anything.

    The message waits aside while the actor handles others, until `Actor.resume` returns the message to its old place in
    the mailbox. Postponed messages survive a crash: the next incarnation begins with them. At most ``mailbox_size``
    messages may be postponed. A further ``call`` is answered with `MailboxFull`, a ``tell`` is dropped (`DeadLetter`).

    Meant for an actor that must finish something first (a connection, a transaction), in place of a stash, ``become``
    or selective receive.
    """


# The protocols `Life` and `Defers` replace imports that would be circular.


class Life(Protocol):
    """An incarnation, as its actor sees it."""

    @property
    def record(self) -> Record:
        """The part that outlives the incarnation."""

    @property
    def own_messages(self) -> OwnMessages:
        """Messages to itself."""

    @property
    def timers(self) -> Timers:
        """The timers."""

    def end(self, reason: EndReason, exc: BaseException | None = None) -> None:
        """Decide the end. The first decision counts."""

    def wake(self) -> None:
        """Let the owner check again whether a caller has left."""

    async def wait_ending(self) -> None:
        """Wait until the end is decided."""


class Defers(Protocol):
    """The requests of an incarnation, as seen by the actor."""

    def defer(self, message: Message, *, keep_slot: bool) -> Later[Any]:
        """Make the `Later` of the running handler's message."""

    def take_again(self) -> None:
        """Take messages again after a `NotSent`."""


class Actor(Receives[M_contra]):
    """Owns a resource and answers messages, one incarnation at a time.

    An instance is *one* incarnation: a supervisor makes a new instance for every start. Each message runs through
    `handle`: an ``async def`` in a task of the actor, a plain ``def`` in the step that delivers the message.

    ``class Counter(Actor[Add | Get])`` declares messages for type checkers, which refuse to send any others through a
    reference. Handlers that do not fit the declaration are a `TypeError` when the class is made, unless the class
    overrides `handle` or `take`. A bare ``Actor`` declares nothing.

    Attributes:
        max_in_flight: the number of messages handled at the same time. With 1, the default, no two handlers of the
            actor interleave, except for handlers of control messages (`Message.control`), which run one at a time,
            between two ``await`` of another handler.
        reentrant: True lets a handler call its own actor, which is an error otherwise. The call takes a slot, and is
            still refused if every handler with a slot would then wait for such a call, as with ``max_in_flight = 1``.
            Meant for handlers that run foreign code.
        slow_after: seconds after which a warning names a message still being handled. None disables the warning, and
            the warning about a start that takes longer than 15 seconds.
        finish_on_stop: True lets begun handlers finish after a request to stop, within the ``shutdown`` time. By
            default they are cancelled. Queued messages are not begun in either case; see `SupervisorRef.stop_child`.
        default_shutdown: seconds from the request to stop until the actor is killed, unless the `ChildSpec` has another
            value.
        kind: the kind that ``which_children`` reports.
    """

    max_in_flight: int = 1
    reentrant: bool = False
    slow_after: float | None = 60.0
    finish_on_stop: bool = False
    default_shutdown: float | Literal["infinity"] = 5.0
    kind: Literal["worker", "supervisor"] = "worker"

    _control_slots: ClassVar[float] = 1
    """The number of control messages handled at the same time; more for actors that handle nothing else."""
    _incarnation: Life | None = None
    _requests: Defers | None = None
    _handlers: ClassVar[dict[type[Message], str]] = {}
    """Class of messages → the method with ``@handles``."""
    _plain: ClassVar[frozenset[str]] = frozenset()
    """The plain ``def`` methods among the handlers, or ``handle`` if a plain ``def`` overrides it."""
    _found: ClassVar[dict[type[Message], str]] = {}
    """Class of messages (not its subclasses) → the handler, as far as looked up."""
    _silent: ClassVar[dict[type[Message], bool]] = {}
    """Class of messages → whether None may be the answer, as far as checked."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._handlers, cls._found, cls._silent = handlers_of(cls, Actor), {}, {}
        if cls.handle is Actor.handle and cls.take is Actor.take:
            check_declared(cls, Actor, cls._handlers)
        for hook in ("take", "ending", "is_fatal", "is_hopeless"):  # called within a step
            if iscoroutinefunction(getattr(cls, hook)):
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

        Messages are served while the function is suspended at the yield. An exception before the yield is a failed
        start; an exception at the yield (from a background task of a nursery opened here) is a crash.

        **Cancellation**: when the actor is asked to stop, the function resumes after the yield as usual. After the
        ``shutdown`` time the owner is cancelled: synchronous clean-up still runs, and every ``await`` raises
        `trio.Cancelled`.

        Ctrl-C is never raised in here, where it could separate acquiring a resource from the block that releases it;
        the main task gets the interrupt. Tasks started here may be interrupted.
        """
        yield

    def handle(self, message: Any) -> Any:
        """Serve one message. The result or exception answers a ``call``; a `Later` is an answer that follows.

        Override `handle` with an ``async def``, which runs in a task of its own, or with a plain ``def``, which runs in
        the step that delivers the message. Both run in the sender's context variables. The default calls the method
        with ``@handles(...)`` for the class of the message; a message without a handler is refused when sent.

        An override decides alone. If no case of its ``match`` catches a message, the result is None, and a `TypeError`
        refuses the message if None cannot be the answer: a ``Call[int]`` is never answered with None, and a message
        that the annotation of ``message`` omits is not handled at all. If the annotation is ``Any``, refuse unknown
        messages with ``case _: return await super().handle(message)``; a plain ``def`` omits the ``await``.

        **Cancellation**: an ``async def`` is cancelled when the caller leaves, and when the incarnation ends. The
        caller has been answered or has left by then, so a slow clean-up only keeps the in-flight slot. A plain ``def``
        is never cancelled.
        """
        if not self._handlers and type(self).handle is not Actor.handle:
            raise no_case(self.ref.name, type(self), type(message))
        answer = self._dispatch(message)
        return answer if "handle" in self._plain else _awaitable(answer)

    def take(self, later: Later[Any]) -> bool:
        """Take a message without a task, if the actor can answer later. Override this; the default returns False.

        Each message for which there is a slot is offered here, in order, before `handle`; control messages are not. The
        call runs in a step of the sender, or of the task that freed the slot, in the sender's context variables. So
        `take` must be quick: nothing else is offered meanwhile.

        Do not send from here to an actor that takes messages too: such messages nest, and a chain of a hundred exceeds
        Python's recursion limit.

        Returns:
            True if the actor has taken the message, and any task of the actor answers with ``later.reply()`` or
            ``later.fail()``. False if `handle` is to serve the message.

        Raises:
            NotSent: nothing can be taken now. The message returns to its old place, and only control messages are
                handled until `take_again`.
            Exception: the answer, as from `handle`.
        """
        return False

    def ending(self) -> None:
        """Settle messages taken by `take`, in the step that decides the end, before the kernel answers the rest.

        Override `ending` if some messages have had no effect yet, for example lines that wait to be written:
        ``later.fail(NotSent())`` returns each to its old place, for the next incarnation. The default does nothing.
        """

    def take_again(self) -> None:
        """Take messages again after a `NotSent` from `take`, or from a `Later`. Otherwise do nothing."""
        if self._requests is not None:
            self._requests.take_again()

    def resume(self) -> None:
        """Handle postponed messages again (`Postpone`): each returns to its old place in the mailbox."""
        self._current.record.mailbox.resume()

    def defer(self, message: Call[T], *, keep_slot: bool = True) -> Later[T]:
        """Return a `Later` for the message being handled. The handler returns the `Later` instead of an answer.

        If the handler returns None instead, the caller gets a `TypeError`.

        Args:
            message: the argument of `handle`.
            keep_slot: False frees the slot when the handler returns (OTP's ``noreply``). By default, unanswered
                messages count for `max_in_flight`.

        Raises:
            RuntimeError: the running task does not handle the message, or the message has a `Later` already.
            TypeError: the class of the message is not derived from `Call`.
        """
        if self._requests is None:
            raise RuntimeError(f"{type(self).__name__} is not running, so there is no message to defer")
        return self._requests.defer(message, keep_slot=keep_slot)

    def is_fatal(self, exc: Exception) -> bool:
        """Return True if an exception from `handle` ends the incarnation as a crash. The default is False."""
        return False

    def is_hopeless(self, exc: BaseException) -> bool:
        """Return True if a restart cannot help after a failure. The default is False.

        A supervisor treats such a failure like a spent restart budget.
        """
        return False

    @property
    def ref(self) -> ActorRef[M_contra]:
        """The reference to this actor, for others."""
        return ActorRef(self._current.record)

    @property
    def supervisor(self) -> SupervisorRef | None:
        """The reference to the supervisor, and so to the neighbors; None for the actor that `open_actor` runs.

        Request no changes before or after the yield of ``running()``: by default, the supervisor then waits for this
        actor. ``SupervisorRef.child`` and ``find`` send no message.
        """
        return self.ref.supervisor

    def stop(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        """End the incarnation without a failure. Any task of the actor's own tree may call `stop`."""
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"stop() takes 'normal' or 'shutdown', not {reason!r}; to crash, use fail(exception)")
        self._current.end(reason)

    def fail(self, exc: BaseException) -> None:
        """End the incarnation as a crash with a cause. Any task of the actor's own tree may call `fail`.

        Call `fail` when the connection of an idle actor is lost. Nothing changes if the end has been decided already,
        or for `trio.Cancelled`, which is not a failure.

        `fail` does not raise. If a handler calls `fail`, the other messages in flight are answered at once, and the
        handler's own caller gets the handler's next result or exception (``raise exc``); `NotSent` returns the message
        to the mailbox. A handler that reaches an ``await`` first is cancelled, and the caller gets `ActorCrashed`.
        """
        if not isinstance(exc, BaseException):
            raise TypeError(f"fail() takes the exception object that is the cause, not {exc!r}")
        failure = without_cancelled(exc)
        if failure is not None:
            self._current.end("crashed", failure)

    def after(self, seconds: float, message: M_contra) -> Timer:
        """Send this actor a message once, after a delay; see `every` for the rest.

        Args:
            seconds: the delay on Trio's clock; 0 sends the message in the next step of the event loop.
            message: a message that this actor handles. The answer is dropped.

        Raises:
            ValueError, TypeError: the delay or the message is invalid.
        """
        return self._current.timers.set(seconds, message, repeats=False)

    def every(self, seconds: float, message: M_contra) -> Timer:
        """Send this actor a message again and again, the first time after one period.

        The message waits its turn in the mailbox, or in front of a full mailbox, whatever the policy. While the last
        message still waits, a period is skipped, and counted by `Timer.skipped`. An exception of the handler is treated
        as for a ``tell``. The message is handled in the context variables of `running`.

        A timer belongs to the incarnation, not to the handler that has set it. The end of the incarnation ends the
        timer, and removes a queued message. A timer may be set in `running` before the yield; messages are handled once
        the actor has started. Once the end has been decided, a new timer has no effect.

        Args:
            seconds: the period on Trio's clock, at least 0.001.
            message: as for `after`.

        Raises:
            ValueError, TypeError: the period or the message is invalid.
        """
        return self._current.timers.set(seconds, message, repeats=True)

    def watch(self, ref: ActorRef) -> Monitor:
        """Send this actor one `Down` when the current incarnation of another actor has ended.

        Everything is released by then. If the other actor has stopped already, the `Down` comes at once, with the
        reason ``"not_running"``. Between two incarnations, the next is watched; if none comes after all, the reason is
        ``"not_running"`` too. A monitor reports once: to see the next end, watch again.

        The `Down` waits and is handled like the message of a timer (see `every`). When this incarnation ends, its
        monitors end, and a queued `Down` is removed.

        Raises:
            ActorError: the reference is to this actor itself.
            TypeError: the argument is not an `ActorRef`.
            RuntimeError: the actor belongs to another Trio run.
        """
        return self._current.own_messages.watch(ref)

    def unwatch(self, monitor: Monitor) -> None:
        """Stop watching: the same as ``monitor.cancel()``."""
        monitor.cancel()

    def join_handler(self) -> None:
        """Count all later work of the running task, and of tasks that it starts, as done by a handler.

        Meant for foreign code that a handler waits for, in a task outside the handler: a call from there to this actor
        is then permitted or refused as from the handler. The handler is the one whose context variables the task has,
        else the only running handler. If several run, nothing changes.
        """
        handled = self._current.record.in_flight
        inherited = serving.get()
        if inherited in handled:
            act_for(inherited)
        elif len(handled) == 1:
            act_for(*handled)

    def _dispatch(self, message: Message) -> Any:
        """Call the handler of a message. The result is awaitable, unless the handler is a plain ``def``."""
        kind = type(message)
        name = self._found.get(kind) or self._find_handler(self.ref.name, kind)
        return getattr(self, name)(message)

    def _find_plain(self, kind: type[Message]) -> Callable[[Any], Any] | None:
        if "handle" in self._plain:
            return self.handle
        name = self._found.get(kind) or handler_for(self._handlers, kind)
        if name not in self._plain:
            return None
        plain: Callable[[Any], Any] = getattr(self, name)
        return plain

    @classmethod
    def _find_handler(cls, actor: str, kind: type[Message]) -> str:
        name = cls._found.get(kind) or handler_for(cls._handlers, kind)
        if name is None:
            remedy = f"send another message, or add a method with @handles({kind.__name__})"
            raise TypeError(f"actor {actor!r}: {cls.__name__} has no handler for {kind.__name__}; {remedy}")
        cls._found[kind] = name
        return name

    def _check_handled(self, message: Message) -> None:
        """Raise a `TypeError` unless None may answer the message."""
        cls, kind = type(self), type(message)
        if kind not in cls._silent:
            cls._silent[kind] = cls.handle is Actor.handle or may_answer_none(cls.handle, kind)
        if not cls._silent[kind]:
            raise no_case(self.ref.name, cls, kind)

    @property
    def _accepts(self) -> Accepts | None:
        """The check for messages without a handler; None if the class overrides `handle` or `take`."""
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
    return await answer if iscoroutine(answer) else answer


def check_actor(owner: str, actor: object) -> None:
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
    """Call ``running()``. Raise a `TypeError` if ``async with`` cannot enter the result."""
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
"""contextlib's error → the fault of the generator."""


def names_running(actor: Actor | None, error: BaseException) -> BaseException:
    """Return the error of ``running()`` or the factory, reworded if contextlib or the call itself has raised.

    ``actor`` is None for the factory.
    """
    trace = error.__traceback__ and error.__traceback__.tb_next
    if trace is None or trace.tb_next is not None:  # raised within the function, which names itself
        return error
    if actor is None and isinstance(error, TypeError) and (words := words_of(error)):
        remedy = "give the factory its arguments: ChildSpec(…, args=(…,), kwargs={…})"
        if "not 'coroutine'" in words:
            remedy = "write def __init__, and await in running(), before its yield"
        return TypeError(f"{words}; {remedy}").with_traceback(error.__traceback__)
    problem = _YIELDS.get(words_of(error).removesuffix(" after athrow()")) if isinstance(error, RuntimeError) else None
    return error if problem is None else RuntimeError(f"{type(actor).__name__}.running() {problem}")
