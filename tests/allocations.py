"""Measure the memory that Python allocates, which does not depend on how busy a machine is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def measured() -> Iterator[Callable[[], int]]:
    """Measure how many bytes of memory Python had at most in the block, beyond what it had before."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        peak = before
        yield lambda: peak - before
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
