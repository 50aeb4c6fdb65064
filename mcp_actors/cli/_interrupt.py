"""Exit on Ctrl-C during imports.

`cli.main` and ``_run`` use `exit_on_interrupt` around the slow imports of a command. Within the block it replaces the
handler of SIGINT, unless that is ignored, and restores it after; the handler writes a line to stderr and ends the
process without clean-up, with `INTERRUPTED`, which is also ``_run``'s code for Ctrl-C. This file imports no other of
the package, because it has to be ready before they load.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit at once on Ctrl-C in the block, which imports; nothing needs to be cleaned up yet."""
    # Imports take most of a second. A `KeyboardInterrupt` would not do: pydantic turns one that hits it while it builds
    # a model into an error of its own, and the user would see a traceback.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(*_: object) -> NoReturn:
    sys.stderr.write("cancelled\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
