"""Check numbers that users pass; a bool is never a number.

Python counts ``True`` as an int, but ``connect_timeout=True`` is a mistake and does not mean one second.
"""

from __future__ import annotations

from typing import TypeGuard

__all__ = ["is_number", "is_whole"]


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is an int or a float; NaN and infinity are numbers too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_whole(value: object, lowest: int) -> TypeGuard[int]:
    """Return whether `value` is an int of at least `lowest`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest
