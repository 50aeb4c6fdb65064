"""Ctrl-C while there is nothing yet to clean up."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["INTERRUPTED", "leaving_at_once"]

INTERRUPTED = 130


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """End this process where it stands, at a Ctrl-C in the block: for imports, which take most of a second.

    A `KeyboardInterrupt` would not do: pydantic makes an error of its own of one that comes while it builds a model.
    """
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
