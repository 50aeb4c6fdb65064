"""The canonical text of a JSON value, and its hash.

Members are sorted. Strings are not normalized, because a model may read two spellings of a letter differently. Numbers
are compared by value, so ``1``, ``1.0`` and ``1e0`` are the same (as in RFC 8785, but integers of any size stay exact).
A boolean is never equal to a number.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["canonical_text", "digest"]

_write: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode

_DIGITS: Final = 16
"""Integers with more digits are written in base 16, because Python is slow to write large ones in base 10."""

_PERHAPS_A_NUMBER_TO_REWRITE: Final = re.compile(rf"[0-9][.eE]|[0-9]{{{_DIGITS + 1}}}|NaN|Infinity")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_text(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical_text(value: Any) -> str:
    """Return the canonical text of a JSON value, which is JSON itself except for very large integers.

    A value that is not JSON is written as its `repr`. Any nesting depth is possible, but not a value that contains
    itself.
    """
    # The encoder of the standard library is fast, but it recurses and does not normalize numbers. Use it where neither
    # matters.
    try:
        text = _write(value)
    except (RecursionError, TypeError, ValueError):
        return _walked(value)
    return _walked(value) if _PERHAPS_A_NUMBER_TO_REWRITE.search(text) else text


_Piece = tuple[bool, Any]
"""True and a finished text, or False and a value that must still be written."""


def _walked(value: Any) -> str:
    """Write a value without recursion."""
    written: list[str] = []
    pending: list[_Piece] = [(False, value)]
    while pending:
        is_text, each = pending.pop()
        if is_text:
            written.append(each)
        elif isinstance(each, Mapping):
            # Sort by the text of the key, because keys of different types cannot be compared.
            members = sorted(each.items(), key=lambda member: str(member[0]))
            pieces = [[(True, _scalar(key)), (True, ":"), (False, member)] for key, member in members]
            pending += _reversed("{", pieces, "}")
        elif isinstance(each, (list, tuple)):
            pending += _reversed("[", [[(False, item)] for item in each], "]")
        else:
            written.append(_scalar(each))
    return "".join(written)


def _reversed(opening: str, parts: Iterable[list[_Piece]], closing: str) -> list[_Piece]:
    """Return the pieces of an object or array in reverse order, for a stack."""
    pieces: list[_Piece] = [(True, opening)]
    for place, part in enumerate(parts):
        pieces += [(True, ","), *part] if place else part
    pieces.append((True, closing))
    return pieces[::-1]


def _scalar(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**_DIGITS else hex(value)
    if value is None or isinstance(value, (str, bool, float)):
        return _write(value)
    return repr(value)
