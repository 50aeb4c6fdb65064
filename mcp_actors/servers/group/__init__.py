"""Many servers as one: open them, supervise them, and view them together.

Only the face of `servers` uses this room, because a single server does not know that it belongs to a group. It may
touch everything below except requests: it starts and stops the actors of servers, sends the lifecycle actor its
changes, and writes what is wanted of a server. It alone writes the roster and the files of the catalogue store.
"""

from __future__ import annotations

from ._group import ServerGroup as ServerGroup
from ._lifecycle import ReloadSummary as ReloadSummary
from ._loop import DRAIN_TIMEOUT as DRAIN_TIMEOUT
from ._open import open_servers as open_servers
from ._tree import MAX_SERVERS as MAX_SERVERS, MAX_STARTING as MAX_STARTING
