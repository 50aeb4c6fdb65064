"""Open servers and supervisors in asyncio programs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Unpack

from .. import kernel, servers
from .._misuse import explained
from ..catalog._names import DEFAULT_NAMING
from ..servers.group import DRAIN_TIMEOUT, MAX_SERVERS, MAX_STARTING
from ..servers.sources import anchored
from .block import Door
from .callbacks import LoopSignals, callbacks_from_loop, config_from_loop, observers_from_loop
from .views import AsyncioServerGroup, AsyncioSupervisorRef

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from mcp.types import Implementation

    from ..config import Callbacks
    from ..kernel import ChildSpec, Observer, SupervisorOptions, SupervisorRef
    from ..servers import ServerGroup
    from ..servers.sources import Configured
    from ._bridge import Bridge
    from .block import Host


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

    **Cancellation**: as in Trio programs. It ends the start of the children at once; later it reaches the block. In
    either case the block waits until everything has stopped. The ``aclose()`` of an asynchronous generator that holds
    the block open does not wait for that.

    Arguments are those of `mcp_actors.kernel.open_supervisor`, except:

    - ``observers`` are called on the event loop, in order, a little after the event.
    - ``host`` says where Trio runs: in a ``"thread"`` of its own, or as a ``"guest"`` in the thread of the event loop,
      which has room for one.

    Raises:
        Exception: see `mcp_actors.kernel.open_supervisor`.
        RuntimeError: asyncio is not running; or ``host="guest"``, and the thread has a guest already.
    """

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[SupervisorRef]:
        asked = observers_from_loop(bridge, observers)
        return kernel.open_supervisor(*specs, name=name, observers=asked, **options)

    return Door("open_supervisor", "mcp_actors.kernel", open_on_trio, AsyncioSupervisorRef, host)


@explained
def open_servers(  # noqa: PLR0913  # those of the door on Trio
    *configs: Configured,
    strict: bool = False,
    watch: bool = False,
    env_file: str | os.PathLike[str] | None = None,
    start_gate: float | None = None,
    catalog_store: str | os.PathLike[str] | bool | None = None,
    naming: str = DEFAULT_NAMING,
    callbacks: Callbacks | None = None,
    client_info: Implementation | None = None,
    max_servers: int = MAX_SERVERS,
    max_starting: int = MAX_STARTING,
    max_processes: int | None = None,
    drain_timeout: float = DRAIN_TIMEOUT,
    stop_on: int | Iterable[int] = (),
    reload_on: int | Iterable[int] = (),
    observers: Iterable[Observer] = (),
    host: Host = "thread",
) -> AbstractAsyncContextManager[AsyncioServerGroup]:
    """Connect to servers around a block of asyncio code; see `mcp_actors.open_servers`.

    The connections run on Trio. Functions in the configuration (middleware, callbacks, functions that return a value)
    are called on the event loop. Any task may enter the block, and any may leave it.

    **Cancellation**: as in Trio programs. It ends the connecting at once; later it reaches the block. In either case
    the block waits until the servers are disconnected, at most their ``stop_timeout``. At a normal end they finish the
    requests that they have accepted first, within ``drain_timeout``. The ``aclose()`` of an asynchronous generator that
    holds the block open does not wait for that.

    Arguments are those of `mcp_actors.open_servers`, except:

    - ``observers`` are called on the event loop, in order, a little after the event.
    - ``host`` says where Trio runs: in a ``"thread"`` of its own, or as a ``"guest"`` in the thread of the event loop,
      which has room for one.

    Raises:
        Exception: see `mcp_actors.open_servers`.
        RuntimeError: asyncio is not running; or ``host="guest"``, and the thread has a guest already.
    """
    configs, env_file = tuple(map(anchored, configs)), anchored(env_file)  # here, because Trio starts later

    def open_on_trio(bridge: Bridge) -> AbstractAsyncContextManager[ServerGroup]:
        return servers.open_servers(
            *(config_from_loop(bridge, config) for config in configs),
            strict=strict,
            watch=watch,
            env_file=env_file,
            start_gate=start_gate,
            catalog_store=catalog_store,
            naming=naming,
            callbacks=callbacks_from_loop(bridge, callbacks),
            client_info=client_info,
            max_servers=max_servers,
            max_starting=max_starting,
            max_processes=max_processes,
            drain_timeout=drain_timeout,
            stop_on=LoopSignals(bridge, "stop_on", stop_on),
            reload_on=LoopSignals(bridge, "reload_on", reload_on),
            observers=observers_from_loop(bridge, observers),
        )

    return Door("open_servers", "mcp_actors", open_on_trio, AsyncioServerGroup, host)
