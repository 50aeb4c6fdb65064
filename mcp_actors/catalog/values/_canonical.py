"""One text for every JSON value: equal values have the same, different ones have different ones.

Members are sorted. Strings stay as they are: two ways to write the same letter are two texts, because to a model they
may not be the same. A number is what it is worth, so ``1``, ``1.0`` and ``1e0`` are one (as in RFC 8785, but integers
of any size are kept exactly); a boolean is never a number.
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
"""Integers of more digits are written in base 16: in base 10 Python takes long for large ones, and refuses some."""

_PERHAPS_A_NUMBER_TO_REWRITE: Final = re.compile(rf"[0-9][.eE]|[0-9]{{{_DIGITS + 1}}}|NaN|Infinity")


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_text(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical_text(value: Any) -> str:
    """Return the text of a JSON value; it is JSON itself, but for very large integers.

    What JSON does not have is told by its `repr`. A value may be nested as deeply as it likes, but must not hold
    itself.
    """
    # The writer of the standard library is fast, but recurses, and writes a number as it came.
    try:
        text = _write(value)
    except (RecursionError, TypeError, ValueError):
        return _walked(value)
    return _walked(value) if _PERHAPS_A_NUMBER_TO_REWRITE.search(text) else text


_Piece = tuple[bool, Any]
"""Whether it is a text already, and that text or a value that is still to be written."""


def _walked(value: Any) -> str:
    """Write a value without recursion."""
    written: list[str] = []
    pending: list[_Piece] = [(False, value)]
    while pending:
        is_text, each = pending.pop()
        if is_text:
            written.append(each)
        elif isinstance(each, Mapping):
            # By the text of the key, because in Python not all keys can be compared.
            members = sorted(each.items(), key=lambda member: str(member[0]))
            pieces = [[(True, _scalar(key)), (True, ":"), (False, member)] for key, member in members]
            pending += _reversed("{", pieces, "}")
        elif isinstance(each, (list, tuple)):
            pending += _reversed("[", [[(False, item)] for item in each], "]")
        else:
            written.append(_scalar(each))
    return "".join(written)


def _reversed(opening: str, parts: Iterable[list[_Piece]], closing: str) -> list[_Piece]:
    """Return the pieces of an object or array, the last first."""
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
