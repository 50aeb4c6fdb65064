"""Use actors and servers from asyncio, and asyncio from Trio.

Importing this package does not import asyncio or trio-asyncio; a function imports what it needs when it is called.
"""

from __future__ import annotations

from .._exports import publish
from ._asyncio_loop import AsyncioLoop as AsyncioLoop, open_asyncio_loop as open_asyncio_loop
from ._open import open_servers as open_servers, open_supervisor as open_supervisor
from .block import Host as Host
from .views import (
    AsyncioActorRef as AsyncioActorRef,
    AsyncioMonitor as AsyncioMonitor,
    AsyncioServerGroup as AsyncioServerGroup,
    AsyncioServerRef as AsyncioServerRef,
    AsyncioStream as AsyncioStream,
    AsyncioSupervisorRef as AsyncioSupervisorRef,
)

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
