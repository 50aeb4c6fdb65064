"""Check numbers that users pass; a bool is never a number.

Python counts ``True`` as an int, but ``connect_timeout=True`` is a mistake and does not mean one second.
"""

from __future__ import annotations

import math
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is an int or a float; NaN and infinity are numbers too."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_seconds(value: object) -> TypeGuard[float]:
    """Return whether `value` is a positive and finite number."""
    # The comparison refuses NaN, and unlike `math.isfinite` it takes integers that are too large for a float.
    return is_number(value) and 0 < value < math.inf


def is_whole(value: object, lowest: int) -> TypeGuard[int]:
    """Return whether `value` is an int of at least `lowest`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest
