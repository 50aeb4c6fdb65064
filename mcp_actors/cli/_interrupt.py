"""Exit on Ctrl-C during imports.

The handler must be ready before slow imports begin, so this file imports no other file of the package.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

INTERRUPTED = 130  # the exit code after Ctrl-C


@contextmanager
def exit_on_interrupt() -> Iterator[None]:
    """Exit at once with `INTERRUPTED` on Ctrl-C in the block, which only imports. An ignored SIGINT stays ignored."""
    # Imports take most of a second, so Ctrl-C often hits them. Do not raise an exception: while pydantic builds a
    # model, any exception becomes an error of pydantic, and the user would see a traceback. os._exit skips all
    # clean-up, so the handler must be gone before servers or files are open.
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before if before is signal.SIG_IGN else _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(*_: object) -> NoReturn:
    sys.stderr.write("cancelled\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
