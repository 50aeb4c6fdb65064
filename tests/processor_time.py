"""A bound on the processor time that something takes, which holds on a machine that is busy with other things."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time


@contextmanager
def takes_less_than(seconds: float) -> Iterator[None]:
    """Fail if this thread computes for longer in the block.

    To search what all the tests before have left for garbage may take longer; here it is not searched.
    """
    gc.freeze()
    before = thread_time()
    try:
        yield
        took = thread_time() - before
    finally:
        gc.unfreeze()
    assert took < seconds
