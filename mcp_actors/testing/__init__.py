"""Test programs that use MCP servers or actors.

pytest loads the fixtures by itself (`scripted_server`, `event_recorder`, `nothing_left`); they import this package
when a test names one. The scripted server needs the SDK's server, and is imported when it is first used.
"""

from __future__ import annotations

from .._exports import publish
from ._leftovers import Snapshot as Snapshot
from ._probe import Probe as Probe
from ._recorder import EventRecorder as EventRecorder
from ._replay import run_seeded as run_seeded

# For this project's tests; not public.
from ._leftovers import children as children  # isort: skip

__all__ = ["EventRecorder", "Probe", "Snapshot", "run_seeded"]

publish(__name__, globals())
