"""Use actors and servers from asyncio, and asyncio code from Trio.

This file only gathers names. `open_servers` and `open_supervisor` run Trio in a thread, or as a guest of an asyncio
loop. Each yields a view (``Asyncio…``) with methods to await on asyncio. In a Trio program, `open_asyncio_loop` opens
an asyncio loop, and yields an `AsyncioLoop`.
"""

# Begin to read in ``_open``. Files here import asyncio and trio-asyncio only in functions, or for type checkers:
# importing trio-asyncio changes asyncio for the process.

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import publish
from ._block import Host
from ._bridge import AsyncioStream
from ._generated_group import AsyncioServerGroup
from ._generated_ref import AsyncioServerRef
from ._open import AsyncioLoop, open_asyncio_loop, open_servers, open_supervisor
from ._views import AsyncioActorRef, AsyncioMonitor, AsyncioSupervisorRef

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
