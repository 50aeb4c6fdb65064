"""Use servers without an event loop: in scripts, threads and job queues.

This file only gathers the public names. `open_servers` runs Trio in a thread, and yields a `SyncServerGroup` of
`SyncServerRef` objects. Any thread may call their methods. `fail_after` limits the time of calls in its block.
"""

from __future__ import annotations

from .. import _sdk as _sdk  # before anything that imports the SDK
from .._exports import publish
from ._generated_group import SyncServerGroup
from ._generated_ref import SyncServerRef
from ._servers import open_servers
from ._wait import fail_after

__all__ = ["SyncServerGroup", "SyncServerRef", "fail_after", "open_servers"]

publish(__name__, globals())
