"""Test programs that use MCP servers or actors.

A `ScriptedServer` is a real MCP server over any transport, which crashes, hangs or answers as the test says. An
`EventRecorder` waits for events, a `Probe` observes an actor, `run_seeded` repeats a run, and `Snapshot` finds what a
test leaves behind. pytest finds the fixtures ``scripted_server``, ``event_recorder``, ``mcp_servers`` and
``nothing_left`` by itself.
"""

# A test holds a `ScriptedServer` (``_server``), and commands it by its methods. ``_behavior`` has its script, the
# faults and the SDK's server behind it. ``_connections`` has the connections over HTTP and over lines, ``_server``
# those in process, and ``_relay`` is the process over stdio. `EventRecorder`, `Probe` and `run_seeded` (``_recorder``)
# do without a server. `Snapshot` (``_leftovers``) finds what a test leaves behind. ``_signal`` lets tests wait across
# threads and event loops.
#
# pytest loads the fixtures of ``_pytest_plugin`` by itself (``scripted_server``, ``event_recorder``, ``mcp_servers``,
# ``nothing_left``); they import this folder when a test names one. Of the package, only that plugin imports it. It uses
# the kernel, the configuration and the transports, and the servers in one method. The scripted server and its faults
# need the SDK's server, and are imported at the first use of one of them, so tests of actors alone do without.

from __future__ import annotations

from typing import TYPE_CHECKING

from .._exports import fetch_later, publish
from ._leftovers import Snapshot
from ._recorder import EventRecorder, Probe, run_seeded

# For this project's tests; not public.
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
            name: "._server" if name == "ScriptedServer" else "._behavior"
            for name in __all__
            if name not in {"EventRecorder", "Probe", "Snapshot", "run_seeded"}
        },
    )

publish(__name__, globals())
