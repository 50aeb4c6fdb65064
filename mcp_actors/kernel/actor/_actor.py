"""What a user writes: an actor, and the few exceptions by which it steers its own life."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..._checks import is_seconds, is_whole
from ..._collapse import without_cancelled
from .._circles import act_for, serving
from ._ref import ActorRef
from ._unknown import may_answer_none, unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ..mailbox import Message
    from ._end import EndReason
    from ._record import Record

__all__ = ["Actor", "IgnoreStart", "NotSent", "StopActor"]


class StopActor(Exception):
    """Raised from ``handle``: this actor wants to end, and that is no failure.

    A permanent child is restarted nevertheless; a transient or temporary one is not.
    """

    def __init__(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"StopActor's reason is 'normal' or 'shutdown', not {reason!r}; to crash, raise an error")
        super().__init__(reason)
        self.reason: Literal["normal", "shutdown"] = reason


class IgnoreStart(Exception):
    """Raised from ``running()`` before its yield: there is nothing to run, which is no failure (OTP's ``ignore``).

    Args:
        keep_mailbox: True if there is nothing to run *yet*: what is sent waits for a ``restart_child``.
    """

    def __init__(self, *, keep_mailbox: bool = False) -> None:
        super().__init__()
        self.keep_mailbox = keep_mailbox


class NotSent(Exception):
    """Raised from ``handle`` when its effect cannot have begun: the message returns to its old place in the mailbox.

    Meant for a handler that finds its connection gone before the first byte was offered to it, together with
    `Actor.fail`: the next incarnation then serves the message, still under its caller's deadline. If nothing ends the
    incarnation within a second, the message is answered with an `ActorError`: it would be handled again for ever.
    """


class Life(Protocol):
    """An incarnation, as its actor and its requests see it."""

    @property
    def record(self) -> Record:
        """What outlives it."""

    def end(self, reason: EndReason, exc: BaseException | None = None) -> None:
        """Decide the end. The first decision counts."""

    def wake(self) -> None:
        """Let the owner check again whether a caller has left."""

    async def wait_ending(self) -> None:
        """Wait until the end is decided."""


class Actor(ABC):
    """Something that owns a resource and answers messages, one incarnation at a time.

    An instance is *one* incarnation: a supervisor makes a new one for every start. It has an owner task, which enters
    and leaves `running`, and a task for each message in `handle`.

    Attributes:
        max_in_flight: how many messages are handled at the same time. 1, the default, is the classic promise: no two
            handlers of this actor ever interleave.
        reentrant: whether a handler may call its own actor, which is refused otherwise. Such a call takes a slot like
            any other; it is refused nevertheless if everything that has a slot would then wait for such a call, as the
            only one would with ``max_in_flight = 1``. Meant for handlers that run foreign code.
        default_shutdown: seconds from being asked to stop to being killed, where nobody says otherwise.
        kind: what ``which_children`` says it is.
    """

    max_in_flight: int = 1
    reentrant: bool = False
    default_shutdown: float | Literal["infinity"] = 5.0
    kind: Literal["worker", "supervisor"] = "worker"

    _incarnation: Life | None = None
    _silent: ClassVar[dict[type[Message], bool]]
    """Which messages this class, and no other, may answer with None, as far as that was looked at."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Acquire what the actor needs, ``yield``, release it. Entered and left by the owner task.

        Messages are served while it is suspended at the yield. A failure before the yield is a failed start, one
        while suspended (a background task of a nursery opened here) is a crash.

        **Cancellation**: when the actor is asked to stop, this is left normally. When it did not stop within its
        bound, the owner is cancelled: synchronous release still runs, and every ``await`` raises `trio.Cancelled`.

        A Ctrl-C is never raised in here, where it could come between a resource and the block that releases it: the
        main task gets it. In tasks that are started here it may be, as in any task of Trio's.
        """
        yield

    @abstractmethod
    async def handle(self, message: Any) -> Any:
        """Serve one message; what it returns or raises is the answer of a ``call``.

        Runs in a task of its own, in the sender's context variables.

        A message that no case matched is refused with a `TypeError`. That shows by its None: the answer to a
        ``Call[int]`` is never None, and a message that the annotation of ``message`` leaves out is not handled at all.
        To refuse one yourself (where the annotation is ``Any``, say), end with
        ``case _: return await super().handle(message)``.

        **Cancellation**: cancelled when its caller leaves, and when the incarnation ends. The caller was answered or
        has left by then, so how long it takes to unwind delays nobody, but it keeps its in-flight slot until it has.
        """
        raise unknown(self.ref.name, type(self), message)

    def is_fatal(self, exc: Exception) -> bool:
        """Whether an exception out of `handle` means that this incarnation is broken. By default none does."""
        return False

    def is_hopeless(self, exc: BaseException) -> bool:
        """Whether a failure is such that a restart cannot help before something is changed. By default none is.

        A supervisor treats such a failure like a spent restart budget.
        """
        return False

    @property
    def ref(self) -> ActorRef:
        """The reference under which others know this actor."""
        return ActorRef(self._current.record)

    def stop(self, reason: Literal["normal", "shutdown"] = "normal") -> None:
        """End this incarnation, from any task of the actor's own tree; that is no failure."""
        if reason not in ("normal", "shutdown"):
            raise ValueError(f"stop() takes 'normal' or 'shutdown', not {reason!r}; to crash, use fail(exception)")
        self._current.end(reason)

    def fail(self, exc: BaseException) -> None:
        """End this incarnation as a crash with this cause, from any task of the actor's own tree.

        An idle actor whose connection dies says so with this. If the end was decided already, nothing changes; and
        `trio.Cancelled` is no failure, so a task that passes on whatever ended it changes nothing by being cancelled.

        Called in the step of a handler, this answers the others that are in flight, and leaves it to that handler how
        it ends: with a result, with an exception, or with `NotSent`.
        """
        if not isinstance(exc, BaseException):
            raise TypeError(f"fail() takes the exception object that is the cause, not {exc!r}")
        failure = without_cancelled(exc)
        if failure is not None:
            self._current.end("crashed", failure)

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

    def _check_handled(self, message: Message) -> None:
        """Refuse a message that was answered with None and cannot be."""
        cls, kind = type(self), type(message)
        if "_silent" not in vars(cls):
            cls._silent = {}
        if kind not in cls._silent:
            cls._silent[kind] = may_answer_none(cls.handle, kind)
        if not cls._silent[kind]:
            raise unknown(self.ref.name, cls, message)

    @property
    def _current(self) -> Life:
        if self._incarnation is None:
            raise RuntimeError(f"{type(self).__name__} is not running: give it to open_actor() or a ChildSpec first")
        return self._incarnation


def check_actor(owner: str, actor: object) -> None:
    """Refuse what cannot run, with a `TypeError` or `ValueError` that says whose it is."""
    if isinstance(actor, type) and issubclass(actor, Actor):
        raise TypeError(f"{owner}: an object of {actor.__name__} is needed, not the class; write {actor.__name__}(...)")
    if not isinstance(actor, Actor):
        raise TypeError(f"{owner}: {actor!r} is no Actor; derive its class from mcp_actors.kernel.Actor")
    limit: object = actor.max_in_flight
    if not is_whole(limit, 1):
        raise ValueError(f"{owner}: max_in_flight must be an int of at least 1, not {limit!r}")
    shutdown: object = actor.default_shutdown
    if shutdown != "infinity" and not is_seconds(shutdown):
        raise ValueError(f"{owner}: default_shutdown must be positive seconds or 'infinity', not {shutdown!r}")
