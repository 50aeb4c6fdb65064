"""Ctrl-C at every line: of a program, or of a part of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import trio

__all__ = ["run_interrupted_at"]


class Interrupter:
    """Counts the lines that are run of some files, and presses Ctrl-C at one of them.

    Args:
        at: which line; None to count them.
        path: what the paths of the files have in common.
        below: only lines that are called, directly or not, by such a file.
    """

    def __init__(self, at: int | None, path: str, below: str = "") -> None:
        self.at = at
        self.path = path
        self.below = below
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return self.line if self.path in frame.f_code.co_filename and self._is_below(frame) else None

    def _is_below(self, frame: FrameType | None) -> bool:
        while frame is not None and self.below not in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None

    def line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                signal.raise_signal(signal.SIGINT)
        return self.line


def run_interrupted_at(
    at: int | None,
    main: Callable[[], Coroutine[Any, Any, object]],
    path: str,
    *,
    below: str = "",
    run: Callable[[Callable[[], Coroutine[Any, Any, object]]], object] = trio.run,
) -> tuple[int, type[BaseException] | None]:
    """Run a program, interrupted at one line (see `Interrupter`); return how many there were, and what left it."""
    interrupter = Interrupter(at, path, below)
    before = sys.gettrace()
    sys.settrace(interrupter)
    try:
        with_bound(lambda: run(main))
    except BaseException as exc:
        return interrupter.lines, type(exc)
    finally:
        sys.settrace(before)
    return interrupter.lines, None


def with_bound(fn: Callable[[], object]) -> None:
    """Turn a hang into a failure, and keep what CPython leaves behind.

    An interrupt by a trace function at a `return` in an `except` clause leaves that exception as the one that is
    handled, and it would be the context of all errors to come. A generator has such a place of its own.
    """

    def hang(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 120)
    try:
        for _ in _called(fn):
            pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _called(fn: Callable[[], object]) -> Generator[None, None, None]:
    fn()
    yield
