"""Count calls of functions: the work in one step of the event loop, the same on each machine and under any load."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

__all__ = ["calls_in"]

T = TypeVar("T")


def calls_in(function: Callable[[], T]) -> tuple[int, T]:
    """Return how many functions of Python are called, and generators resumed, and the result.

    Neither what a garbage collection calls counts, nor the first check of a class against an abstract one, which Python
    remembers until any class is registered: both depend on what has run before.
    """
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and not frame.f_code.co_filename.startswith("<frozen ")

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        result = function()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return calls, result
