"""Read the certificates of this machine once for all groups of a process.

To read them takes 25 ms of processor time, which each group with a server over HTTP would spend, and about a thousand
tests have one. Where the environment or a file has changed since, a group reads them anew, as ever.
"""

from __future__ import annotations

import sys


def share() -> None:
    """Begin each group with what was read here; do nothing if no program of this process can open one."""
    if (link := sys.modules.get("mcp_actors.transports._link")) is None:
        return
    first = link.Certificates()
    first.context()
    initialize = link.Certificates.__init__

    def begin(self: object) -> None:
        initialize(self)
        vars(self).update(_context=first._context, _found=first._found)

    link.Certificates.__init__ = begin
