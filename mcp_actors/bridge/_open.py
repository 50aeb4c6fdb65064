"""Open servers and supervisors on asyncio, and an asyncio loop on Trio.

`open_servers` and `open_supervisor` return an `AsyncioBlock`, which enters the block of `servers.open_servers` or
`kernel.open_supervisor` in a Trio run. Actors run on Trio, and the program's callbacks on the event loop.
`open_asyncio_loop` runs Trio and asyncio in one thread.

Owns: in `open_asyncio_loop`, the event loop, the bridge and the tasks of requests.
Writes: requests for lists of tools; trio-asyncio's patches of asyncio; the log.
Calls: config, kernel, servers, _block, _bridge, _callbacks, _generated_group, _generated_ref, _views.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from functools import partial
from inspect import iscoroutine
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast, overload

import trio
from mcp import MCPError
from mcp.types import Implementation

from .. import kernel, servers
from .._collapse import collapse
from .._errors import McpActorsError
from .._foreign import Log
from .._misuse import check_flavor, explained
from .._pickling import Handle
from .._text import problem_of
from ..config import Callbacks
from ..kernel import ActorRef, ChildSpec, Observer, SupervisorOptions, SupervisorRef
from ..servers import ServerGroup, ServerRef
from ..servers._sources import Configured, anchored_options
from ._block import AsyncioBlock, Host
from ._bridge import Bridge, run_now
from ._callbacks import LoopSignals, adapted_callbacks, config_from_loop, observers_from_loop, on_loop
from ._generated_group import AsyncioServerGroup
from ._generated_ref import AsyncioServerRef
from ._views import AsyncioActorRef, AsyncioSupervisorRef, view_of

logger = Log("mcp_actors.bridge")


@kernel.shows_options
def open_supervisor(
    *specs: ChildSpec,
    name: str = "supervisor",
    observers: Iterable[Observer] = (),
    host: Host = "thread",
    **options: Unpack[SupervisorOptions],
) -> AbstractAsyncContextManager[AsyncioSupervisorRef]:
    """Run a supervisor around a block of asyncio code; see `mcp_actors.kernel.open_supervisor`.

    The actors run on Trio, and are written for Trio. Any task may enter the block, and any may leave it.

    **Cancellation**: as in Trio programs. A start of the children ends at once; later the block is cancelled. Either
    way the block waits until everything has stopped, except in the ``aclose()`` of an asynchronous generator around it.

    Arguments are those of `mcp_actors.kernel.open_supervisor`, except:

    - ``observers`` are called on the event loop, in order, a little after the event; a `CallObserver` is called on
      Trio's side at once, in another thread with ``host="thread"``.
    - ``host``: a ``"thread"`` of its own for Trio, or a ``"guest"`` in the event loop's thread, at most one per thread.

    Raises:
        Exception: see `mcp_actors.kernel.open_supervisor`.
        RuntimeError: asyncio is not running; or ``host="guest"``, and the thread has a guest already.
    """

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[SupervisorRef]:
        asked = observers_from_loop(bridge, observers)
        return kernel.open_supervisor(*specs, name=name, observers=asked, **options)

    return AsyncioBlock("open_supervisor", "mcp_actors.kernel", open_on_trio, AsyncioSupervisorRef, host)


@explained
def open_servers(  # noqa: PLR0913  # as for programs on Trio
    *configs: Configured,
    strict: bool = False,
    watch: bool = False,
    callbacks: Callbacks | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    drain_timeout: float = 30.0,
    stop_on: int | Iterable[int] = (),
    observers: Iterable[Observer] = (),
    host: Host = "thread",
    env_file: str | os.PathLike[str] | None = None,
    start_gate: float | None = None,
    naming: str = "mcp__{server}__{tool}",
    client_info: Implementation | None = None,
    max_servers: int = 50,
    max_starting: int = 16,
    max_processes: int | None = None,
    reload_on: int | Iterable[int] = (),
) -> AbstractAsyncContextManager[AsyncioServerGroup]:
    """Connect to servers around a block of asyncio code; see `mcp_actors.open_servers`.

    The connections run on Trio. Functions in the configuration (middleware, callbacks, functions that return a value)
    are called on the event loop. Any task may enter the block, and any may leave it.

    **Cancellation**: as in Trio programs. The connecting ends at once; later the block is cancelled. Either way the
    block waits until the servers are disconnected, at most their ``stop_timeout``, except in the ``aclose()`` of an
    asynchronous generator around it. At a normal end, accepted requests are finished first, within ``drain_timeout``.

    Arguments are those of `mcp_actors.open_servers`, except:

    - ``observers`` are called on the event loop, in order, a little after the event.
    - ``host``: a ``"thread"`` of its own for Trio, or a ``"guest"`` in the event loop's thread, at most one per thread.

    Raises:
        Exception: see `mcp_actors.open_servers`.
        RuntimeError: asyncio is not running; or ``host="guest"``, and the thread has a guest already.
    """
    options = anchored_options({**locals()})
    given, host = options.pop("configs"), options.pop("host")

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[ServerGroup]:
        adapted = {
            "callbacks": adapted_callbacks(partial(on_loop, bridge), callbacks),
            "stop_on": LoopSignals(bridge, "stop_on", stop_on),
            "reload_on": LoopSignals(bridge, "reload_on", reload_on),
            "observers": observers_from_loop(bridge, observers),
        }
        return servers.open_servers(*(config_from_loop(bridge, config) for config in given), **options | adapted)

    return AsyncioBlock("open_servers", "mcp_actors", open_on_trio, AsyncioServerGroup, host)


# --- Asyncio in a Trio program ----------------------------------------------------------------------------------------


R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncioLoop(Handle):
    """An asyncio event loop inside a Trio program."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge

    def __repr__(self) -> str:
        return f"<AsyncioLoop {'closed' if self._bridge.loop.is_closed() else 'open'}>"

    async def run(self, async_fn: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Run an async function written for asyncio, in a task of the event loop, and return its result.

        Any number of Trio tasks may run functions at the same time.

        **Cancellation**: cancels the asyncio task, and waits for its end.

        Raises:
            Exception: raised by the function.
        """
        if iscoroutine(given := cast("Any", async_fn)):
            given.close()
            name = given.__name__
            raise TypeError(f"run() takes an async function and its arguments, not a coroutine; write run({name}, …)")
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
        if isinstance(thing, ServerGroup):
            return AsyncioServerGroup(self._bridge, thing)
        if isinstance(thing, ServerRef):
            return AsyncioServerRef(self._bridge, thing)
        if isinstance(thing, ActorRef):
            return view_of(self._bridge, thing)
        remedy = "give a ServerGroup, a ServerRef, a SupervisorRef or an ActorRef"
        raise TypeError(f"{thing!r} has no asyncio view; {remedy}")


async def _awaited(async_fn: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
    return await async_fn(*args)


def _import_trio_asyncio() -> Any:
    """Import trio-asyncio, or refuse a process in which the event loop would not work."""
    if sys.version_info >= (3, 14):
        raise RuntimeError(
            "open_asyncio_loop(): trio-asyncio does not support Python 3.14 or newer; start the program with "
            "asyncio.run(), and use mcp_actors.bridge.open_servers() or open_supervisor() there"
        )
    if "anyio._backends._asyncio" in sys.modules and "trio_asyncio" not in sys.modules:
        # AnyIO has bound asyncio's own functions, which find no event loop: trio-asyncio's are in the module only.
        problem = "AnyIO has been used on asyncio before trio-asyncio was imported"
        remedy = "write 'import trio_asyncio' at the top of the program"
        raise RuntimeError(f"open_asyncio_loop(): {problem}, so AnyIO would not find this event loop; {remedy}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # trio-asyncio uses names that Python 3.14 removes
        import trio_asyncio
    return trio_asyncio


@asynccontextmanager
async def open_asyncio_loop() -> AsyncIterator[AsyncioLoop]:
    """Open an asyncio event loop around a block of a Trio program, in the same thread.

    The loop runs on trio-asyncio, imported by the first call, which changes asyncio for the whole process. Python 3.13
    or older is needed.

    **Cancellation**: reaches the block. Tasks that still run on the event loop when the block ends are cancelled and
    awaited.

    Yields:
        The event loop.

    Raises:
        RuntimeError: Python is too new, Trio is not running, or AnyIO has been used on asyncio before trio-asyncio was
            imported.
        Exception: an exception of an asyncio callback, which ends the block.
    """
    remedy = "on asyncio use mcp_actors.bridge.open_servers() or open_supervisor()"
    check_flavor("mcp_actors.bridge.open_asyncio_loop()", "trio", remedy)
    trio_asyncio = _import_trio_asyncio()
    from_block: BaseException | None = None
    try:
        # The nursery of the requests encloses the event loop: clean-up code of asyncio tasks runs while the loop
        # closes, and still needs answers. `abandon` comes between the two ends: callers of a closed loop cannot
        # withdraw, and their messages would be handled in vain.
        async with trio.open_nursery() as nursery:
            with ExitStack() as after_loop:
                async with trio_asyncio.open_loop() as loop:
                    bridge = Bridge(loop)
                    bridge.nursery, bridge.serving = nursery, True
                    bridge.to_loop = bridge.to_trio = run_now  # both sides share a thread and a Trio run
                    after_loop.callback(bridge.abandon)
                    try:
                        yield AsyncioLoop(bridge)
                    except trio.Cancelled:
                        raise
                    except BaseException as exc:
                        # Kept from trio-asyncio and the nursery, which would wrap it; raised below.
                        from_block = exc
            nursery.cancel_scope.cancel("the event loop has ended")
    except BaseExceptionGroup as group:
        failure = collapse(group)
        if from_block is not None:  # one exception leaves
            failure = collapse(BaseExceptionGroup("the event loop and the block have failed", [failure, from_block]))
        try:
            raise failure from failure.__cause__
        finally:
            del failure
    try:
        if from_block is not None:
            raise from_block
    finally:
        del from_block  # the traceback refers to this frame


# --- Lists of tools ---------------------------------------------------------------------------------------------------


async def list_tools_again(servers: Iterable[AsyncioServerRef]) -> None:
    """List the tools of servers concurrently. A server that fails is logged, and keeps its last list."""
    import asyncio

    async with asyncio.TaskGroup() as tasks:
        for server in servers:
            tasks.create_task(_list_tools(server), name=f"{server.name}:tools/list")


async def _list_tools(server: AsyncioServerRef) -> None:
    try:
        await server.list_tools()
    except (McpActorsError, MCPError) as exc:
        problem = problem_of(exc)
        logger.warning("server %r: tools/list failed: %s; the catalogue keeps its last list", server.name, problem)
