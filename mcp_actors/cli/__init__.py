"""The command line: ``mcp-actors``, or ``python -m mcp_actors``.

`main` is the program. It reads configuration files as other clients do, and has ``check``, ``tools``, ``call``,
``serve``, ``login`` and other commands; ``mcp-actors --help`` lists them.
"""

# Of this folder, its import loads only ``_interrupt``, so that a Ctrl-C finds its handler before the slow imports
# begin. `main` calls ``_start``, which prepares the process and returns `run` of ``_run``, and exits with the code that
# this returns; a command imports the code behind it when it runs. That code uses the configuration, the servers, the
# transports, the sign-in, single files of the ground floor, and types of the kernel and of the catalogue. In the
# package, only ``__main__`` imports this folder; the script ``mcp-actors`` calls `main` too.

from __future__ import annotations

import signal
import sys

from .._exports import publish
from ._interrupt import exit_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command in the arguments of this process, and exit with its code.

    0 is success, 1 a failed server, tool or file, 2 invalid arguments, 78 a file that `serve` cannot use, 130 Ctrl-C;
    143 and 129 are the signals SIGTERM and SIGHUP, which stop the servers too.
    """
    # These signals would end a process that serves, until its imports are done and it receives them (`serving`). It
    # reads its file after that, so a reload that is asked for here is not lost.
    serves = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2) if sys.argv[1:2] in (["serve"], ["ui"]) else ()
    for number in serves:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
    with exit_on_interrupt():
        from ._start import start  # here, because a Ctrl-C before this block would show a traceback

        run = start()
    code = run(sys.argv[1:])
    for number in serves:  # at the end of Python its handlers end before the process
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


publish(__name__, globals())
