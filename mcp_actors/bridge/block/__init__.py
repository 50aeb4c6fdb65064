"""The Trio run around a block of asyncio code.

For `open_servers` and `open_supervisor`. The block ends in one of several ways (its own code, a cancellation, Ctrl-C, a
failure on Trio's side, a closed event loop); in each of them the Trio run ends first, and with it everything that it
opened. This room uses the two lanes of the bridge, and knows nothing of servers or views.
"""

from __future__ import annotations

from ._door import Door as Door
from ._hosts import Host as Host
