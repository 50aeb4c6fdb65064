"""Actors for the tests of single actors: messages carry what is to be done, so a test reads from top to bottom."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, Literal, TypeVar

import pytest
import trio
from attrs import frozen

from mcp_actors.kernel import (
    Actor,
    ActorRef,
    Call,
    ChildSpec,
    Event,
    Message,
    StopActor,
    SupervisorRef,
    open_supervisor,
)

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

Hook = Callable[["Host"], Awaitable[None]]


class Boom(Exception):
    """An ordinary failure of a handler."""


class Fatal(Exception):
    """A failure of a handler that ends the incarnation."""


def end_by(actor: Actor[Any], deed: str) -> None:
    """Fail, crash or stop as a message says; do nothing for another deed."""
    match deed:
        case "raise":
            raise Boom
        case "crash":
            raise Fatal
        case "fail":
            actor.fail(Boom())
        case "stop":
            raise StopActor


@frozen(eq=False)
class Do(Call[T], Generic[T]):
    """Have a handler run a function, in a task of the actor."""

    fn: Callable[[], Awaitable[T]]


@frozen(eq=False)
class DoNow(Do[T], Generic[T]):
    """The same on the control lane."""

    control: ClassVar[bool] = True


@frozen
class Put(Message):
    """Have a handler append to `Host.seen`."""

    item: Any


@frozen
class PutNow(Put):
    """The same on the control lane."""

    control: ClassVar[bool] = True


@frozen
class Get(Call[int]):
    """Answered with the number that it carries, which is appended to `Host.seen` too."""

    number: int


class Host(Actor):
    """Does what messages carry.

    Args:
        start: awaited in ``running()`` before its yield.
        stop: awaited after it.
        background: run in a nursery of ``running()``.
        max_in_flight: as in `Actor`.
        shutdown: its ``default_shutdown``.
        seen: where `Put` and `Get` append.
    """

    def __init__(
        self,
        *,
        start: Hook | None = None,
        stop: Hook | None = None,
        background: Hook | None = None,
        max_in_flight: int = 1,
        shutdown: float | Literal["infinity"] = 5.0,
        seen: list[Any] | None = None,
    ) -> None:
        self.start_hook = start
        self.stop_hook = stop
        self.background = background
        self.max_in_flight = max_in_flight
        self.default_shutdown = shutdown
        self.seen: list[Any] = [] if seen is None else seen

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self.start_hook is not None:
            await self.start_hook(self)
        if self.background is None:
            yield
        else:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.background, self)
                yield
                nursery.cancel_scope.cancel("the host stops")
        if self.stop_hook is not None:
            await self.stop_hook(self)

    async def handle(self, message: Do[Any] | Put | Get) -> Any:
        match message:
            case Do(fn):
                return await fn()
            case Put(item):
                self.seen.append(item)
            case Get(number):
                self.seen.append(number)
                return number
        return None

    def is_fatal(self, exc: Exception) -> bool:
        return isinstance(exc, Fatal)


class Gate:
    """A place in a handler where it waits, and that a test can watch.

    Attributes:
        entered: how many came to it.
        left: how many have left it, in whatever way.
    """

    def __init__(self) -> None:
        self.entered = 0
        self.left = 0
        self._open = trio.Event()

    def open(self) -> None:
        """Let everybody through."""
        self._open.set()

    async def __call__(self) -> str:
        self.entered += 1
        try:
            await self._open.wait()
        finally:
            self.left += 1
        return "through"


def hook(fn: Callable[[], Awaitable[Any]]) -> Hook:
    """A hook that takes no actor."""

    async def run(_: Host) -> None:
        await fn()

    return run


def raising(exc: BaseException) -> Callable[[], Awaitable[None]]:
    """A function that does nothing but raise."""

    async def run() -> None:
        raise exc

    return run


async def make_cancelled() -> trio.Cancelled:
    """Return the Cancelled of a scope that has ended."""
    found: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel("to get hold of a Cancelled")
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as exc:
            found.append(exc)
            raise
    return found[0]


async def shielded(seconds: float) -> None:
    """A part that no cancellation reaches."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


@asynccontextmanager
async def open_child(
    factory: Callable[[], Actor] = Host, *, observers: Any = (), **options: Any
) -> AsyncIterator[SupervisorRef]:
    """Run an actor under a supervisor that restarts it as often as it takes. Its id is ``"child"``."""
    spec = ChildSpec("child", factory, **options)
    async with open_supervisor(spec, max_restarts=10**6, window=math.inf, observers=observers) as supervisor:
        yield supervisor


def leaving(kind: type[E] | tuple[type[E], ...], match: str | None = None) -> pytest.RaisesExc[E]:
    """`pytest.raises`, around a door that raises at the end of a block which does several things."""
    return pytest.raises(kind, match=match)


def of(events: list[Event], *kinds: type[Event]) -> list[str]:
    """The names of the events of these kinds (default: all), in order."""
    return [type(event).__name__ for event in events if isinstance(event, kinds or Event)]


def at_once(handler: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, as a plain handler would; return its result."""
    try:
        handler.send(None)
    except StopIteration as exc:
        result: T = exc.value
        return result
    raise AssertionError(f"{handler} waits")


async def sent_as(kind: str, ref: ActorRef, message: Call[Any], answer: object) -> str:
    """Send a message as a call, a tell or a tell_nowait, and return how that ended. A call must get this answer."""
    match kind:
        case "call":
            assert await ref.call(message) == answer
            return "value"
        case "tell":
            await ref.tell(message)
        case "tell_nowait":
            ref.tell_nowait(message)
    return "told"
