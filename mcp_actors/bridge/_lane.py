"""One direction between two threads: functions that are to run on the other side, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["Lane", "Step", "at_once"]

Step = Callable[[], object]
"""What is to happen on the other side. It must not raise."""


class Lane:
    """Runs functions on the other side, in the order in which they were put in.

    The other side is woken once for all that is put in before it gets to run any of it, because waking a thread is what
    costs most. It takes no lock: the two sides share a deque and a flag, and the flag is lowered *before* the deque is
    looked at, so what is put in too late to be seen wakes the other side once more.

    Args:
        wake: has a function called soon on the other side; may raise if that side has ended.
    """

    __slots__ = ("_steps", "_wake", "_woken")

    def __init__(self, wake: Callable[[Step], object]) -> None:
        self._wake = wake
        self._steps: deque[Step] = deque()
        self._woken = False

    def put(self, step: Step) -> None:
        """Have a function run on the other side.

        Raises:
            RuntimeError: the other side has ended; the function does not run. (That is what both `trio` and asyncio
                raise, the former as `trio.RunFinishedError`.)
        """
        self._steps.append(step)
        if not self._woken:
            self._woken = True
            try:
                self._wake(self.run)
            except BaseException:
                self._woken = False
                raise

    def run(self) -> None:
        """Run what was put in. Called on the other side."""
        self._woken = False
        for _ in range(len(self._steps)):
            self._steps.popleft()()


def at_once(step: Step) -> None:
    """What a lane is between two sides that share a thread."""
    step()
