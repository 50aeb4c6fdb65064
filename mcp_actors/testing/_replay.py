"""Run a Trio program so that one number repeats it.

Trio runs the tasks of one tick in random order. Its own tests, and hypothesis, make that order reproducible by two
private names of its scheduler, which this file uses too. Other differences between runs are removed here as well: the
time (a mock clock), the jitter of back-offs (`random`), and the moments of garbage collections, which run finalizers.
"""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import trio
from trio.testing import MockClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_seeded(
    async_fn: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    seed: int,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> T:
    """Run ``async_fn(*args)`` like `trio.run`, in the order and with the random numbers of a seed.

    The clock is a mock clock that starts at 0 and jumps whenever all tasks are blocked, so sleeps and timeouts take no
    time. It does not move while a task works, so groups of servers do not yield after each half a millisecond of
    work, as they do elsewhere.

    The same seed runs the same steps in the same order, as long as the program has no other source of chance. Threads,
    processes and sockets of others are such sources, and so is the iteration over a set of str.

    Args:
        async_fn: the program.
        args: its arguments.
        seed: any number. `random` is seeded with it too, and restored at the end.
        instruments: as for `trio.run`.

    Raises:
        BaseException: what `async_fn` raises.
        RuntimeError: this version of Trio has no scheduler that can be seeded.
    """
    scheduler: Any = trio._core._run
    if not (hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING") and hasattr(scheduler, "_r")):
        raise RuntimeError(f"run_seeded(): trio {trio.__version__} cannot be seeded; install trio 0.35")
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r.getstate(), random.getstate()
    collects = gc.isenabled()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    random.seed(seed)
    gc.disable()
    try:
        return trio.run(async_fn, *args, clock=MockClock(autojump_threshold=0), instruments=instruments)
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before[0]
        scheduler._r.setstate(before[1])
        random.setstate(before[2])
        if collects:
            gc.enable()
