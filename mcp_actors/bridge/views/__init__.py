"""The refs and groups that asyncio programs use.

Each class mirrors one of the Trio side, method by method. This room uses the bridge and its callbacks. It does not
know how either side was started.
"""

from __future__ import annotations

from ._refresh import list_tools_again as list_tools_again
from ._streams import AsyncioStream as AsyncioStream
from ._views import (
    AsyncioActorRef as AsyncioActorRef,
    AsyncioMonitor as AsyncioMonitor,
    AsyncioServerGroup as AsyncioServerGroup,
    AsyncioServerRef as AsyncioServerRef,
    AsyncioSupervisorRef as AsyncioSupervisorRef,
    view_of as view_of,
)
