"""The command line: ``mcp-actors``, or ``python -m mcp_actors``."""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper

from .._exports import publish
from ._interrupt import leaving_at_once

__all__ = ["main"]

_NEEDS = ("cyclopts", "rich")


def main() -> None:
    """Run the command that the arguments of this process name, and exit with its code.

    0 is success; 1 a server, a tool or a file that failed; 2 arguments that cannot be understood; 130 a Ctrl-C; 143
    and 129 the signals SIGTERM and SIGHUP, on which the servers are stopped too.
    """
    _open_missing_streams()
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        needs = f"mcp-actors needs {' and '.join(missing)}; try: pip install 'mcp-actors[cli]'"
        sys.stderr.write(f"error: {needs}\n")
        if "--json" in sys.argv:
            print(json.dumps({"error": needs}))  # noqa: T201  # it is what was asked for
        sys.exit(1)
    # What the servers write and what happens to them is in the results; a log would come in between.
    logging.getLogger().addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a result was asked for, and it is there
    with leaving_at_once():
        from ._app import run
    sys.exit(run(sys.argv[1:]))


def _open_missing_streams() -> None:
    """Let a standard stream that this process was started without be the null device.

    The first pipe to a server would get its number else.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


publish(__name__, globals())
