"""Use actors and servers from asyncio, and asyncio code from Trio.

`open_servers` and `open_supervisor` run Trio next to an asyncio loop, and yield a view (``Asyncio…``). In a Trio
program, `open_asyncio_loop` opens a loop. Programs and the pytest plugin use the names below; `adapters` uses them, and
``_views`` directly. This folder uses the kernel, the servers, the transports, the configuration and the catalogue.

Its files import asyncio and trio-asyncio only in functions, or for type checkers, because trio-asyncio changes asyncio
for the process. The SDK, which they import, may load asyncio.
"""

from __future__ import annotations

from .._exports import publish
from ._block import Host
from ._bridge import AsyncioStream
from ._open import AsyncioLoop, open_asyncio_loop, open_servers, open_supervisor
from ._views import AsyncioActorRef, AsyncioMonitor, AsyncioServerGroup, AsyncioServerRef, AsyncioSupervisorRef

__all__ = [
    "AsyncioActorRef",
    "AsyncioLoop",
    "AsyncioMonitor",
    "AsyncioServerGroup",
    "AsyncioServerRef",
    "AsyncioStream",
    "AsyncioSupervisorRef",
    "Host",
    "open_asyncio_loop",
    "open_servers",
    "open_supervisor",
]

publish(__name__, globals())
