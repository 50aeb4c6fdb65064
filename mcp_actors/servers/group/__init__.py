"""Many servers as one: open them, supervise them, and view them together.

A single server does not know that it belongs to a group: only the face of `servers` imports this room.
"""

from __future__ import annotations

from ._group import ServerGroup as ServerGroup
from ._lifecycle import ReloadSummary as ReloadSummary
from ._loop import DRAIN_TIMEOUT as DRAIN_TIMEOUT
from ._open import open_servers as open_servers
from ._tree import MAX_SERVERS as MAX_SERVERS, MAX_STARTING as MAX_STARTING
