"""Tools for tests of programs that use MCP servers or actors.

This file only gathers the public names. A `ScriptedServer` is a real MCP server, over any transport; it crashes, hangs
or answers as the test says. An `EventRecorder` waits for events, a `Probe` observes an actor, `run_seeded` repeats a
run, and `Snapshot` finds what a test leaves behind. pytest finds the fixtures ``scripted_server``, ``event_recorder``,
``mcp_servers`` and ``nothing_left`` by itself.
"""

# ``_server`` has the `ScriptedServer`, ``_behavior`` its script, ``_connections`` its connections, and ``_relay`` the
# process that a client over stdio starts.
# ``_pytest_plugin`` imports this folder when a test names a fixture. `ScriptedServer` is imported at its first use,
# because it needs the SDK's server.

from __future__ import annotations

from typing import TYPE_CHECKING

from .._exports import fetch_later, publish
from ._leftovers import Snapshot
from ._recorder import EventRecorder, Probe, run_seeded

# Not public: for this project's tests.
from ._leftovers import children as children  # isort: skip

if TYPE_CHECKING:
    from ._behavior import (
        Ask,
        Crash,
        Delay,
        Duplicate,
        Fail,
        Fault,
        Flood,
        Garble,
        Gate,
        Hang,
        HttpError,
        Noise,
        Received,
    )
    from ._server import ScriptedServer

__all__ = [
    "Ask",
    "Crash",
    "Delay",
    "Duplicate",
    "EventRecorder",
    "Fail",
    "Fault",
    "Flood",
    "Garble",
    "Gate",
    "Hang",
    "HttpError",
    "Noise",
    "Probe",
    "Received",
    "ScriptedServer",
    "Snapshot",
    "run_seeded",
]

# The scripted server. Hidden from type checkers, which would otherwise accept every misspelled name.
if not TYPE_CHECKING:
    __getattr__ = fetch_later(
        globals(),
        {
            "._behavior": " ".join({*__all__} - {"EventRecorder", "Probe", "ScriptedServer", "Snapshot", "run_seeded"}),
            "._server": "ScriptedServer",
        },
    )

publish(__name__, globals())
