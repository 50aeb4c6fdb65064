"""Run asyncio code in a Trio program, on trio-asyncio."""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, overload

import trio

from .._collapse import collapse
from .._misuse import check_flavor
from ..kernel import ActorRef, SupervisorRef
from ..servers import ServerGroup, ServerRef
from ._bridge import Bridge
from ._lane import run_now
from .views import AsyncioActorRef, AsyncioServerGroup, AsyncioServerRef, AsyncioSupervisorRef, view_of

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncioLoop:
    """An asyncio event loop inside a Trio program."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    async def run(self, async_fn: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Run an async function that is written for asyncio, in a task of the event loop, and wait for its result.

        Any number of Trio tasks may do so at the same time.

        **Cancellation**: cancels the asyncio task, and waits until it has ended.

        Raises:
            Exception: an exception of the function.
        """
        loop: Any = self._bridge.loop
        result: R = await loop.run_aio_coroutine(_awaited(async_fn, *args))
        return result

    @overload
    def view(self, thing: ServerGroup) -> AsyncioServerGroup: ...
    @overload
    def view(self, thing: ServerRef) -> AsyncioServerRef: ...
    @overload
    def view(self, thing: SupervisorRef) -> AsyncioSupervisorRef: ...
    @overload
    def view(self, thing: ActorRef) -> AsyncioActorRef: ...
    def view(self, thing: Any) -> Any:
        """Return the asyncio view of a group, a server or an actor, for use on this event loop.

        Raises:
            TypeError: the object has no view.
        """
        return view_of(self._bridge, thing)


async def _awaited(async_fn: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
    return await async_fn(*args)


@asynccontextmanager
async def open_asyncio_loop() -> AsyncIterator[AsyncioLoop]:
    """Open an asyncio event loop around a block of a Trio program, in the same thread.

    The loop runs on trio-asyncio, which changes asyncio for the whole process when it is imported. So it is imported
    only when this is called. It needs Python 3.13 or older.

    **Cancellation**: reaches the block. Tasks that still run on the event loop when the block ends are cancelled and
    awaited.

    Yields:
        The event loop.

    Raises:
        RuntimeError: Python is too new, or Trio is not running.
        Exception: an exception of an asyncio callback, which ends the block.
    """
    check_flavor(
        "mcp_actors.bridge.open_asyncio_loop()",
        "trio",
        "on asyncio use mcp_actors.bridge.open_servers() or open_supervisor()",
    )
    if sys.version_info >= (3, 14):
        raise RuntimeError(
            "open_asyncio_loop(): trio-asyncio does not support Python 3.14 or newer; start the program with "
            "asyncio.run(), and use mcp_actors.bridge.open_servers() or open_supervisor() there"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it uses names that Python 3.14 removes
        import trio_asyncio

    from_block: BaseException | None = None
    try:
        # The nursery of the requests encloses the event loop, so the clean-up code of asyncio tasks, which runs while
        # the loop closes, still gets its answers. `abandon` comes between the two ends: then no caller can withdraw any
        # more.
        async with trio.open_nursery() as nursery:
            with ExitStack() as after_loop:
                async with trio_asyncio.open_loop() as loop:
                    bridge = _bridge(loop, nursery)
                    after_loop.callback(bridge.abandon)
                    try:
                        yield AsyncioLoop(bridge)
                    except trio.Cancelled:
                        raise
                    except BaseException as exc:
                        # Kept from trio-asyncio and the nursery, which would wrap it; it leaves as itself, below.
                        from_block = exc
            nursery.cancel_scope.cancel("the event loop has ended")
    except BaseExceptionGroup as group:
        failure = collapse(group)
        if from_block is not None:
            failure = collapse(BaseExceptionGroup("the event loop and the block have failed", [failure, from_block]))
        try:
            raise failure from failure.__cause__
        finally:
            del failure
    try:
        if from_block is not None:
            raise from_block
    finally:
        del from_block  # whose traceback refers to this frame


def _bridge(loop: Any, nursery: trio.Nursery) -> Bridge:
    """Return a bridge whose two sides share a thread and a Trio run."""
    bridge = Bridge(loop)
    bridge.nursery = nursery
    bridge.to_loop = bridge.to_trio = run_now
    bridge.serving = True
    return bridge
