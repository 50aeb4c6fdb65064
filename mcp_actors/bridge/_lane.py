"""Run functions in another thread, in order, with few wake-ups."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["Lane", "Step", "run_now"]

Step = Callable[[], object]
"""A function to be run on the other side. It must not raise."""


class Lane:
    """One direction between two threads: runs functions on the other side, in the order in which they were put in.

    Waking a thread costs more than everything else here, so the other side is woken once for all functions that are put
    in before it runs the first of them.

    Args:
        wake: schedules a function on the other side; may raise if that side has ended.
    """

    __slots__ = ("_steps", "_wake", "_woken")

    def __init__(self, wake: Callable[[Step], object]) -> None:
        self._wake = wake
        self._steps: deque[Step] = deque()
        self._woken = False

    def put(self, step: Step) -> None:
        """Schedule a function on the other side.

        Raises:
            RuntimeError: the other side has ended, and the function does not run. (asyncio raises it as such, Trio as
                `trio.RunFinishedError`.)
        """
        # There is no lock: both sides share a deque and a flag. The step is appended before the flag is read here, and
        # `run` lowers the flag before it counts the steps. So a step is either counted by the run that is under way or
        # wakes the other side again; in the opposite order a step could wait in the deque with nothing to wake for it.
        self._steps.append(step)
        if not self._woken:
            self._woken = True
            try:
                self._wake(self.run)
            except BaseException:
                self._woken = False
                raise

    def run(self) -> None:
        """Run the functions that were put in. Called on the other side."""
        self._woken = False  # before the steps are counted, see `put`
        # Steps that arrive meanwhile wait for the next wake-up, so a busy sender cannot keep this loop from ending.
        for _ in range(len(self._steps)):
            self._steps.popleft()()


def run_now(step: Step) -> None:
    """Run a function; takes the place of a lane where both sides share a thread."""
    step()
