"""A server that misbehaves on command, over every transport.

The script (``_script``) is what a test says and sees. ``_behavior`` is the SDK's server with a middleware that commits
faults; ``_connection`` and its kinds are the ways to it. Over pipes and sockets they run in a thread (``_home``).
"""

from __future__ import annotations

from ..._exports import publish
from ._behavior import (
    Ask as Ask,
    Crash as Crash,
    Delay as Delay,
    Duplicate as Duplicate,
    Fail as Fail,
    Fault as Fault,
    Flood as Flood,
    Garble as Garble,
    Gate as Gate,
    Hang as Hang,
    HttpError as HttpError,
    Noise as Noise,
    Received as Received,
)
from ._server import ScriptedServer as ScriptedServer

publish("mcp_actors.testing", globals())
