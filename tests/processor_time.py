"""A bound on the processor time that something takes, which holds on a machine that is busy with other things."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time


@contextmanager
def takes_less_than(seconds: float) -> Iterator[None]:
    """Fail if this thread computes for longer in the block.

    To search what all the tests before have left for garbage may take longer; here it is not searched.
    """
    freeze()
    before = thread_time()
    yield
    assert thread_time() - before < seconds


def least_time(function: Callable[[], object], *, of: int = 3) -> float:
    """Return the seconds for which this thread computes in the shortest of some calls: load makes them longer only."""
    freeze()
    least = float("inf")
    for _ in range(of):
        before = thread_time()
        function()
        least = min(least, thread_time() - before)
    return least


def freeze() -> None:
    """Keep all that there is out of the garbage collections to come, after a last one.

    It stays out, because `gc.unfreeze` would bring the modules of all tests back.
    """
    gc.collect()
    gc.freeze()
