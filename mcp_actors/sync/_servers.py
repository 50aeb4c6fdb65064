"""Open servers in a ``with`` block, without an event loop.

The servers run on Trio, in a thread of their own. A thread of the program cannot be cancelled, so its next call raises
if the group has failed. A finalizer ends the Trio run once the program has dropped the block, the group and all refs.

Owns: Trio's thread; an exit handler; a finalizer.
Writes: the bridge's failure; tracebacks of exceptions; signal handlers; the log. Ends the Trio run.
Calls: bridge, config, kernel, servers, _generated_group, _wait.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NoReturn

import trio
from mcp.types import Implementation

from .. import servers
from .._foreign import Log
from .._misuse import Unopened, explained
from .._tasks import Signals
from .._text import with_remedy
from ..bridge._block import BlockProxy, ThreadRun, reraise
from ..bridge._callbacks import adapted_callbacks
from ..config import Callbacks
from ..kernel import Observer
from ..servers._sources import Configured, anchored_options
from ._generated_group import SyncServerGroup
from ._wait import SIGNAL_POLL, ThreadBridge, ThreadFuture, config_from_thread, in_thread

if TYPE_CHECKING:
    from types import TracebackType

    from ..bridge._bridge import Bridge
    from ..servers import ServerGroup

logger = Log("mcp_actors.bridge")

# --- The ``with`` block -----------------------------------------------------------------------------------------------


_DROPPED: Final = (
    "a block was dropped without being exited, so its servers are stopped; keep the group or one of its refs to go on, "
    "and exit the block to stop them"
)


class LoneRun(ThreadRun):
    def start(self) -> None:
        self.stops.install()
        self._thread.start()
        atexit.register(self.at_exit)

    def drop(self) -> None:
        """End the run, because the program has dropped all that could use the group or exit the block."""
        if self.block.unwanted or self.bridge.is_copy:
            return  # it ends already, or belongs to the parent process
        if self._token is not None:  # else the thread has not begun, and opens nothing after `abort`
            with suppress(trio.RunFinishedError):
                # On Trio's side: a finalizer may run within any line of any thread, also while the thread holds a lock,
                # and a log handler could then wait forever.
                self._token.run_sync_soon(logger.warning, _DROPPED)
        self.abort()

    def report_end(self) -> None:
        """Report the end, and unregister the exit handler: a dropped block never calls `finish`."""
        super().report_end()
        atexit.unregister(self.at_exit)


class _EventReceiver:
    """Receives the events of the block, on Trio's side.

    Attributes:
        opened: the group; None if the run has ended without one.
    """

    block: BlockProxy[ServerGroup]

    def __init__(self, bridge: ThreadBridge) -> None:
        self._bridge = bridge
        self.opened: ThreadFuture[ServerGroup | None] = bridge.threads.create_future()
        self.ended: ThreadFuture[BaseException | None] = ThreadFuture(
            SimpleQueue(), SIGNAL_POLL
        )  # any thread may leave the block

    def on_opened(self, thing: ServerGroup) -> None:
        self.opened.set_result(thing)

    def on_failing(self) -> None:
        """Close the failed group. A thread cannot be cancelled: its next call raises."""
        self.block.alone = True
        self.block.leave(None)

    def on_ended(self, error: BaseException | None) -> None:
        self._bridge.end(error)
        if not self.opened.done():
            self.opened.set_result(None)
        self.ended.set_result(error)


class ThreadBlock(Unopened, AbstractContextManager[SyncServerGroup]):
    """A Trio run with servers, around a block.

    Any thread may leave the block. A Ctrl-C is raised after the Trio run.
    """

    _statement = "with"
    _run: LoneRun | None = None

    def __init__(self, open_: Callable[[Bridge], AbstractAsyncContextManager[ServerGroup]]) -> None:
        super().__init__("open_servers")
        self._open = open_

    def __enter__(self) -> SyncServerGroup:
        bridge = ThreadBridge()
        bridge.refuse_loops("mcp_actors.sync.open_servers()")
        self._enter_once()
        self._bridge, self._owner = bridge.held(), _EventReceiver(bridge)
        self._block = self._owner.block = BlockProxy(bridge, self._open(bridge), self._owner)
        self._run = run = LoneRun(bridge, self._block, self._owner.on_ended)
        # Ends the run once this door, the group and all refs, which hold the bridge, have been dropped. A `__del__`
        # would run after each block, and Python ignores a Ctrl-C in it.
        self._dropped = weakref.finalize(self._bridge, run.drop)
        self._dropped.atexit = False  # the run has an exit handler of its own, which waits
        try:
            run.start()
        except BaseException as exc:
            run.abort()  # if the thread has started nevertheless, it opens nothing
            run.stops.uninstall()
            reraise(with_remedy(exc))
        try:
            group = self._owner.opened.wait()
        except BaseException:
            self._wait_ended(run, run.abort)
            raise
        if group is None:
            error, interruption = self._wait_ended(run, run.abort)
            reraise(interruption or error)
        run.stops.uninstall()
        return SyncServerGroup(self._bridge, group)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._run is None or self._bridge.is_copy:
            return  # the parent process leaves the block
        leave = partial(self._bridge.to_trio, partial(self._block.leave, exc))
        error, interruption = self._wait_ended(self._run, leave)
        if exc is not None:
            exc.__traceback__ = traceback  # without the frames of Trio's side
        if error is exc:
            self._bridge.failure = None  # the frames of the program's own exception would keep the group alive
        if interruption is not None and isinstance(error, Exception | None):
            raise interruption from error
        if error is not None and error is not exc:
            reraise(error)

    async def __aenter__(self) -> NoReturn:
        raise TypeError(
            "mcp_actors.sync.open_servers(): 'async with' is for programs with an event loop; on asyncio, use 'from "
            "mcp_actors.bridge import open_servers', on Trio 'from mcp_actors import open_servers'"
        )

    async def __aexit__(self, *_: object) -> None:
        """Exist: ``async with`` looks for this method before calling `__aenter__`."""

    def _wait_ended(self, run: LoneRun, end: Callable[[], object]) -> tuple[BaseException | None, BaseException | None]:
        """End the Trio run and wait; return its exception, and the last Ctrl-C meanwhile."""
        interruption: BaseException | None = None
        while True:
            try:
                with suppress(RuntimeError):  # Trio's side has ended by itself
                    end()
                error = self._owner.ended.wait()
                run.finish()
                self._dropped.detach()
                self._run = None
                return error, interruption
            except BaseException as exc:
                # A Ctrl-C gives up the requests in flight, but the wait goes on: to leave now would leave processes
                # behind. The wait is bounded, because stopping is (`stop_timeout`).
                interruption, end = exc, run.abort


@explained
def open_servers(  # noqa: PLR0913  # the arguments of `mcp_actors.open_servers`
    *configs: Configured,
    strict: bool = False,
    watch: bool = False,
    callbacks: Callbacks | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    drain_timeout: float = 30.0,
    observers: Iterable[Observer] = (),
    env_file: str | os.PathLike[str] | None = None,
    start_gate: float | None = None,
    naming: str = "mcp__{server}__{tool}",
    client_info: Implementation | None = None,
    max_servers: int = 50,
    max_starting: int = 16,
    max_processes: int | None = None,
) -> AbstractContextManager[SyncServerGroup]:
    """Connect to servers around a ``with`` block, without an event loop; see `mcp_actors.open_servers`.

    The connections run on Trio, in a thread of their own. Any number of threads may call the servers at the same time,
    and any thread may leave the block. A forked process cannot use the servers.

    **Ctrl-C** is raised at the call that the main thread waits for. The call is withdrawn: a queued request is never
    sent, and the server is asked to cancel a sent request. The servers remain usable. While the block is entered or
    left, Ctrl-C is raised after everything has been closed. `fail_after` takes the place of a cancel scope.

    Arguments are those of `mcp_actors.open_servers`, except:

    - Plain functions in the configuration (callbacks, middleware, functions that return a value) run in threads, and
      may block and call servers. A ``progress`` callback, and ``show`` of a sign-in, run in the calling thread. Async
      functions, and servers given as `InProcess`, run on Trio.
    - ``observers`` are called in Trio's thread, and must not block.
    - There are no ``stop_on`` and ``reload_on``, because a thread cannot be cancelled. A handler of a signal may raise
      `SystemExit` in the main thread, or call ``servers.reload()``.

    Raises:
        Exception: see `mcp_actors.open_servers`.
        RuntimeError: an event loop runs in this thread.
        TimeoutError: the servers were not connected within `fail_after`.
    """
    options = anchored_options({**locals()})
    given = options.pop("configs")

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[ServerGroup]:
        stops = Signals("stop_on", ())  # receives none; `end_start` ends a long start once the program is to stop
        bridge.end_start = lambda: stops.end_start()
        adapted = {"callbacks": adapted_callbacks(in_thread, callbacks)}
        configs = (config_from_thread(bridge, config) for config in given)
        return servers.open_servers(*configs, stop_on=stops, **options | adapted)

    return ThreadBlock(open_on_trio)
