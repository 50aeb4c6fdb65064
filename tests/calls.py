"""Count calls of functions: the work in one step of the event loop, the same on each machine and under any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

__all__ = ["calls_in"]

T = TypeVar("T")


def calls_in(function: Callable[[], T]) -> tuple[int, T]:
    """Return how many functions of Python are called, and generators resumed, and the result."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = function()
    finally:
        sys.setprofile(before)
    return calls, result
