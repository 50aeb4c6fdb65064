"""Connect a client on stdio to the daemon of a configuration file.

An editor runs ``python -I -S …/attach.py --config FILE`` once per session, in place of its MCP servers, which the
daemon runs for all editors. Importing ``mcp_actors`` would take ten times the memory and time, so this program makes a
package of its folder, and runs ``_relay`` there.
"""

from __future__ import annotations

import os
import sys


def _run() -> int:
    # Python caches the bytecode of imports, but not of programs, so a separate `_relay` saves 2 MB and 10 ms.
    name = "attached"
    package = type(sys)(name)
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules[name] = package
    return int(__import__(f"{name}._relay", fromlist=["main"]).main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(_run())
else:  # imported by the command line
    from ._daemon import (
        DaemonRefused as DaemonRefused,
        Names as Names,
        check_socket as check_socket,
        file_and_server as file_and_server,
        folder as folder,
        holder as holder,
        names_for as names_for,
        peer_uid as peer_uid,
        real_name as real_name,
    )
