"""Use actors and servers from asyncio, and asyncio from Trio.

Importing this package does not import asyncio or trio-asyncio; a function imports what it needs when it is called.
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
