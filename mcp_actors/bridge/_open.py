"""The doors for asyncio programs: the same as for Trio programs, and where Trio is to run."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Literal

from .. import kernel, servers
from ..catalog.names import DEFAULT_NAMING
from .block import Door
from .callbacks import callbacks_from_loop, config_from_loop, observers_from_loop
from .views import AsyncioServerGroup, AsyncioSupervisorRef

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from ..config import Callbacks
    from ..kernel import AutoShutdown, Backoff, ChildSpec, Observer, Strategy, SupervisorRef
    from ..servers import ServerGroup
    from ..servers.group import Configured
    from ._bridge import Bridge
    from .block import Host

__all__ = ["open_servers", "open_supervisor"]


def open_supervisor(  # noqa: PLR0913 - the arguments of the kernel's door, and one
    *specs: ChildSpec,
    name: str = "supervisor",
    strategy: Strategy = "one_for_one",
    max_restarts: int = 1,
    window: float = 5.0,
    reset_after: float | None = None,
    backoff: Backoff | None = None,
    on_limit: Literal["end", "park"] = "end",
    auto_shutdown: AutoShutdown = "never",
    start_order: Literal["sequential", "parallel"] = "sequential",
    stop_order: Literal["sequential", "concurrent"] = "sequential",
    strict: bool = True,
    observers: Iterable[Observer] = (),
    host: Host = "thread",
) -> AbstractAsyncContextManager[AsyncioSupervisorRef]:
    """`mcp_actors.kernel.open_supervisor` for asyncio programs: ``async with`` on an event loop gives the supervisor.

    The actors run on Trio, and are written for Trio. Which task enters or leaves the block does not matter.

    **Cancellation**: as in Trio programs: while the children start, a cancellation ends that at once; afterwards it
    reaches the block. That everything stops is waited for in any case.

    All arguments are as there, but for:

    - ``observers`` are called on the event loop, in order, a little after the event;
    - ``host``: where Trio runs: in a ``"thread"`` of its own, or as a ``"guest"`` in the thread of the event loop,
      which has room for one.

    Raises:
        Exception: as there.
        RuntimeError: this is not asyncio; or ``host="guest"``, and there is a guest already.
    """

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[SupervisorRef]:
        return kernel.open_supervisor(
            *specs,
            name=name,
            strategy=strategy,
            max_restarts=max_restarts,
            window=window,
            reset_after=reset_after,
            backoff=backoff,
            on_limit=on_limit,
            auto_shutdown=auto_shutdown,
            start_order=start_order,
            stop_order=stop_order,
            strict=strict,
            observers=observers_from_loop(bridge, observers),
        )

    return Door("open_supervisor", "mcp_actors.kernel", open_on_trio, AsyncioSupervisorRef, host)


def open_servers(
    *configs: Configured,
    strict: bool = False,
    start_gate: float | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    naming: str = DEFAULT_NAMING,
    callbacks: Callbacks | None = None,
    observers: Iterable[Observer] = (),
    host: Host = "thread",
) -> AbstractAsyncContextManager[AsyncioServerGroup]:
    """`mcp_actors.open_servers` for asyncio programs: ``async with`` on an event loop gives the group.

    The connections run on Trio. What the configuration holds of the program's functions (middleware, callbacks,
    functions that give a value) is called on the event loop. Which task enters or leaves the block does not matter.

    **Cancellation**: as in Trio programs: while the servers connect, a cancellation ends that at once; afterwards it
    reaches the block. That the servers are disconnected is waited for in any case, at most their ``stop_timeout``.

    All arguments are as there, but for:

    - ``observers`` are called on the event loop, in order, a little after the event;
    - ``host``: where Trio runs: in a ``"thread"`` of its own, or as a ``"guest"`` in the thread of the event loop,
      which has room for one.

    Raises:
        Exception: as there.
        RuntimeError: this is not asyncio; or ``host="guest"``, and there is a guest already.
    """

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[ServerGroup]:
        return servers.open_servers(
            *(config_from_loop(bridge, config) for config in configs),
            strict=strict,
            start_gate=start_gate,
            catalog_store=catalog_store,
            naming=naming,
            callbacks=callbacks_from_loop(bridge, callbacks),
            observers=observers_from_loop(bridge, observers),
        )

    return Door("open_servers", "mcp_actors", open_on_trio, AsyncioServerGroup, host)
