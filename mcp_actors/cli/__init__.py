"""The command line: ``mcp-actors``, or ``python -m mcp_actors``."""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper

from .._exports import publish
from ._interrupt import exit_on_interrupt

__all__ = ["main"]

_NEEDS = ("cyclopts", "rich")


def main() -> None:
    """Run the command in the arguments of this process, and exit with its code.

    0 is success, 1 a failed server, tool or file, 2 invalid arguments, 130 Ctrl-C; 143 and 129 are the signals SIGTERM
    and SIGHUP, which stop the servers too.
    """
    _open_missing_streams()
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        error = f"mcp-actors requires {' and '.join(missing)}; run: pip install 'mcp-actors[cli]'"
        sys.stderr.write(f"error: {error}\n")
        if "--json" in sys.argv:
            print(json.dumps({"error": error}))  # noqa: T201  # the result of the command
        sys.exit(1)
    # The results say what happened to the servers. A log on stderr would repeat it between the lines of a command.
    logging.getLogger().addHandler(logging.NullHandler())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a result must not fail in the last step
    with exit_on_interrupt():
        from ._app import run
    sys.exit(run(sys.argv[1:]))


def _open_missing_streams() -> None:
    """Open the null device for each standard stream that this process was started without.

    Otherwise the first pipe to a server would get its descriptor, and this process would write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


publish(__name__, globals())
