"""The command line: ``mcp-actors``, or ``python -m mcp_actors``.

`main` sets signal handlers, runs a command and exits; ``mcp-actors --help`` lists the commands.
"""

# Import nothing slow at the top: Ctrl-C needs its handler (``_interrupt``) first.

from __future__ import annotations

import signal
import sys

from .._exports import publish
from ._interrupt import exit_on_interrupt

__all__ = ["main"]


def main() -> None:
    """Run the command in the arguments of this process, and exit with its code.

    0: success. 1: a failed server, tool or file. 2: invalid arguments. 3: a missing sign-in. 78: a file that `serve` or
    `ui` cannot use. 130: Ctrl-C. 143: SIGTERM. 129: SIGHUP. These signals stop the servers. But `serve` and `ui` reload
    their file on SIGHUP, unless their terminal was closed.
    """
    # By default SIGHUP, SIGUSR1 and SIGUSR2 end the process. Drop them until ``_gateway.serving`` receives them; a
    # reload is not needed before.
    serves = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2) if sys.argv[1:2] in (["serve"], ["ui"]) else ()
    for number in serves:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
    with exit_on_interrupt():
        from ._start import start  # here, because a Ctrl-C before this block would show a traceback

        run = start()
    code = run(sys.argv[1:])
    for number in serves:  # Python drops its handlers before the process ends
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


publish(__name__, globals())
